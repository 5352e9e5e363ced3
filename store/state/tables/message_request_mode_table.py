"""How consumers of a group are to get the messages of a topic, where an operator has said so: by pulls or by pops."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from store.layout.config_json import MESSAGE_REQUEST_MODES, required_map
from store.state.table import ConfigFileTable, StateChange
from store.state.table_configs import DataVersion
from store.state.tables.subscription_group_table import DeleteSubscriptionGroup
from store.state.tables.topic_config_table import DeleteTopic

PULL, POP = "PULL", "POP"
_MAP = "messageRequestModeMap"


class SetMessageRequestMode(StateChange, frozen=True):
    kind: ClassVar[int] = 26
    topic: str
    group: str
    mode: str  # PULL or POP
    # By pops: how many other clients share the queues of each; 0 or less: all clients share all queues.
    pop_share_queue_num: int


class MessageRequestModeTable(ConfigFileTable):
    name = "message request modes"
    config_file = MESSAGE_REQUEST_MODES
    changes = (SetMessageRequestMode,)
    also_takes = (DeleteTopic, DeleteSubscriptionGroup)

    def __init__(self) -> None:
        super().__init__()
        self.modes: dict[tuple[str, str], SetMessageRequestMode] = {}  # by topic and group

    def rows(self) -> dict[tuple[str, str], SetMessageRequestMode]:
        return dict(self.modes)

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        for change in changes:
            match change:
                case SetMessageRequestMode():
                    self.modes[change.topic, change.group] = change
                    self.data_version = self.data_version.next(timestamp)
                case DeleteTopic(topic):
                    self.modes = {key: mode for key, mode in self.modes.items() if key[0] != topic}
                case DeleteSubscriptionGroup(group):
                    self.modes = {key: mode for key, mode in self.modes.items() if key[1] != group}

    def pack(self) -> list[Any]:
        return [self.data_version.pack(), [mode.pack() for mode in self.modes.values()]]

    def unpack(self, values: list[Any]) -> None:
        version, modes = values
        self.data_version = DataVersion(*version)
        self.modes = {(mode[0], mode[1]): SetMessageRequestMode(*mode) for mode in modes}

    def export(self) -> Callable[[], dict[str, object]]:
        modes = list(self.modes.values())

        def as_json() -> dict[str, object]:
            by_topic: dict[str, dict[str, object]] = {}
            for mode in modes:
                by_topic.setdefault(mode.topic, {})[mode.group] = {
                    "consumerGroup": mode.group,
                    "mode": mode.mode,
                    "popShareQueueNum": mode.pop_share_queue_num,
                    "topic": mode.topic,
                }
            return {_MAP: by_topic}

        return as_json

    def read_config(self, content: Mapping[Any, Any]) -> None:
        by_topic = required_map(content, _MAP)
        self.modes = {
            (topic, group): SetMessageRequestMode(topic, group, *_read_mode(body))
            for topic in by_topic
            for group, body in required_map(by_topic, topic).items()
        }


def _read_mode(body: object) -> tuple[str, int]:
    """Raises ValueError."""
    mode, share = (
        (body.get("mode"), body.get("popShareQueueNum", 0)) if isinstance(body, Mapping) else (None, 0)
    )
    if mode not in (PULL, POP) or type(share) is not int:
        raise ValueError(f"{body!r:.80} is no message request mode")
    return mode, share
