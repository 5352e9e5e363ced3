"""How far each delay level is delivered: the offset in its queue of the next message to deliver.

A delivery is one append: a Delivery record, and behind it, in the entries from `first_index` on, the messages that it
speaks of. A replica may get a part of the batch and no more, so the record alone moves nothing: each of its entries
that is applied moves its level by one. Which entries those are is beyond doubt. A leader appends nothing else at these
indexes in its term, and the next term begins with a no-op, which ends the count: what was cut is still to deliver.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from dledger.entry import Index
from store.layout.config_json import DELAY_OFFSETS, numbers, required_map
from store.state.table import ConfigFileTable, StateChange
from store.state.table_configs import DataVersion

# Level, offset in its queue of the first message, how many of them. None of them: the level goes on at that offset.
DeliveryRun = tuple[int, int, int]


class Delivery(StateChange, frozen=True):
    """The entries from `first_index` on, right behind this record, are delayed messages that are delivered: those of
    the first run, then those of the next.
    """

    kind: ClassVar[int] = 6
    first_index: Index
    runs: tuple[DeliveryRun, ...]

    @property
    def count(self) -> int:
        """Of messages."""
        return sum(count for _, _, count in self.runs)

    @classmethod
    def unpack(cls, values: list[Any]) -> Self:
        first_index, runs = values
        return cls(first_index, tuple((level, offset, count) for level, offset, count in runs))


class DelayOffsetTable(ConfigFileTable):
    """Level -> offset of the next message to deliver. Invariant: after settle(index) it is a function of the entries up
    to `index`, however often and where it was settled before.
    """

    name = "delay offsets"
    changes = (Delivery,)
    config_file = DELAY_OFFSETS

    def __init__(self) -> None:
        super().__init__()
        self.offsets: dict[int, int] = {}
        self.under_way: Delivery | None = None
        self._counted = 0  # messages of it that are applied

    def rows(self) -> dict[int, int]:
        return dict(self.offsets)

    def offset(self, level: int) -> int:
        return self.offsets.get(level, 0)

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        for change in changes:
            if isinstance(change, Delivery):
                self.begin(change, timestamp)

    def begin(self, delivery: Delivery, timestamp: int) -> None:
        """A Delivery record is applied; all entries before it are."""
        self.settle(Index(delivery.first_index - 2))
        self.under_way, self._counted = delivery, 0
        self.data_version = self.data_version.next(timestamp)
        self.settle(Index(delivery.first_index - 1))

    def settle(self, applied_index: Index) -> None:
        """Counts the messages of a delivery among the entries up to there, which are applied."""
        delivery = self.under_way
        if delivery is None:
            return
        applied = min(max(applied_index + 1 - delivery.first_index, self._counted), delivery.count)
        left = applied
        for level, first_offset, count in delivery.runs:
            done = min(left, count)
            if done or not count:
                self.offsets[level] = first_offset + done
            left -= done
            if done < count:
                break
        version = self.data_version
        self.data_version = DataVersion(version.counter + applied - self._counted, version.timestamp)
        self._counted = applied
        if applied == delivery.count:
            self.under_way = None

    def term_began(self, no_op_index: Index) -> None:
        """Ends the count: what is behind the no-op was not announced by the leader before."""
        self.settle(Index(no_op_index - 1))
        self.under_way = None

    def pack(self) -> list[Any]:
        delivery = self.under_way
        return [
            self.data_version.pack(),
            list(self.offsets.items()),
            [*delivery.pack(), self._counted] if delivery is not None else [],
        ]

    def unpack(self, values: list[Any]) -> None:
        version, offsets, under_way = values
        self.data_version = DataVersion(*version)
        self.offsets = dict(offsets)
        self.under_way, self._counted = None, 0
        if under_way:
            *delivery, self._counted = under_way
            self.under_way = Delivery.unpack(delivery)

    def export(self) -> Callable[[], dict[str, object]]:
        rows = dict(sorted(self.offsets.items()))
        return lambda: {"offsetTable": rows}

    def read_config(self, content: Mapping[Any, Any]) -> None:
        self.offsets = numbers(required_map(content, "offsetTable"), int)
