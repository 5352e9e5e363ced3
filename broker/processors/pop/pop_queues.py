"""Which queues a group's consumers look into when they pop, where they begin, and which may not look at all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from broker.config.broker_config import BrokerConfig
from broker.topics.subscription_group_manager import SubscriptionGroupManager
from broker.topics.topic_config_manager import TopicConfigManager
from broker.waiting.waiting_pops import ANY_QUEUE
from message.names import HIDDEN_TOPICS, RETRY_GROUP_TOPIC_PREFIX, pop_retry_topic
from remoting.codes import FAQ, ResponseCode
from store.state.table_configs import PERM_READ
from store.state.tables.pop_queue import NO_OFFSET

if TYPE_CHECKING:
    from store.message_store import MessageStore

NOT_SERVING: Final = "[REJECTREQUEST]system busy, start flow control for a while"
# What RocketMQ's answers say where it sets no remark.
NO_REMARK: Final = "not set any response code"
INIT_MODE_MAX: Final = 1


class PopRefused(Exception):
    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class PopQueues:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        rng: random.Random,
    ) -> None:
        self.config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._random = rng
        self._offsets = store.tables.consumer_offset_table

    # -- checks, in RocketMQ's order -----------------------------------------------------------------------------

    def check_broker(self, what: str) -> None:
        """Raises PopRefused."""
        if not self._store.serving:
            raise PopRefused(ResponseCode.SYSTEM_BUSY, NOT_SERVING)
        if not self.config.broker_permission & PERM_READ:
            remark = f"the broker[{self.config.broker_ip1}] {what} is forbidden"
            raise PopRefused(ResponseCode.NO_PERMISSION, remark)

    def check_topic(self, topic: str, queue_id: int, address: str) -> None:
        """Raises PopRefused."""
        config = self._topics.select(topic)
        if config is None:
            remark = f"topic[{topic}] not exist, apply first please! {FAQ}"
            raise PopRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if topic in HIDDEN_TOPICS:
            remark = f"the topic[{topic}] holds what is not decided yet: no consumer is given it"
            raise PopRefused(ResponseCode.NO_PERMISSION, remark)
        if not config.perm & PERM_READ:
            remark = f"the topic[{topic}] peeking message is forbidden"
            raise PopRefused(ResponseCode.NO_PERMISSION, remark)
        if not ANY_QUEUE <= queue_id < config.read_queue_nums:
            remark = (
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{config.read_queue_nums}] consumer:[{address}]"
            )
            raise PopRefused(ResponseCode.INVALID_PARAMETER, remark)
        entry = self._topics.entry(topic)
        if entry is not None and entry.is_batch:
            remark = f"topic[{topic}] has queue.type=BatchCQ, whose batches cannot be popped: pull them"
            raise PopRefused(ResponseCode.INVALID_PARAMETER, remark)

    def check_group(self, group: str, now_ms: int) -> None:
        """Raises PopRefused."""
        config = self._groups.find(group, now_ms)
        if config is None:
            remark = f"subscription group [{group}] does not exist, {FAQ}"
            raise PopRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not config.consume_enable:
            raise PopRefused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")

    # -- queues ------------------------------------------------------------------------------------------------

    def queues_of(
        self, group: str, topic: str, queue_id: int, *, is_order: bool, retry_probability: int
    ) -> Iterator[tuple[str, int]]:
        """Yield the queues of the topic and of the group's retry topics; sometimes the retry topics come first. Which
        queue comes first is drawn, as RocketMQ does.
        """
        draw = self._random.randrange(100)
        retries = [
            (retry_topic, number)
            for retry_topic in self.retry_topics(group, topic, is_order=is_order)
            for number in range(self._queue_count(retry_topic))
        ]
        is_retry_first = draw < retry_probability
        if is_retry_first:
            yield from retries
        if queue_id != ANY_QUEUE:
            yield topic, queue_id
        else:
            count = self._queue_count(topic)
            yield from ((topic, (count - 1 - number + draw) % count) for number in range(count))
        if not is_retry_first:
            yield from retries

    def _queue_count(self, topic: str) -> int:
        config = self._topics.select(topic)
        return config.read_queue_nums if config is not None else 0

    def retry_topics(self, group: str, topic: str, *, is_order: bool) -> tuple[str, ...]:
        """FIFO consumers have none: their messages stay where they are."""
        if is_order or topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return ()
        v1, v2 = pop_retry_topic(group, topic), pop_retry_topic(group, topic, v2=True)
        if not self.config.enable_retry_topic_v2:
            return (v1,)
        return (v2, v1) if self.config.retrieve_message_from_pop_retry_topic_v1 else (v2,)

    def offset(self, group: str, topic: str, queue_id: int, init_mode: int) -> int:
        """Return the group's offset; if it has none, where it begins."""
        offset = self._offsets.query(group, topic, queue_id)
        return offset if offset != NO_OFFSET else self.init_offset(topic, queue_id, init_mode)

    def init_offset(self, topic: str, queue_id: int, init_mode: int) -> int:
        """Return where a group without an offset begins."""
        reads = self._store.reads
        low, high = reads.min_offset(topic, queue_id), reads.max_offset(topic, queue_id)
        if init_mode != INIT_MODE_MAX or topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return low
        if low <= 0 and reads.is_in_memory(topic, queue_id, 0):
            return 0
        return max(high - 1, 0)
