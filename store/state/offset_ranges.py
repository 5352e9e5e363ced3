"""Offsets of a queue, few of which lie apart from the others: kept as ranges."""

from bisect import bisect_right
from collections.abc import Iterator


class OffsetRanges:
    """Invariant: the ranges ascend, and between two of them at least one offset is missing."""

    def __init__(self, ranges: list[tuple[int, int]] | None = None) -> None:
        """`ranges`: first offset of each, and the one behind its last."""
        self._begins = [begin for begin, _ in ranges or ()]
        self._ends = [end for _, end in ranges or ()]
        self._count = sum(self._ends) - sum(self._begins)

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

    def add(self, offset: int) -> None:
        begins, ends = self._begins, self._ends
        number = bisect_right(begins, offset)
        if number and offset < ends[number - 1]:
            return
        self._count += 1
        follows = number > 0 and ends[number - 1] == offset
        precedes = number < len(begins) and begins[number] == offset + 1
        if follows and precedes:
            ends[number - 1] = ends.pop(number)
            del begins[number]
        elif follows:
            ends[number - 1] += 1
        elif precedes:
            begins[number] -= 1
        else:
            begins.insert(number, offset)
            ends.insert(number, offset + 1)

    def take_below(self, offset: int) -> int:
        """Removes what lies below `offset`, and the range that it is in or that begins there. Returns the first offset
        from there on that is in no range.
        """
        end = self.first_missing(offset)
        number = bisect_right(self._begins, offset)
        self._count -= sum(self._ends[:number]) - sum(self._begins[:number])
        del self._begins[:number], self._ends[:number]
        return end
