"""A consumer that notes where it begins in a queue, and each commit and look at what is committed.

No public name of the client tells these two, for applications have no use for them; so this reaches behind it.
"""

import time
from collections.abc import Callable, Mapping

from workload.noting import Notes

from faults.history import Assigned, Commit, CommitBegun, Committed
from mqclient import LitePullConsumer, MessageQueue, MQClientError, PushConsumer
from mqclient.consumer.offset_store import OffsetStore


def at(group: str, consumer: str, queue: MessageQueue) -> dict[str, object]:
    """The fields of a record that say who did it, and where."""
    return {
        "group": group,
        "consumer": consumer,
        "broker": queue.broker_name,
        "topic": queue.topic,
        "queue_id": queue.queue_id,
    }


def noted(
    consumer: LitePullConsumer | PushConsumer,
    notes: Notes,
    name: str,
    on_assigned: Callable[[MessageQueue, int], None] = lambda queue, offset: None,
) -> None:
    """To be called before it is started. `on_assigned` is told where it begins in a queue, each time it does."""
    member = consumer._member
    read_from = member.read_from

    def read_from_noted(queue: MessageQueue, offset: int) -> None:
        notes.note(Assigned, offset=offset, **at(consumer.group, name, queue))
        on_assigned(queue, offset)
        read_from(queue, offset)

    member.read_from = read_from_noted  # type: ignore[method-assign]
    member._offset_store = _NotedOffsets(member._offset_store, notes, consumer.group, name)


class _NotedOffsets:
    def __init__(self, inner: OffsetStore, notes: Notes, group: str, consumer: str) -> None:
        self._inner = inner
        self._notes = notes
        self._group = group
        self._consumer = consumer

    async def load(self) -> None:
        await self._inner.load()

    async def read(self, queue: MessageQueue) -> int | None:
        begun_ns = time.monotonic_ns()
        offset = await self._inner.read(queue)
        self._notes.note(
            Committed,
            begun_ns=begun_ns,
            offset=-1 if offset is None else offset,
            **at(self._group, self._consumer, queue),
        )
        return offset

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, MQClientError]:
        begun = {
            queue: self._notes.note(CommitBegun, offset=offset, **at(self._group, self._consumer, queue))
            for queue, offset in offsets.items()
        }
        failed: Mapping[MessageQueue, MQClientError] | None = None
        try:
            failed = await self._inner.commit(offsets)
        finally:
            for queue, offset in offsets.items():
                # Broken off, nobody knows.
                error = None if failed is None else failed.get(queue)
                outcome = "unknown" if failed is None else "ok"
                if error is not None:
                    outcome = "fail" if error.definite else "unknown"
                self._notes.note(
                    Commit,
                    begun_ns=begun[queue],
                    offset=offset,
                    outcome=outcome,
                    **at(self._group, self._consumer, queue),
                )
        return failed

    async def close(self) -> None:
        await self._inner.close()
