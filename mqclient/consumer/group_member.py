"""A member of a consumer group, without the way in which an application is handed its messages.

It keeps the group's heartbeat, knows which queues are its own (a share by the group's strategy, all of them, or those
that the application names), has one puller for each, and commits how far they are done.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from message.decoder import MessageExt
from message.names import group_fault, retry_topic
from message.tags import SUB_ALL, build_subscription
from mqclient.client_instance import ClientInstance
from mqclient.consumer.client_info import heartbeat_data
from mqclient.consumer.client_remoting_processor import ClientRemotingProcessor
from mqclient.consumer.consumer_config import ConsumeFromWhere, ConsumerConfig, MessageModel
from mqclient.consumer.consumer_stats import TopicStats
from mqclient.consumer.direct_batch import DirectBatch
from mqclient.consumer.local_file_offset_store import LocalFileOffsetStore
from mqclient.consumer.offset_store import OffsetStore, RemoteBrokerOffsetStore
from mqclient.consumer.process_queue import ConsumeBatch, ProcessQueue
from mqclient.consumer.puller import Puller
from mqclient.consumer.rebalance import all_queues, assigned_queues
from mqclient.consumer.subscription import Expression, build_subscriptions, check_filters
from mqclient.errors import MQClientError
from mqclient.message_queue import MessageQueue
from mqclient.route.topic_route import TopicRoute
from remoting.bodies.admin_bodies import ConsumeStatus
from remoting.client import Connect

log = logging.getLogger(__name__)

OnAssignment = Callable[[Sequence[MessageQueue]], None]
"""Is called with the queues of a member whenever they have changed."""

LAST_COMMIT_TIMEOUT_S = 3.0
# The broker waits 10 s for the whole of it: the tool shall hear that nobody wanted the message, and not of silence.
HAND_OVER_TIMEOUT_S = 5.0
# Java's. A broadcasting member finds its offsets file again by its client id, so that holds no process id.
BROADCASTING_INSTANCE_NAME = "DEFAULT"


class GroupMember:
    """Invariant: each queue of `process_queues` has exactly one puller."""

    def __init__(
        self,
        namesrv: str | None,
        group: str,
        subscriptions: Mapping[str, Expression],
        config: ConsumerConfig,
        *,
        is_lite: bool,
        auto_commit: bool,
        assign_expressions: Mapping[str, Expression] | None = None,
        instance_name: str,
        now_ms: Callable[[], int],
        connect: Connect | None,
        on_assignment: OnAssignment | None,
        on_route_change: Callable[[TopicRoute], None] | None = None,
    ) -> None:
        """Without subscriptions the queues are those of `assign`, of which `assign_expressions` says what to read.

        Raises ValueError for a name or an expression that is none, LocalOffsetsError for a broadcasting member without
        a place for its offsets.
        """
        if (fault := group_fault(group)) is not None:
            raise ValueError(fault)
        self.group = group
        self.is_broadcasting = config.message_model is MessageModel.BROADCASTING
        if self.is_broadcasting:
            if "/" in instance_name or "\0" in instance_name:
                raise ValueError(
                    f"instance_name {instance_name!r}: it is part of a file's path, so without /"
                )
            instance_name = instance_name or BROADCASTING_INSTANCE_NAME
        self.config = config
        self.is_lite = is_lite
        self._auto_commit = auto_commit
        self._now_ms = now_ms
        self.started_ms = 0
        self._retry_topic = retry_topic(group)
        self.subscriptions = build_subscriptions(subscriptions, now_ms())
        self._filters = self.subscriptions or build_subscriptions(assign_expressions or {}, now_ms())
        self._named: set[MessageQueue] = set()  # by the application
        self._paused: set[MessageQueue] = set()
        self.instance = ClientInstance(
            namesrv,
            heartbeat_body=lambda client_id: heartbeat_data(self, client_id),
            on_request=ClientRemotingProcessor(self).on_request,
            on_route_change=self._route_changed,
            instance_name=instance_name,
            poll_name_server_interval_s=config.poll_name_server_interval_s,
            credentials=config.credentials,
            connect=connect,
        )
        self._offset_store: OffsetStore = (
            LocalFileOffsetStore(config.local_offset_store_dir, self.instance.client_id, group)
            if self.is_broadcasting
            else RemoteBrokerOffsetStore(self.instance, group)
        )
        self.process_queues: dict[MessageQueue, ProcessQueue] = {}
        self._stats: defaultdict[str, TopicStats] = defaultdict(TopicStats)
        self._assigning = asyncio.Lock()
        self._pullers: dict[MessageQueue, tuple[Puller, asyncio.Task[None]]] = {}
        # A queue stands here once for each of its batches that can be taken, or more often; None: closed.
        self._ready: asyncio.Queue[ProcessQueue | None] = asyncio.Queue()
        self._out_of_turn: deque[DirectBatch] = deque()  # for whoever takes next
        self._rebalance_now = asyncio.Event()
        self._greet_again = False
        self._routes_missed: set[str] = set()  # topics whose missing route has been told
        self._on_assignment = on_assignment
        self._on_route_change = on_route_change

    @property
    def queues(self) -> list[MessageQueue]:
        return sorted(self.process_queues)

    @property
    def consume_type(self) -> str:
        """In RocketMQ's words: a consumer that polls is active."""
        return "CONSUME_ACTIVELY" if self.is_lite else "CONSUME_PASSIVELY"

    @property
    def topics_without_route(self) -> list[str]:
        return [
            topic
            for topic in self.subscriptions
            if topic != self._retry_topic and self.instance.routes.cached(topic) is None
        ]

    async def start(self) -> None:
        """Joins the group. Raises LocalOffsetsError, and BrokerResponseError for a filter that a broker refuses."""
        await self._offset_store.load()
        self.started_ms = self._now_ms()
        try:
            self.instance.start()
            await self._find_routes()
            await check_filters(self.instance, self.group, self._filters.values())
            await self.instance.heartbeat()
        except BaseException:
            # A caller that gives up here gets no consumer to close: `async with` has not begun.
            await self.close()
            raise
        self.instance.spawn(self._rebalance_loop())
        if self._auto_commit:
            self.instance.spawn(self._persist_loop())
        if self._retry_topic in self.subscriptions:
            self.instance.spawn(self._find_retry_topic())

    async def close(self) -> None:
        """Leaves the group: commits what is done (unless that is the application's), tells the brokers, ends `take`.

        Cancelled, it leaves out what it was at, and still ends all that this member holds.
        """
        try:
            await self._leave()
        finally:
            self._ready.put_nowait(None)
            try:
                await self.instance.close()
            finally:
                await self._offset_store.close()

    async def take(self) -> ConsumeBatch | None:
        """The next batch of any queue that is not paused; None once the member is closed."""
        while True:
            process_queue = await self._ready.get()
            if process_queue is None:
                self._ready.put_nowait(None)  # for the next one who asks
                return None
            if self._out_of_turn:
                self._ready.put_nowait(process_queue)
                direct = self._out_of_turn.popleft()
                direct.take()
                return direct
            if (batch := process_queue.take()) is not None:
                return batch

    def give_back(self, batch: ConsumeBatch) -> None:
        """The batch is taken once more."""
        batch.process_queue.give_back(batch)
        self._ready.put_nowait(batch.process_queue)

    async def hand_over(self, queue: MessageQueue, messages: list[MessageExt]) -> DirectBatch | None:
        """What lies in one record, out of turn, to whoever takes next; returns when it is done, or given up.

        None: nobody took it in time, and nobody will.
        """
        batch = DirectBatch(self._process_queue(queue, messages[0].queue_offset), messages)
        self._out_of_turn.append(batch)
        self._ready.put_nowait(batch.process_queue)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(HAND_OVER_TIMEOUT_S):
                    await batch.taken.wait()
        finally:
            if not batch.taken.is_set():
                self._out_of_turn.remove(batch)
        if not batch.taken.is_set():
            return None
        await batch.ended.wait()
        return batch

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._paused.add(queue)
            if (process_queue := self.process_queues.get(queue)) is not None:
                process_queue.pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._paused.discard(queue)
            if (process_queue := self.process_queues.get(queue)) is not None:
                process_queue.resume()
                for _ in range(process_queue.ready_count):
                    self._ready.put_nowait(process_queue)

    async def commit(
        self, process_queues: Iterable[ProcessQueue] | None = None
    ) -> Mapping[MessageQueue, MQClientError]:
        """Commits the offset of each of these that moved, or of all; the next commit tries what failed once more.

        Returns what failed, and why.
        """
        of_all = self.process_queues.values() if process_queues is None else process_queues
        moved = {pq.queue: pq for pq in of_all if pq.consume_offset != pq.committed_offset}
        return await self.commit_offsets({queue: pq.consume_offset for queue, pq in moved.items()})

    async def commit_offsets(
        self, offsets: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, MQClientError]:
        """Returns what failed, and why."""
        failed = await self._offset_store.commit(offsets)
        for queue, offset in offsets.items():
            if queue not in failed and (process_queue := self.process_queues.get(queue)) is not None:
                process_queue.committed_offset = offset
        return failed

    async def committed(self, queue: MessageQueue) -> int | None:
        """What the group (broadcasting: this member) has kept for a queue. Raises MQClientError."""
        return await self._offset_store.read(queue)

    def has(self, queue: MessageQueue) -> bool:
        return queue in self.process_queues or queue in self._named

    async def assign(self, queues: Collection[MessageQueue]) -> None:
        """Reads these and no others. Those of which it is not known yet where to begin are begun later."""
        for topic in sorted({queue.topic for queue in queues}):
            await self.instance.routes.route(topic)
        # Known to the brokers, so that tools show it; nothing here waits for that.
        self.instance.spawn(self.instance.heartbeat())
        self._named = set(queues)
        if not await self._assign(sorted(self._named)):
            self._rebalance_now.set()

    def read_from(self, queue: MessageQueue, offset: int) -> None:
        """Reads a queue on from here, whatever was pulled of it before."""
        if (before := self.process_queues.pop(queue, None)) is not None:
            before.drop()
            self._pullers.pop(queue)[1].cancel()
        process_queue = self._process_queue(queue, offset)
        if queue in self._paused:
            process_queue.pause()
        puller = Puller(
            self.instance,
            self.group,
            process_queue,
            self._filters.get(queue.topic) or build_subscription(queue.topic, SUB_ALL),
            self.config,
            is_lite=self.is_lite,
            # In the request itself: a broker that has just begun to lead needs no heartbeat first. Without it, it goes
            # by what the group registered, and only then asks whether the group may broadcast.
            sends_subscription=not (self.is_broadcasting and self.subscriptions),
            deliver=lambda: self._ready.put_nowait(process_queue),
            on_group_unknown=self._group_unknown,
        )
        self.process_queues[queue] = process_queue
        self._pullers[queue] = (puller, self.instance.spawn(puller.run()))

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Goes on here with those of these queues that are ours, and commits that.

        Also where commits are the application's: an operator's word must outlive it. A commit that fails is made up for
        by the next one, for then the queue has an offset that is not committed.
        """
        ours = {
            queue: offset
            for queue, offset in offsets.items()
            if (process_queue := self.process_queues.get(queue)) is not None and not process_queue.is_dropped
        }
        for queue, offset in ours.items():
            log.info(
                "offset reset queue=%s from=%d to=%d",
                queue,
                self.process_queues[queue].consume_offset,
                offset,
            )
            self.read_from(queue, offset)
        await self.commit_offsets(ours)

    def consume_statuses(self) -> dict[str, ConsumeStatus]:
        """How fast this member was with each topic of late."""
        now_ms = self._now_ms()
        return {topic: stats.status(now_ms) for topic, stats in sorted(self._stats.items())}

    def rebalance_soon(self) -> None:
        self._rebalance_now.set()

    def _process_queue(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        return ProcessQueue(
            queue,
            offset,
            count_max=self.config.cached_count_max,
            bytes_max=self.config.cached_bytes_max,
            span_max=self.config.cached_span_max,
            now_ms=self._now_ms,
            stats=self._stats[queue.topic],
        )

    async def _leave(self) -> None:
        for process_queue in self.process_queues.values():
            process_queue.drop()
        tasks = [task for _, task in self._pullers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        is_committed = False
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_COMMIT_TIMEOUT_S):
                is_committed = not (self._auto_commit and await self.commit())
        if not is_committed:
            log.warning(
                "left group=%s without a last commit: some messages will be delivered again", self.group
            )
        await self.instance.unregister(consumer_group=self.group)

    async def _persist_loop(self) -> None:
        while True:
            await asyncio.sleep(self.config.persist_interval_s)
            await self.commit()

    async def _rebalance_loop(self) -> None:
        config = self.config
        pause_s = config.retry_pause_s
        while True:
            self._rebalance_now.clear()
            if await self._rebalance():
                wait_s, pause_s = config.rebalance_interval_s, config.retry_pause_s
            else:
                wait_s, pause_s = pause_s, min(pause_s * 2, config.retry_pause_max_s)
            try:
                async with asyncio.timeout(wait_s):
                    await self._rebalance_now.wait()
            except TimeoutError:
                continue

    async def _rebalance(self) -> bool:
        """False: not balanced, try again soon."""
        if not self.subscriptions:
            return await self._assign(sorted(self._named))
        await self._find_routes()
        balanced = True
        if self._greet_again:
            self._greet_again = False
            await self.instance.heartbeat()
        for topic in self.subscriptions:
            if topic == self._retry_topic and self.instance.routes.cached(topic) is None:
                continue  # made by the broker with the first heartbeat of the group, or not at all
            queues = await self._wanted_queues(topic)
            if queues is None:
                balanced = False
                self._greet_again = True
                continue
            balanced &= await self._assign(queues, topic)
        return balanced

    async def _wanted_queues(self, topic: str) -> list[MessageQueue] | None:
        if self.is_broadcasting:
            return await all_queues(self.instance, topic)
        return await assigned_queues(self.instance, self.group, topic, self.config.allocate_strategy)

    async def _assign(self, queues: list[MessageQueue], topic: str | None = None) -> bool:
        """Reads these and no others (of one topic). False: of some it is not known yet where to begin."""
        wanted = set(queues)
        async with self._assigning:
            dropped = [queue for queue in self.queues if queue not in wanted and topic in (None, queue.topic)]
            added = [queue for queue in queues if queue not in self.process_queues]
            for queue in dropped:
                await self._drop(queue)
            begun = [await self._begin(queue) for queue in added]
        if dropped or any(begun):
            log.info("assigned group=%s queues=%s", self.group, [tuple(queue) for queue in self.queues])
            if self._on_assignment is not None:
                try:
                    self._on_assignment(self.queues)
                except Exception:
                    # It is the application's; a member must not end by it.
                    log.exception("listener failed group=%s", self.group)
        return all(begun)

    async def _begin(self, queue: MessageQueue) -> bool:
        try:
            offset = await self._first_offset(queue)
        except MQClientError as error:
            log.info("no offset queue=%s reason=%s", queue, error)
            return False
        if queue not in self.process_queues:  # else the application said meanwhile where to read
            self.read_from(queue, offset)
        return True

    async def _first_offset(self, queue: MessageQueue) -> int:
        committed = await self._offset_store.read(queue)
        if committed is not None:
            return committed
        address, api = await self.instance.master_address(queue), self.instance.api
        where = self.config.consume_from
        if where is ConsumeFromWhere.FIRST or queue.topic == self._retry_topic:
            return await api.min_offset(address, queue)
        if where is ConsumeFromWhere.TIMESTAMP:
            return await api.search_offset(address, queue, self.config.consume_timestamp_ms)
        return await api.max_offset(address, queue)

    async def _drop(self, queue: MessageQueue) -> None:
        self._paused.discard(queue)
        process_queue = self.process_queues.pop(queue)
        _, task = self._pullers.pop(queue)
        process_queue.drop()
        task.cancel()
        if self._auto_commit:
            # Before the next member asks where to begin, as far as it is in our hands.
            await self.commit([process_queue])

    async def _find_routes(self) -> None:
        for topic in self.subscriptions:
            if self.instance.routes.cached(topic) is None:
                try:
                    await self.instance.routes.refresh(topic)
                except MQClientError as error:
                    if topic not in self._routes_missed and topic != self._retry_topic:
                        self._routes_missed.add(topic)
                        log.warning("no route yet, looking on topic=%s reason=%s", topic, error)

    async def _find_retry_topic(self) -> None:
        """Asks for the group's own retry topic until there is one.

        The broker makes it with the group's first heartbeat, or with the first message that is given back, and a
        NameServer hears of it a little later: a rebalance is too rare for it. Found, the new route has us rebalance.
        """
        config, topic = self.config, self._retry_topic
        pause_s = config.retry_pause_s
        while self.instance.routes.cached(topic) is None:
            await asyncio.sleep(pause_s)
            # In the end as often as known routes are asked for: a group may have been given no retry queues.
            pause_s = min(pause_s * 2, config.poll_name_server_interval_s)
            with suppress(MQClientError):
                await self.instance.routes.route(topic)

    def _group_unknown(self) -> None:
        self._greet_again = True
        self._rebalance_now.set()

    def _route_changed(self, route: TopicRoute) -> None:
        self._rebalance_now.set()
        for queue, (puller, _) in self._pullers.items():
            master = route.master_address(queue.broker_name)
            # A leader that was paused or cut off keeps its connections open, with our pulls held in them.
            if queue.topic == route.topic and master is not None and puller.address not in ("", master):
                self.instance.remoting.abort_connection(puller.address)
        if self._on_route_change is not None:
            self._on_route_change(route)
