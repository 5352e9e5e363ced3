"""The consumer that an application polls, and that it may lead: from where, which queues, how far is committed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from message.decoder import MessageExt
from mqclient.consumer.consumer_config import ConsumerConfig
from mqclient.consumer.group_consumer import GroupConsumer
from mqclient.consumer.group_member import GroupMember, OnAssignment
from mqclient.consumer.process_queue import ConsumeBatch
from mqclient.consumer.subscription import Expression
from mqclient.errors import CommitError, OffsetIllegalError, QueueNotAssignedError
from mqclient.message_queue import MessageQueue
from mqclient.route.topic_route import TopicRoute
from remoting.client import Connect

OnTopicQueues = Callable[[str, Sequence[MessageQueue]], None]
"""Is called with a topic and the queues it has now."""


class LitePullConsumer(GroupConsumer):
    """Use it as `async with LitePullConsumer(namesrv, group, {"T": "*"}) as consumer: await consumer.poll()`.

    With subscriptions the group's members share the queues; without, the application names them with `assign`, and
    that group should have no members that subscribe: they would leave a share of the queues to this one.

    With `auto_commit`, what a poll returned counts as done when the next one begins, and is committed every
    `persist_interval_s` and at the end; what the last poll returned is delivered again unless `commit` was called
    behind it. Without, offsets are committed by `commit` alone. One task polls at a time.
    """

    def __init__(
        self,
        namesrv: str | None,
        group: str,
        subscriptions: Mapping[str, Expression] | None = None,
        *,
        assign_expressions: Mapping[str, Expression] | None = None,
        auto_commit: bool = True,
        config: ConsumerConfig | None = None,
        instance_name: str = "",
        on_assignment: OnAssignment | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        connect: Connect | None = None,
    ) -> None:
        """`subscriptions`: topic to `*`, `TagA || TagB` or `sql(…)`; every member of a group must have the same.

        `assign_expressions` says the same for topics whose queues are assigned; without one, all is read.
        `on_assignment` is called with this member's queues when they have changed. Raises ValueError for a name or an
        expression that is none, LocalOffsetsError for a broadcasting member without a place for its offsets.
        """
        if subscriptions and assign_expressions:
            raise ValueError("assign_expressions are for a consumer without subscriptions")
        self.group = group
        self._subscribes = bool(subscriptions)
        self._auto_commit = auto_commit
        self._listeners: dict[str, OnTopicQueues] = {}
        self._topic_queues: dict[str, list[MessageQueue]] = {}  # as the listeners know them
        self._polled: ConsumeBatch | None = None  # is not done
        self._member = GroupMember(
            namesrv,
            group,
            subscriptions or {},
            config or ConsumerConfig(),
            is_lite=True,
            auto_commit=auto_commit,
            assign_expressions=assign_expressions,
            instance_name=instance_name,
            now_ms=now_ms,
            connect=connect,
            on_assignment=on_assignment,
            on_route_change=self._on_route_change,
        )

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues this member reads now."""
        return self._member.queues

    async def poll(self, timeout_s: float = 5.0) -> list[MessageExt]:
        """The next messages, all of one queue and in its order; none if none came in time. Raises ClientClosedError."""
        self._member.instance.check_open()
        self._end_polled()
        try:
            async with asyncio.timeout(timeout_s):
                batch = await self._member.take()
        except TimeoutError:
            return []
        if batch is None:
            return []
        self._polled = batch
        if not self._auto_commit:
            self._end_polled()
        return batch.messages

    async def assign(self, queues: Collection[MessageQueue]) -> None:
        """Reads these queues and no others, each from where the group is with it, or where `consume_from` says.

        Raises ValueError for a consumer that subscribes, MQClientError where a topic has no route.
        """
        self._member.instance.check_open()
        if self._subscribes:
            raise ValueError("this consumer subscribes: its queues are the share that its group leaves it")
        await self._member.assign(queues)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Goes on at this offset: the next message of the queue is this one, whatever was pulled before.

        Raises QueueNotAssignedError, OffsetIllegalError outside of what the queue holds (its end included), and
        MQClientError when the broker could not be asked for that.
        """
        begin, end = await self._bounds(queue)
        if not begin <= offset <= end:
            raise OffsetIllegalError(f"offset {offset} of {_name(queue)}: it holds {begin} to {end}")
        self._read_from(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Goes on at the oldest message there is. Raises as `seek` does."""
        self._read_from(queue, (await self._bounds(queue))[0])

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Goes on at the next message that comes. Raises as `seek` does."""
        self._read_from(queue, (await self._bounds(queue))[1])

    def pause(self, *queues: MessageQueue) -> None:
        """Polls return nothing of these until `resume`. Raises QueueNotAssignedError.

        A queue that goes to another member and comes back is not paused any more.
        """
        for queue in queues:
            self._check_mine(queue)
        self._member.pause(queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Raises QueueNotAssignedError."""
        for queue in queues:
            self._check_mine(queue)
        self._member.resume(queues)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commits what the polls so far returned, the last one included; or these offsets, of any queues.

        An offset is that of the next message to be read. Raises CommitError, which names the queues that failed.
        """
        self._member.instance.check_open()
        if offsets is None:
            self._end_polled()
            failed = await self._member.commit()
        else:
            failed = await self._member.commit_offsets(offsets)
        if failed:
            raise CommitError(failed)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that the group has committed; None: none yet. Raises MQClientError."""
        self._member.instance.check_open()
        return await self._member.committed(queue)

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Of the first message stored then or later; the queue's end if there is none. Raises MQClientError."""
        instance = self._member.instance
        instance.check_open()
        return await instance.api.search_offset(await instance.master_address(queue), queue, timestamp_ms)

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The topic's queues that can be read, as a NameServer knows them now. Raises RouteNotFoundError."""
        self._member.instance.check_open()
        return list((await self._member.instance.routes.refresh(topic)).subscribe_queues)

    async def on_topic_queues(self, topic: str, listener: OnTopicQueues) -> None:
        """Has `listener` called when the topic's queues become others than they are now; routes are looked at every
        `poll_name_server_interval_s`. Raises RouteNotFoundError."""
        self._topic_queues[topic] = await self.fetch_message_queues(topic)
        self._listeners[topic] = listener

    def _on_route_change(self, route: TopicRoute) -> None:
        queues = list(route.subscribe_queues)
        listener = self._listeners.get(route.topic)
        if listener is not None and self._topic_queues[route.topic] != queues:
            self._topic_queues[route.topic] = queues
            # In its own turn of the loop: what it raises is the loop's to tell, and the route stays.
            asyncio.get_running_loop().call_soon(listener, route.topic, queues)

    def _end_polled(self) -> None:
        if self._polled is not None:
            self._polled.done()
            self._polled = None

    async def _bounds(self, queue: MessageQueue) -> tuple[int, int]:
        self._member.instance.check_open()
        self._check_mine(queue)
        instance = self._member.instance
        address = await instance.master_address(queue)
        return await instance.api.min_offset(address, queue), await instance.api.max_offset(address, queue)

    def _read_from(self, queue: MessageQueue, offset: int) -> None:
        self._check_mine(queue)  # it may have gone while the broker was asked
        self._member.read_from(queue, offset)

    def _check_mine(self, queue: MessageQueue) -> None:
        if not self._member.has(queue):
            raise QueueNotAssignedError(f"{_name(queue)} is not assigned to this consumer now")


def _name(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
