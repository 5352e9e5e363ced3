"""How far consumers are: progress and lag of groups (208, 317), who consumes what (300, 343), how old what waits is
(303).

Every figure of one answer is of one moment: nothing is applied while it is put together. All groups of a broker (317)
can be too much to tell in one go: there each topic of each group is of one moment, and a tick goes on where the one
before it stopped. A consumer that has committed an offset behind the end of its queue counts as being at the end, so
that no lag is negative.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from broker.answers import Request, answer_error
from broker.broker_stats import BrokerStats
from broker.clients.consumer_manager import ConsumerManager
from broker.config.broker_config import BrokerConfig
from broker.topics.topic_config_manager import TopicConfigManager
from disk.disk import DiskError
from remoting.bodies import admin_bodies, bodies
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from remoting.headers import admin_headers
from store.errors import StoreError

if TYPE_CHECKING:
    from store.message_store import MessageStore

# Of a walk over all groups, at some 20 us each to look up and to write down: a leader must not be kept from its
# followers. Those of one topic and group are told together, so it can be 4,096 more.
QUEUES_PER_TICK: Final = 500
# Waiting and under way: an answer can have megabytes, and one client could have all others wait for hours.
WALKS_MAX: Final = 16


class _Walk(msgspec.Struct):
    """An answer to GET_BROKER_CONSUME_STATS that is being put together."""

    request: Request[admin_headers.GetConsumeStatsInBrokerHeader]
    is_order: bool
    body: admin_bodies.ConsumeStatsList
    encoded: list[dict[str, list[bytes]]] = msgspec.field(default_factory=list)  # the list of the body


class ConsumeStatsProcessor:
    """Invariant: of all walks the first alone goes on, by a tick's worth at a time."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        consumers: ConsumerManager,
        stats: BrokerStats,
    ) -> None:
        self._broker_name = config.broker_name
        self._broker_addr = config.broker_addr
        self._store = store
        self._topics = topics
        self._consumers = consumers
        self._stats = stats
        self._walks: deque[tuple[_Walk, Iterator[int]]] = deque()

    def get_consume_stats(
        self, request: Request[admin_headers.GetConsumeStatsRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        group = header.consumer_group
        if header.topic:
            topics = [header.topic]
        elif header.topic_list:
            topics = [topic for topic in header.topic_list.split(";") if topic]
        else:
            topics = self._store.tables.consumer_offset_table.topics_of(group)
        subscriptions = self._consumers.subscriptions(group)
        body = admin_bodies.ConsumeStats()
        for topic in topics:
            if subscriptions and topic not in subscriptions:
                continue  # consumed once, and no more
            body.offset_table.update(self._progress(group, topic))
            body.consume_tps += self._stats.group_get_tps(topic, group)
        request.answer(body=body)

    def get_broker_consume_stats(
        self, request: Request[admin_headers.GetConsumeStatsInBrokerHeader], now_ms: int
    ) -> None:
        header = request.header
        if len(self._walks) >= WALKS_MAX:
            remark = (
                f"{len(self._walks)} answers about all groups are being put together, {WALKS_MAX} are allowed: "
                "ask again later"
            )
            request.answer(ResponseCode.SYSTEM_BUSY, remark)
            return
        body = admin_bodies.ConsumeStatsList(broker_addr=self._broker_addr, total_inflight_diff=0)
        walk = _Walk(request, header.is_order, body)
        self._walks.append((walk, self._steps(walk)))
        if len(self._walks) == 1:
            self.tick()

    @property
    def has_work(self) -> bool:
        """For the next tick."""
        return bool(self._walks)

    def tick(self) -> None:
        """Every 10 ms or so."""
        left = QUEUES_PER_TICK
        while self._walks:
            walk, steps = self._walks[0]
            try:
                for count in steps:
                    left -= count
                    if left <= 0:
                        return
                walk.request.answer(body=walk.body.encode_with(walk.encoded))
            except (RemotingError, StoreError, DiskError) as error:
                answer_error(walk.request, error)
            self._walks.popleft()

    def _steps(self, walk: _Walk) -> Iterator[int]:
        """One topic of one group after the other, each with the number of its queues. Between two steps any of them may
        be deleted.
        """
        body, group_table = walk.body, self._store.tables.subscription_group_table
        topics_by_group = self._store.tables.consumer_offset_table.topics_by_group()
        for group in list(group_table.configs):
            found: list[bytes] = []
            for topic in topics_by_group.get(group, ()):
                if not walk.request.channel.is_open:
                    return
                config = self._topics.select(topic)
                if config is None or (walk.is_order and not config.order):
                    continue
                if group_table.get(group) is None:
                    break
                offset_table = self._progress(group, topic)
                if not offset_table:
                    continue
                tps = self._stats.group_get_tps(topic, group)
                found.append(admin_bodies.ConsumeStats(offset_table=offset_table, consume_tps=tps).encode())
                for offsets in offset_table.values():
                    body.total_diff += offsets.broker_offset - offsets.consumer_offset
                    in_flight = (offsets.pull_offset or 0) - offsets.consumer_offset
                    body.total_inflight_diff = (body.total_inflight_diff or 0) + in_flight
                yield len(offset_table)
            walk.encoded.append({group: found})

    def query_topic_consume_by_who(
        self, request: Request[admin_headers.QueryTopicConsumeByWhoRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        topic = header.topic
        online = [group for group, info in self._consumers.groups.items() if topic in info.subscriptions]
        groups = dict.fromkeys([*online, *self._store.tables.consumer_offset_table.groups_of(topic)])
        request.answer(body=admin_bodies.GroupList(group_list=list(groups)))

    def query_topics_by_consumer(
        self, request: Request[admin_headers.QueryTopicsByConsumerRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        topics = self._store.tables.consumer_offset_table.topics_of(header.group)
        body = bodies.TopicList(topic_list=topics, broker_addr=self._broker_addr)
        request.answer(body=body)

    def query_consume_time_span(
        self, request: Request[admin_headers.QueryConsumeTimeSpanRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        topic, store = header.topic, self._store
        config = self._topics.select(topic)
        if config is None:
            request.answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
            return
        spans = []
        for queue_id in range(config.write_queue_nums):
            first, end = store.reads.min_offset(topic, queue_id), store.reads.max_offset(topic, queue_id)
            begun_ms = store.reads.store_timestamp(topic, queue_id, first)
            offset = min(store.reads.query_offset(header.group, topic, queue_id), end)
            consumed_ms = (
                store.reads.store_timestamp(topic, queue_id, offset - 1) if offset > first else begun_ms
            )
            waits_since_ms = store.reads.store_timestamp(topic, queue_id, max(offset, first))
            spans.append(
                admin_bodies.QueueTimeSpan(
                    message_queue=self._queue(topic, queue_id),
                    min_time_stamp=begun_ms,
                    max_time_stamp=store.reads.store_timestamp(topic, queue_id, end - 1),
                    consume_time_stamp=consumed_ms,
                    delay_time=max(now_ms - waits_since_ms, 0) if waits_since_ms >= 0 else 0,
                )
            )
        request.answer(body=admin_bodies.QueryConsumeTimeSpanBody(consume_time_span_set=spans))

    def _progress(self, group: str, topic: str) -> dict[bodies.MessageQueue, admin_bodies.OffsetWrapper]:
        """Each queue of a topic that exists."""
        config, store = self._topics.select(topic), self._store
        progress = {}
        for queue_id in range(config.read_queue_nums if config is not None else 0):
            end = store.reads.max_offset(topic, queue_id)
            begin = store.reads.begin_offset(topic, queue_id) or 0
            offset = min(max(store.reads.query_offset(group, topic, queue_id), begin), end)
            last_ms = store.reads.store_timestamp(topic, queue_id, offset - 1) if offset else 0
            pulled = self._stats.pull_offset(group, topic, queue_id)
            progress[self._queue(topic, queue_id)] = admin_bodies.OffsetWrapper(
                broker_offset=end,
                consumer_offset=offset,
                pull_offset=min(max(offset, pulled), end),
                last_timestamp=max(last_ms, 0),
            )
        return progress

    def _queue(self, topic: str, queue_id: int) -> bodies.MessageQueue:
        return bodies.MessageQueue(topic=topic, broker_name=self._broker_name, queue_id=queue_id)
