"""The replicated tables: topics, subscription groups, consumer offsets, delay offsets. They change by applied entries
alone.

Everything here is a function of the log: two members that have applied the same entries hold equal tables, timestamps
of the data versions included.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from store.errors import StateRecordError
from store.state.delay_offset_table import DelayOffsetTable
from store.state.state_record import (
    CommitOffset,
    DeleteSubscriptionGroup,
    DeleteTopic,
    Delivery,
    EndReset,
    PutForbidden,
    PutSubscriptionGroup,
    PutTopicConfig,
    ResetOffset,
    StateChange,
)
from store.state.table_configs import DataVersion, SubscriptionGroupConfig, TopicConfig

TOPIC_GROUP_SEPARATOR: Final = "@"


class TopicConfigTable:
    """Topic -> TopicConfig, in the order of their creation."""

    def __init__(self) -> None:
        self.configs: dict[str, TopicConfig] = {}
        self.data_version = DataVersion()

    def get(self, topic: str) -> TopicConfig | None:
        return self.configs.get(topic)

    def put(self, config: TopicConfig, timestamp: int) -> None:
        if self.configs.get(config.topic_name) != config:
            self.configs[config.topic_name] = config
            self.data_version = self.data_version.next(timestamp)

    def delete(self, topic: str, timestamp: int) -> None:
        if self.configs.pop(topic, None) is not None:
            self.data_version = self.data_version.next(timestamp)


class SubscriptionGroupTable:
    """Group -> SubscriptionGroupConfig, in the order of their creation."""

    def __init__(self) -> None:
        self.configs: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}  # group -> topic -> bits
        self.data_version = DataVersion()

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        return self.configs.get(group)

    def put(self, config: SubscriptionGroupConfig, timestamp: int) -> None:
        if self.configs.get(config.group_name) != config:
            self.configs[config.group_name] = config
            self.data_version = self.data_version.next(timestamp)

    def forbidden_bits(self, group: str, topic: str) -> int:
        return self.forbidden.get(group, {}).get(topic, 0)

    def put_forbidden(self, change: PutForbidden, timestamp: int) -> None:
        if self.forbidden_bits(change.group, change.topic) == change.bits:
            return
        topics = self.forbidden.setdefault(change.group, {})
        topics[change.topic] = change.bits
        if not change.bits:
            del topics[change.topic]
        if not topics:
            del self.forbidden[change.group]
        self.data_version = self.data_version.next(timestamp)

    def delete(self, group: str, timestamp: int) -> None:
        self.forbidden.pop(group, None)
        if self.configs.pop(group, None) is not None:
            self.data_version = self.data_version.next(timestamp)


class ConsumerOffsetTable:
    """ "topic@group" -> queue id -> next offset to consume.

    Invariant: queues in `resets` have an offset, and keep it.
    """

    def __init__(self) -> None:
        self.offsets: dict[str, dict[int, int]] = {}
        self.resets: dict[str, set[int]] = {}  # queues whose offset was reset and no consumer knows yet
        self.data_version = DataVersion()

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """-1 where the group has committed none."""
        queues = self.offsets.get(f"{topic}@{group}")
        return queues.get(queue_id, -1) if queues is not None else -1

    def commit(self, change: CommitOffset) -> None:
        key = f"{change.topic}@{change.group}"
        if self.resets and change.queue_id in self.resets.get(key, ()):
            return
        queues = self.offsets.get(key)
        if queues is None:
            queues = self.offsets[key] = {}
        queues[change.queue_id] = change.offset

    def reset(self, change: ResetOffset) -> None:
        key = f"{change.topic}@{change.group}"
        self.offsets.setdefault(key, {})[change.queue_id] = change.offset
        self.resets.setdefault(key, set()).add(change.queue_id)

    def end_reset(self, change: EndReset) -> None:
        offset = self.reset_offset(change.group, change.topic, change.queue_id)
        if change.offset not in (None, offset):
            return
        key = f"{change.topic}@{change.group}"
        marked = self.resets.get(key, set())
        marked.discard(change.queue_id)
        if not marked:
            self.resets.pop(key, None)

    def reset_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that was reset and that no consumer knows yet."""
        key = f"{topic}@{group}"
        return self.offsets[key][queue_id] if queue_id in self.resets.get(key, ()) else None

    def queues_of(self, group: str, topic: str) -> Mapping[int, int]:
        return self.offsets.get(f"{topic}@{group}", {})

    def topics_of(self, group: str) -> list[str]:
        """Topics for which the group has committed an offset."""
        keys = (key.rpartition(TOPIC_GROUP_SEPARATOR) for key in self.offsets)
        return [topic for topic, _, name in keys if name == group]

    def topics_by_group(self) -> dict[str, list[str]]:
        """topics_of() each group that has committed any: in one walk, as a broker can have many of both."""
        found: dict[str, list[str]] = {}
        for key in self.offsets:
            topic, _, group = key.rpartition(TOPIC_GROUP_SEPARATOR)
            found.setdefault(group, []).append(topic)
        return found

    def groups_of(self, topic: str) -> list[str]:
        keys = (key.rpartition(TOPIC_GROUP_SEPARATOR) for key in self.offsets)
        return [group for name, _, group in keys if name == topic]

    def delete_topic(self, topic: str) -> None:
        for group in self.groups_of(topic):
            del self.offsets[f"{topic}@{group}"]
            self.resets.pop(f"{topic}@{group}", None)

    def delete_group(self, group: str) -> None:
        for topic in self.topics_of(group):
            del self.offsets[f"{topic}@{group}"]
            self.resets.pop(f"{topic}@{group}", None)


