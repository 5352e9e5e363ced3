"""The consumer offsets: how far each group is in each queue."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from store.layout.config_json import CONSUMER_OFFSETS, numbers, required_map
from store.state.table import ConfigFileTable, StateChange
from store.state.table_configs import DataVersion
from store.state.tables.subscription_group_table import DeleteSubscriptionGroup
from store.state.tables.topic_config_table import DeleteTopic

TOPIC_GROUP_SEPARATOR: Final = "@"


class CommitOffset(StateChange, frozen=True):
    """`offset` is the next one to consume. It may be smaller than the one before: a reset is a commit too."""

    kind: ClassVar[int] = 5
    group: str
    topic: str
    queue_id: int
    offset: int


class ResetOffset(StateChange, frozen=True):
    """Moves a group's offset by hand. Commits of it are ignored until EndReset: they come from consumers that do not
    know yet.
    """

    kind: ClassVar[int] = 16
    group: str
    topic: str
    queue_id: int
    offset: int


class EndReset(StateChange, frozen=True):
    """A consumer has been told `offset`, which was reset. A later reset, still on its way then, is not ended by it.

    None in records of the first shape: whatever was reset counts as told.
    """

    kind: ClassVar[int] = 17
    group: str
    topic: str
    queue_id: int
    offset: int | None = None


class ConsumerOffsetTable(ConfigFileTable):
    """ "topic@group" -> queue id -> next offset to consume.

    Invariant: queues in `resets` have an offset, and keep it.
    """

    name = "consumer offsets"
    changes = (CommitOffset, ResetOffset, EndReset)
    also_takes = (DeleteTopic, DeleteSubscriptionGroup)
    config_file = CONSUMER_OFFSETS

    def __init__(self) -> None:
        super().__init__()
        self.offsets: dict[str, dict[int, int]] = {}
        self.resets: dict[str, set[int]] = {}  # queues whose offset was reset and no consumer knows yet

    def rows(self) -> dict[str, dict[int, int]]:
        return {key: dict(queues) for key, queues in self.offsets.items()}

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """-1 where the group has committed none."""
        queues = self.offsets.get(f"{topic}@{group}")
        return queues.get(queue_id, -1) if queues is not None else -1

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        is_changed = False
        for change in changes:
            match change:
                case CommitOffset():
                    self._commit(change)
                case ResetOffset():
                    self._reset(change)
                case DeleteTopic(topic):
                    self._delete_topic(topic)
                case DeleteSubscriptionGroup(group, clean_offset=True):
                    self._delete_group(group)
                case _:
                    if isinstance(change, EndReset):
                        self._end_reset(change)
                    continue
            is_changed = True
        if is_changed:
            self.data_version = self.data_version.next(timestamp)

    def _commit(self, change: CommitOffset) -> None:
        key = f"{change.topic}@{change.group}"
        if self.resets and change.queue_id in self.resets.get(key, ()):
            return
        queues = self.offsets.get(key)
        if queues is None:
            queues = self.offsets[key] = {}
        queues[change.queue_id] = change.offset

    def popped(self, group: str, topic: str, queue_id: int, offset: int, timestamp: int) -> None:
        """Moves the offset for the pop table. A pop begins at the offset as it is, so it tells of a reset."""
        key = f"{topic}@{group}"
        self.offsets.setdefault(key, {})[queue_id] = offset
        if self.resets:
            self._end_reset(EndReset(group, topic, queue_id))
        self.data_version = self.data_version.next(timestamp)

    def _reset(self, change: ResetOffset) -> None:
        key = f"{change.topic}@{change.group}"
        self.offsets.setdefault(key, {})[change.queue_id] = change.offset
        self.resets.setdefault(key, set()).add(change.queue_id)

    def _end_reset(self, change: EndReset) -> None:
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

    def _delete_topic(self, topic: str) -> None:
        for group in self.groups_of(topic):
            del self.offsets[f"{topic}@{group}"]
            self.resets.pop(f"{topic}@{group}", None)

    def _delete_group(self, group: str) -> None:
        for topic in self.topics_of(group):
            del self.offsets[f"{topic}@{group}"]
            self.resets.pop(f"{topic}@{group}", None)

    def pack(self) -> list[Any]:
        # The marks only where there are some: states written before there were resets look the same.
        return [
            self.data_version.pack(),
            [
                [key, list(queues.items()), *([sorted(self.resets[key])] if key in self.resets else ())]
                for key, queues in self.offsets.items()
            ],
        ]

    def unpack(self, values: list[Any]) -> None:
        version, offsets = values
        self.data_version = DataVersion(*version)
        self.offsets = {key: dict(queues) for key, queues, *_ in offsets}
        self.resets = {key: set(marks[0]) for key, _, *marks in offsets if marks}

    def export(self) -> Callable[[], dict[str, object]]:
        return self.export_from({})

    def export_from(self, begins: Mapping[tuple[str, str, int], int]) -> Callable[[], dict[str, object]]:
        """`begins`: where groups are to begin, by group, topic and queue, where that is before their offset."""
        rows = self.rows()
        for (group, topic, queue_id), begin in begins.items():
            queues = rows.get(f"{topic}@{group}", {})
            if begin < queues.get(queue_id, 0):
                queues[queue_id] = begin
        return lambda: {"offsetTable": rows}

    def read_config(self, content: Mapping[Any, Any]) -> None:
        offsets = {key: numbers(queues, int) for key, queues in required_map(content, "offsetTable").items()}
        self.offsets = {key: queues for key, queues in offsets.items() if queues}
