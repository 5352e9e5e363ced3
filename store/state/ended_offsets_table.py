"""Which messages of a queue have ended: those that wait there for something, and do not any more.

An end is one append: a record, and behind it, in the entries from `first_index` on, what the messages become. A replica
may get a part of the batch and no more. So a message that becomes another one has ended when that is applied, and not
before; one that becomes nothing ends with the record. Which entries those are is beyond doubt, as in
delay_offset_table.py: the no-op of the next term ends the count, and what was cut still waits.
"""

from collections.abc import Sequence
from typing import Any, Final, Self

from dledger.entry import Index
from store.state.offset_ranges import OffsetRanges
from store.state.table import StateChange, Table
from store.state.table_configs import DataVersion

# In the place of the first offset that waits: nobody has looked yet at what RocketMQ may have left in the store.
NOT_TAKEN_OVER: Final = -1


class EndOffsets(StateChange, frozen=True):
    """The entries from `first_index` on, right behind this record, are what the messages at the queue offsets
    `delivered` become, one for each, in this order. Those at `dropped` become nothing. None below `begin` waits any
    more.
    """

    first_index: Index
    delivered: tuple[int, ...]
    dropped: tuple[tuple[int, int], ...]
    begin: int

    def pack(self) -> list[Any]:
        return [self.first_index, self.delivered, self.dropped, self.begin]

    @classmethod
    def unpack(cls, values: list[Any]) -> Self:
        first_index, delivered, dropped, begin = values
        # The first logs with timers and transactions name single offsets.
        ranges = tuple((end, end + 1) if isinstance(end, int) else (end[0], end[1]) for end in dropped)
        return cls(first_index, tuple(delivered), ranges, begin)


class EndedOffsetsTable(Table):
    """Invariant: after settle(index) it is a function of the entries up to `index`, however often and where it was
    settled before. It holds what has ended behind the first message that waits: below that all have.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first_waiting = NOT_TAKEN_OVER  # offset of the first message that may wait
        self._ended = OffsetRanges()  # behind it
        self.under_way: EndOffsets | None = None
        self._counted = 0  # messages of it that are applied

    @property
    def ended_count(self) -> int:
        """Of messages behind the first that waits."""
        return len(self._ended)

    def is_ended(self, offset: int) -> bool:
        return offset < self.first_waiting or offset in self._ended

    def next_waiting(self, offset: int) -> int:
        """The first offset from `offset` on that has not ended."""
        return self._ended.first_missing(max(offset, self.first_waiting))

    def rows(self) -> dict[int, int]:
        """Ranges of what has ended; -1: the first offset that waits."""
        return {-1: self.first_waiting, **dict(self._ended.ranges())}

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        for change in changes:
            if isinstance(change, EndOffsets):
                self.data_version = self.data_version.next(timestamp)
                self.begin(change)

    def begin(self, change: EndOffsets) -> None:
        """The record is applied; all entries before it are."""
        self.settle(Index(change.first_index - 2))
        self.under_way, self._counted = change, 0
        for low, high in change.dropped:
            self._end(low, high)
        self._advance(change.begin)
        self.settle(Index(change.first_index - 1))

    def settle(self, applied_index: Index) -> None:
        """Counts the messages of an end among the entries up to there, which are applied."""
        change = self.under_way
        if change is None:
            return
        count = len(change.delivered)
        applied = min(max(applied_index + 1 - change.first_index, self._counted), count)
        for offset in change.delivered[self._counted : applied]:
            self._end(offset, offset + 1)
        self._advance(self.first_waiting)
        self._counted = applied
        if applied == count:
            self.under_way = None

    def term_began(self, no_op_index: Index) -> None:
        """Ends the count: what is behind the no-op was not announced by the leader before."""
        self.settle(Index(no_op_index - 1))
        self.under_way = None

    def _end(self, low: int, high: int) -> None:
        if high > self.first_waiting:
            self._ended.add(max(low, self.first_waiting), high)

    def _advance(self, begin: int) -> None:
        self.first_waiting = self._ended.take_below(max(begin, self.first_waiting))

    def pack(self) -> list[Any]:
        change = self.under_way
        return [
            self.data_version.pack(),
            self.first_waiting,
            list(self._ended.ranges()),
            [*change.pack(), self._counted] if change is not None else [],
        ]

    def unpack(self, values: list[Any]) -> None:
        version, self.first_waiting, ranges, under_way = values
        self.data_version = DataVersion(*version)
        self._ended = OffsetRanges([(begin, end) for begin, end in ranges])
        self.under_way, self._counted = None, 0
        if under_way:
            *change, self._counted = under_way
            self.under_way = EndOffsets.unpack(change)
