"""The topics: their queues, permissions and attributes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from store.layout.config_json import TOPICS, required_map
from store.state.table import ConfigFileTable, StateChange
from store.state.table_configs import DataVersion, TopicConfig


class PutTopicConfig(StateChange, frozen=True):
    kind: ClassVar[int] = 1
    config: TopicConfig

    def pack(self) -> list[Any]:
        return [self.config.pack()]

    @classmethod
    def unpack(cls, values: list[Any]) -> Self:
        (config,) = values
        return cls(TopicConfig.unpack(config))


class DeleteTopic(StateChange, frozen=True):
    """With its consumer offsets. Made again, it begins empty, and its queues go on where they were: offsets never
    fall, so one that a consumer has kept from before points at no other message.
    """

    kind: ClassVar[int] = 2
    topic: str


class TopicConfigTable(ConfigFileTable):
    """Topic -> TopicConfig, in the order of their creation."""

    name = "topics"
    changes = (PutTopicConfig, DeleteTopic)
    config_file = TOPICS

    def __init__(self) -> None:
        super().__init__()
        self.configs: dict[str, TopicConfig] = {}

    def rows(self) -> dict[str, TopicConfig]:
        return dict(self.configs)

    def get(self, topic: str) -> TopicConfig | None:
        return self.configs.get(topic)

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        for change in changes:
            match change:
                case PutTopicConfig(config):
                    if self.configs.get(config.topic_name) == config:
                        continue
                    self.configs[config.topic_name] = config
                case DeleteTopic(topic):
                    if self.configs.pop(topic, None) is None:
                        continue
            self.data_version = self.data_version.next(timestamp)

    def pack(self) -> list[Any]:
        return [self.data_version.pack(), [config.pack() for config in self.configs.values()]]

    def unpack(self, values: list[Any]) -> None:
        version, configs = values
        self.data_version = DataVersion(*version)
        self._take(TopicConfig.unpack(config) for config in configs)

    def _take(self, configs: Iterable[TopicConfig]) -> None:
        self.configs = {config.topic_name: config for config in configs}

    def export(self) -> Callable[[], dict[str, object]]:
        rows = self.rows()
        return lambda: {"topicConfigTable": {topic: config.to_json() for topic, config in rows.items()}}

    def read_config(self, content: Mapping[Any, Any]) -> None:
        self._take(
            TopicConfig.from_json(value) for value in required_map(content, "topicConfigTable").values()
        )
