"""Where consumer groups are, against the ends of their queues: an offset below 0 or behind the next message's is none
that a consumer can have come to. The delivery of delayed messages is a consumer too, of the schedule topic's queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from message.names import SCHEDULE_TOPIC
from verify.findings import Finding, Kind

OffsetTable = Mapping[str, Mapping[int, int]]  # "topic@group" -> queue id -> next offset to consume


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """The queue offsets behind the last messages, as far as all replicas of the group tell."""

    ends: Mapping[tuple[str, int], int]
    # False: each log is damaged or begins late, so a queue may have had more messages than are known.
    is_sure: bool
    unknown_are_empty: bool  # a queue that is not in `ends` never had a message
    index: int  # entries behind it were not read, so what came later is not judged

    def end_of(self, topic: str, queue_id: int) -> int | None:
        """None where it is not known."""
        if not self.is_sure:
            return None
        return self.ends.get((topic, queue_id), 0 if self.unknown_are_empty else None)


def group_offset_findings(
    replica: str, file: str, table: OffsetTable, ends: QueueEnds, *, is_current: bool = True
) -> Iterator[Finding]:
    """`file`: whose table it is. `is_current` False: it may know of messages that were not read, so only offsets below
    0 are judged."""
    for key, queues in sorted(table.items()):
        topic, _, group = key.rpartition("@")
        for queue_id, offset in sorted(queues.items()):
            yield from _judged(f"group {group}", (replica, file), (topic, queue_id), offset, ends, is_current)


def delay_offset_findings(
    replica: str, file: str, offsets: Mapping[int, int], ends: QueueEnds, *, is_current: bool = True
) -> Iterator[Finding]:
    """Likewise; `offsets`: delay level -> next offset to deliver, in the queue of that level."""
    for level, offset in sorted(offsets.items()):
        queue = SCHEDULE_TOPIC, level - 1
        yield from _judged(f"delay level {level}", (replica, file), queue, offset, ends, is_current)


def _judged(
    consumer: str,
    table: tuple[str, str],
    queue: tuple[str, int],
    offset: int,
    ends: QueueEnds,
    is_current: bool,
) -> Iterator[Finding]:
    end = ends.end_of(*queue) if is_current else None
    if offset < 0:
        sentence = f"{consumer} is at offset {offset}, below the queue's first one"
    elif end is not None and offset > end:
        sentence = f"{consumer} is at offset {offset}, the queue's next message will have {end}"
    else:
        return
    yield Finding(
        kind=Kind.GROUP_OFFSET,
        replica=table[0],
        file=table[1],
        topic=queue[0],
        queue_id=queue[1],
        first_offset=offset,
        last_offset=offset,
        sentence=sentence,
    )
