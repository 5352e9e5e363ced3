"""What the tables hold of a topic and of a consumer group: RocketMQ's TopicConfig and SubscriptionGroupConfig."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, TypeVar

import msgspec

from store.layout.config_json import topic_config as topic_config_json

PERM_INHERIT: Final = 0x1
PERM_WRITE: Final = 0x2
PERM_READ: Final = 0x4


@dataclass(frozen=True, slots=True)
class TopicConfig:
    topic_name: str
    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_readable(self) -> bool:
        return self.perm & PERM_READ != 0

    @property
    def is_writable(self) -> bool:
        return self.perm & PERM_WRITE != 0

    def to_json(self) -> dict[str, Any]:
        """As fastjson writes it in topics.json and in registrations."""
        return topic_config_json(
            self.topic_name,
            read_queue_nums=self.read_queue_nums,
            write_queue_nums=self.write_queue_nums,
            perm=self.perm,
            topic_filter_type=self.topic_filter_type,
            topic_sys_flag=self.topic_sys_flag,
            order=self.order,
            attributes=self.attributes,
        )

    @classmethod
    def from_json(cls, values: object) -> "TopicConfig":
        """Of topics.json; fields that an older release did not know get their defaults. Raises ValueError."""
        return _from_json(cls, values)

    def pack(self) -> list[Any]:
        return _values(self)

    @classmethod
    def unpack(cls, values: list[Any]) -> "TopicConfig":
        return cls(*values)


@dataclass(frozen=True, slots=True)
class SubscriptionGroupConfig:
    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As fastjson writes it in subscriptionGroup.json: names in alphabetical order."""
        values = {_camel(item.name): getattr(self, item.name) for item in fields(self)}
        values["groupRetryPolicy"] = {"type": "CUSTOMIZED"}
        return dict(sorted(values.items()))

    @classmethod
    def from_json(cls, values: object) -> "SubscriptionGroupConfig":
        """Of subscriptionGroup.json; as TopicConfig's."""
        return _from_json(cls, values)

    def pack(self) -> list[Any]:
        return _values(self)

    @classmethod
    def unpack(cls, values: list[Any]) -> "SubscriptionGroupConfig":
        return cls(*values)


class DataVersion(msgspec.Struct, frozen=True):
    """Of a table: which of two is newer. `timestamp` (ms) is of the record that changed it, so it is the same on all
    members. The term is no part of it here: a broker puts its own into registrations, as stateVersion.
    """

    counter: int = 0
    timestamp: int = 0

    def next(self, timestamp: int) -> "DataVersion":
        return DataVersion(self.counter + 1, timestamp)

    def pack(self) -> list[int]:
        return [self.counter, self.timestamp]

    @classmethod
    def from_json(cls, version: object) -> "DataVersion":
        """Of a file under config/; 4.9 keeps none for offsets. Raises ValueError."""
        if not isinstance(version, Mapping):
            return cls()
        counter, timestamp = version.get("counter"), version.get("timestamp")
        if type(counter) is not int or type(timestamp) is not int:
            raise ValueError(f"a dataVersion of {version!r:.80}")
        return cls(counter, timestamp)


_Config = TypeVar("_Config", TopicConfig, SubscriptionGroupConfig)


def _from_json(kind: type[_Config], values: object) -> _Config:
    if not isinstance(values, Mapping):
        raise ValueError(f"{values!r:.80} is no {kind.__name__}")
    taken: dict[str, Any] = {}
    for item in fields(kind):
        name = _camel(item.name)
        if name not in values:
            continue
        value = values[name]
        wanted = (
            dict
            if item.default_factory is not MISSING
            else str
            if item.default is MISSING
            else type(item.default)
        )
        if type(value) is not wanted:
            raise ValueError(f"{name} of a {kind.__name__} is {value!r:.80}")
        taken[item.name] = value
    try:
        return kind(**taken)
    except TypeError:
        raise ValueError(f"a {kind.__name__} without a name") from None


def _values(config: TopicConfig | SubscriptionGroupConfig) -> list[Any]:
    """Field by field, for msgpack. A later version may add fields at the end, with defaults."""
    values = [getattr(config, item.name) for item in fields(config)]
    values[-1] = dict(config.attributes)
    return values


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