class StateTables:
    """The four tables, applied to and saved as one."""

    def __init__(self) -> None:
        self.topic_config_table = TopicConfigTable()
        self.subscription_group_table = SubscriptionGroupTable()
        self.consumer_offset_table = ConsumerOffsetTable()
        self.delay_offset_table = DelayOffsetTable()

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        """All changes of one record, whose storeTimestamp (ms) is given."""
        offsets_changed = False
        for change in changes:
            match change:
                case CommitOffset():
                    self.consumer_offset_table.commit(change)
                    offsets_changed = True
                case ResetOffset():
                    self.consumer_offset_table.reset(change)
                    offsets_changed = True
                case EndReset():
                    self.consumer_offset_table.end_reset(change)
                case PutTopicConfig(config):
                    self.topic_config_table.put(config, timestamp)
                case DeleteTopic(topic):
                    self.topic_config_table.delete(topic, timestamp)
                    self.consumer_offset_table.delete_topic(topic)
                    offsets_changed = True
                case PutSubscriptionGroup(group_config):
                    self.subscription_group_table.put(group_config, timestamp)
                case PutForbidden():
                    self.subscription_group_table.put_forbidden(change, timestamp)
                case DeleteSubscriptionGroup(group, clean_offset):
                    self.subscription_group_table.delete(group, timestamp)
                    if clean_offset:
                        self.consumer_offset_table.delete_group(group)
                        offsets_changed = True
                case Delivery():
                    self.delay_offset_table.begin(change, timestamp)
        if offsets_changed:
            table = self.consumer_offset_table
            table.data_version = table.data_version.next(timestamp)

    def pack(self) -> list[Any]:
        """For msgpack; unpack() gives equal tables."""
        topics, groups = self.topic_config_table, self.subscription_group_table
        offsets = self.consumer_offset_table
        return [
            [topics.data_version.counter, topics.data_version.timestamp],
            [config.pack() for config in topics.configs.values()],
            [groups.data_version.counter, groups.data_version.timestamp],
            [config.pack() for config in groups.configs.values()],
            [offsets.data_version.counter, offsets.data_version.timestamp],
            # The marks only where there are some: states written before there were resets look the same.
            [
                [key, list(queues.items()), *([sorted(offsets.resets[key])] if key in offsets.resets else ())]
                for key, queues in offsets.offsets.items()
            ],
            self.delay_offset_table.pack(),
            [[group, list(bits.items())] for group, bits in groups.forbidden.items()],
        ]

    def unpack(self, values: list[Any]) -> None:
        """Replaces all that the tables hold. Raises StateRecordError; then they are as before."""
        delay_offset_table = DelayOffsetTable()
        try:
            topic_version, topics, group_version, groups, offset_version, offsets, *later = values
            forbidden: dict[str, dict[str, int]] = {}
            if later:  # states written before there were delayed messages end here
                delay_offsets, *later = later
                delay_offset_table.unpack(delay_offsets)
            if later:  # and those written before there was anything forbidden, here
                (forbidden_topics,) = later
                forbidden = {group: dict(bits) for group, bits in forbidden_topics}
            topic_configs = [TopicConfig.unpack(config) for config in topics]
            group_configs = [SubscriptionGroupConfig.unpack(config) for config in groups]
            offset_table = {key: dict(queues) for key, queues, *_ in offsets}
            resets = {key: set(marks[0]) for key, _, *marks in offsets if marks}
            versions = [DataVersion(*version) for version in (topic_version, group_version, offset_version)]
        except (ValueError, TypeError) as error:
            raise StateRecordError(f"a state of the tables that cannot be read: {error!r}") from error
        self.topic_config_table.configs = {config.topic_name: config for config in topic_configs}
        self.subscription_group_table.configs = {config.group_name: config for config in group_configs}
        self.subscription_group_table.forbidden = forbidden
        self.consumer_offset_table.offsets = offset_table
        self.consumer_offset_table.resets = resets
        self.topic_config_table.data_version = versions[0]
        self.subscription_group_table.data_version = versions[1]
        self.consumer_offset_table.data_version = versions[2]
        self.delay_offset_table = delay_offset_table
