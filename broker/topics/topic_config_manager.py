"""Topics of this broker: the replicated table, and the system topics that every broker has without being told.

System topics are a function of the configuration, so that a broker has them before any leader was elected. All
others are made by proposals through the log and exist from the moment they are applied here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.config.broker_config import BrokerConfig
from broker.topics.topic_attributes import BATCH_CQ, QUEUE_TYPE
from message import names
from store.state.state_proposals import OnProposed, ProposeStatus
from store.state.table_configs import PERM_INHERIT, PERM_READ, PERM_WRITE, DataVersion, TopicConfig
from store.state.tables.topic_config_table import DeleteTopic, PutTopicConfig

if TYPE_CHECKING:
    from store.message_store import MessageStore

log = logging.getLogger(__name__)

RETRY_QUEUE_NUMS = 1

OnCreated = Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """What a send needs of a topic, made once per change of the tables."""

    config: TopicConfig
    topic_bytes: bytes
    queue_limit: int  # the larger of read and write queue numbers
    is_batch: bool = field(init=False)  # whether a batch that is sent to it is stored as one record

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_batch", self.config.attributes.get(QUEUE_TYPE) == BATCH_CQ)

    def describe(self) -> str:
        """The config in the words that RocketMQ's answers use."""
        config = self.config
        perm = config.perm
        letters = f"{'R' if perm & 4 else '-'}{'W' if perm & 2 else '-'}{'X' if perm & 1 else '-'}"
        attributes = ", ".join(f"{key}={value}" for key, value in config.attributes.items())
        return (
            f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
            f"writeQueueNums={config.write_queue_nums}, perm={letters}, "
            f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
            f"order={'true' if config.order else 'false'}, attributes={{{attributes}}}]"
        )


def system_topics(config: BrokerConfig) -> dict[str, TopicConfig]:
    """Topics that exist on every broker with this configuration."""
    found = {
        names.SELF_TEST_TOPIC: (1, PERM_READ | PERM_WRITE),
        names.BENCHMARK_TOPIC: (1024, PERM_READ | PERM_WRITE),
        names.OFFSET_MOVED_EVENT: (1, PERM_READ | PERM_WRITE),
        names.SCHEDULE_TOPIC: (18, PERM_READ | PERM_WRITE),
        names.reply_topic(config.broker_cluster_name): (1, PERM_READ | PERM_WRITE),
    }
    if config.store.timer_wheel_enable:
        found[names.TIMER_TOPIC] = (1, PERM_READ | PERM_WRITE)
    if config.auto_create_topic_enable:
        template_perm = PERM_INHERIT | PERM_READ | PERM_WRITE
        found[names.AUTO_CREATE_TOPIC_KEY_TOPIC] = (config.default_topic_queue_nums, template_perm)
    for name, queue_nums, is_enabled in (
        (config.broker_cluster_name, 16, config.cluster_topic_enable),
        (config.broker_name, 1, config.broker_topic_enable),
    ):
        perm = PERM_INHERIT | (PERM_READ | PERM_WRITE if is_enabled else 0)
        found.setdefault(name, (queue_nums, perm))
    if config.trace_topic_enable:
        found.setdefault(config.msg_trace_topic_name, (1, PERM_READ | PERM_WRITE))
    return {
        name: TopicConfig(topic_name=name, read_queue_nums=nums, write_queue_nums=nums, perm=perm)
        for name, (nums, perm) in found.items()
    }


class TopicConfigManager:
    """Invariant: `entries` holds only topics that exist now and that take every send as it is."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, changed: Callable[[], None] = lambda: None
    ) -> None:
        """`changed`: a topic was made by a send or a consumer; the NameServers are to know soon."""
        self._store = store
        self._changed = changed
        self.configure(config)
        self._entries: dict[str, TopicEntry] = {}
        self._creating: dict[str, list[OnCreated]] = {}

    def configure(self, config: BrokerConfig) -> None:
        self._config = config
        self.system_topics: Mapping[str, TopicConfig] = system_topics(config)
        self._entries_version: DataVersion | None = None

    @property
    def entries(self) -> Mapping[str, TopicEntry]:
        """Topics that were looked up since the tables last changed; see entry()."""
        version = self._store.tables.topic_config_table.data_version
        if version is not self._entries_version:
            self._entries = {}
            self._entries_version = version
        return self._entries

    def entry(self, topic: str) -> TopicEntry | None:
        """A topic that exists, also kept for `entries`; None when there is none."""
        config = self.select(topic)
        if config is None:
            return None
        limit = max(config.read_queue_nums, config.write_queue_nums)
        entry = TopicEntry(config, topic.encode(), limit)
        if (
            topic not in names.NOT_ALLOWED_SEND_TOPICS
            and not topic.startswith(names.RETRY_GROUP_TOPIC_PREFIX)
            and not self.is_forbidden(config)
        ):
            self._entries[topic] = entry
        return entry

    def is_forbidden(self, config: TopicConfig) -> bool:
        """Whether the topic's order goes on at another broker, for this one is not to be written."""
        return config.order and not self._config.broker_permission & PERM_WRITE

    def select(self, topic: str) -> TopicConfig | None:
        if self._store.reads.is_deleting(topic):
            return None  # what came behind the deletion would be the next topic's of that name
        return self._store.tables.topic_config_table.get(topic) or self.system_topics.get(topic)

    def all_topics(self) -> dict[str, TopicConfig]:
        """System topics and all others, by name."""
        return {**self.system_topics, **self._store.tables.topic_config_table.configs}

    def config_from_template(self, topic: str, template: str, queue_nums: int) -> TopicConfig | None:
        """What an unknown topic would become by its sender's template; None when it must not be made."""
        config = self.select(template) if self._config.auto_create_topic_enable else None
        if config is None or not config.perm & PERM_INHERIT:
            return None
        nums = max(min(queue_nums, config.write_queue_nums), 0)
        return TopicConfig(
            topic_name=topic,
            read_queue_nums=nums,
            write_queue_nums=nums,
            perm=config.perm & ~PERM_INHERIT,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
        )

    def retry_topic_config(self, retry_topic: str, queue_nums: int = RETRY_QUEUE_NUMS) -> TopicConfig:
        return TopicConfig(
            topic_name=retry_topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=PERM_READ | PERM_WRITE,
        )

    def create(self, config: TopicConfig, on_created: OnCreated, now_ms: int) -> None:
        """Proposes a topic, once for all who ask meanwhile; on_created(True) when it exists here."""
        waiting = self._creating.setdefault(config.topic_name, [])
        waiting.append(on_created)
        if len(waiting) > 1:
            return
        log.info("topic creation proposed topic=%s queues=%d", config.topic_name, config.write_queue_nums)
        self.put(config, lambda status: self._created(config.topic_name, status), now_ms)

    def _created(self, topic: str, status: ProposeStatus) -> None:
        is_created = status is ProposeStatus.APPLIED
        if is_created:
            self._changed()
        for on_created in self._creating.pop(topic, []):
            on_created(is_created)

    def put(self, config: TopicConfig, on_done: OnProposed, now_ms: int) -> None:
        """Proposes a topic's config, new or changed."""
        self._store.propose(PutTopicConfig(config), on_done, now_ms)

    def delete(self, topic: str, on_done: OnProposed, now_ms: int) -> None:
        self._store.propose(DeleteTopic(topic), on_done, now_ms)
        self._entries.pop(topic, None)
