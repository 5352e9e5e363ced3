"""Offsets of a queue, few of which lie apart from the others: kept as ranges."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Self


class OffsetRanges:
    """Invariant: the ranges ascend, and between two of them at least one offset is missing."""

    def __init__(self, ranges: list[tuple[int, int]] | None = None) -> None:
        """`ranges`: first offset of each, and the one behind its last."""
        self._begins = [begin for begin, _ in ranges or ()]
        self._ends = [end for _, end in ranges or ()]
        self._count = sum(self._ends) - sum(self._begins)

    @classmethod
    def of(cls, offsets: Iterable[int]) -> Self:
        """Of single offsets, the fastest in ascending order."""
        ranges = cls()
        for offset in offsets:
            ranges.add(offset, offset + 1)
        return ranges

    def __len__(self) -> int:
        """How many offsets."""
        return self._count

    def __contains__(self, offset: int) -> bool:
        number = bisect_right(self._begins, offset) - 1
        return number >= 0 and offset < self._ends[number]

    def ranges(self) -> Iterator[tuple[int, int]]:
        return zip(self._begins, self._ends, strict=True)

    def first_missing(self, offset: int) -> int:
        """The first offset from `offset` on that is in no range."""
        number = bisect_right(self._begins, offset) - 1
        return max(self._ends[number], offset) if number >= 0 else offset

    def add(self, begin: int, end: int) -> None:
        """Adds the offsets from `begin` on, up to the one before `end`."""
        first, behind = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if first < behind:  # it meets these
            begin, end = min(begin, self._begins[first]), max(end, self._ends[behind - 1])
        self._count += end - begin - sum(self._ends[first:behind]) + sum(self._begins[first:behind])
        self._begins[first:behind], self._ends[first:behind] = [begin], [end]

    def take_below(self, offset: int) -> int:
        """Removes what lies below `offset`, and the range that it is in or that begins there. Returns the first offset
        from there on that is in no range.
        """
        end = self.first_missing(offset)
        number = bisect_right(self._begins, offset)
        self._count -= sum(self._ends[:number]) - sum(self._begins[:number])
        del self._begins[:number], self._ends[:number]
        return end
