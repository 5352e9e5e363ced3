"""How consumers of a group are to get the messages of a topic, where an operator has said so: by pulls or by pops."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from store.state.table import StateChange, Table
from store.state.table_configs import DataVersion
from store.state.tables.subscription_group_table import DeleteSubscriptionGroup
from store.state.tables.topic_config_table import DeleteTopic

PULL, POP = "PULL", "POP"


@dataclass(frozen=True, slots=True)
class SetMessageRequestMode(StateChange):
    kind: ClassVar[int] = 26
    topic: str
    group: str
    mode: str  # PULL or POP
    # By pops: how many other clients share the queues of each; 0 or less: all clients share all queues.
    pop_share_queue_num: int


class MessageRequestModeTable(Table):
    name = "message request modes"
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
