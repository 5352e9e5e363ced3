"""The consumer groups: how they consume, and what they may not."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from store.layout.config_json import SUBSCRIPTION_GROUPS, numbers, required_map
from store.state.table import ConfigFileTable, StateChange
from store.state.table_configs import DataVersion, SubscriptionGroupConfig


class PutSubscriptionGroup(StateChange, frozen=True):
    kind: ClassVar[int] = 3
    config: SubscriptionGroupConfig

    def pack(self) -> list[Any]:
        return [self.config.pack()]

    @classmethod
    def unpack(cls, values: list[Any]) -> Self:
        (config,) = values
        return cls(SubscriptionGroupConfig.unpack(config))


class DeleteSubscriptionGroup(StateChange, frozen=True):
    kind: ClassVar[int] = 4
    group: str
    clean_offset: bool = False  # whether its consumer offsets go too


class PutForbidden(StateChange, frozen=True):
    """What a group may not do with a topic, whatever the permissions of both: bits as in permissions."""

    kind: ClassVar[int] = 18
    group: str
    topic: str
    bits: int


class SubscriptionGroupTable(ConfigFileTable):
    """Group -> SubscriptionGroupConfig, in the order of their creation."""

    name = "subscription groups"
    changes = (PutSubscriptionGroup, DeleteSubscriptionGroup, PutForbidden)
    config_file = SUBSCRIPTION_GROUPS

    def __init__(self) -> None:
        super().__init__()
        self.configs: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}  # group -> topic -> bits

    def rows(self) -> dict[str, SubscriptionGroupConfig]:
        return dict(self.configs)

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        return self.configs.get(group)

    def attempts_max(self, group: str) -> int:
        """How often a message comes again to the group, before it is dead."""
        return (self.configs.get(group) or SubscriptionGroupConfig(group)).retry_max_times

    def forbidden_bits(self, group: str, topic: str) -> int:
        return self.forbidden.get(group, {}).get(topic, 0)

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        for change in changes:
            match change:
                case PutSubscriptionGroup(config):
                    if self.configs.get(config.group_name) == config:
                        continue
                    self.configs[config.group_name] = config
                case DeleteSubscriptionGroup(group):
                    self.forbidden.pop(group, None)
                    if self.configs.pop(group, None) is None:
                        continue
                case PutForbidden(group, topic, bits):
                    if self.forbidden_bits(group, topic) == bits:
                        continue
                    self._forbid(group, topic, bits)
            self.data_version = self.data_version.next(timestamp)

    def _forbid(self, group: str, topic: str, bits: int) -> None:
        topics = self.forbidden.setdefault(group, {})
        topics[topic] = bits
        if not bits:
            del topics[topic]
        if not topics:
            del self.forbidden[group]

    def pack(self) -> list[Any]:
        return [
            self.data_version.pack(),
            [config.pack() for config in self.configs.values()],
            [[group, list(bits.items())] for group, bits in self.forbidden.items()],
        ]

    def unpack(self, values: list[Any]) -> None:
        version, configs, forbidden = values
        self.data_version = DataVersion(*version)
        self._take(SubscriptionGroupConfig.unpack(config) for config in configs)
        self.forbidden = {group: dict(bits) for group, bits in forbidden}

    def _take(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        self.configs = {config.group_name: config for config in configs}

    def export(self) -> Callable[[], dict[str, object]]:
        rows = self.rows()
        forbidden = {group: dict(bits) for group, bits in self.forbidden.items()}
        return lambda: {
            "forbiddenTable": forbidden,
            "subscriptionGroupTable": {group: config.to_json() for group, config in rows.items()},
        }

    def read_config(self, content: Mapping[Any, Any]) -> None:
        configs = required_map(content, "subscriptionGroupTable").values()
        # 4.9 does not know it.
        forbidden = required_map(content, "forbiddenTable") if "forbiddenTable" in content else {}
        bits = {group: numbers(topics, str) for group, topics in forbidden.items()}
        self._take(SubscriptionGroupConfig.from_json(config) for config in configs)
        self.forbidden = {group: topics for group, topics in bits.items() if topics}
