"""The newest entries in memory, as the batches they were appended in: dispatchers, reput and hot pulls read no disk."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from dledger.entry import Index, Pos

_DEAD_MAX = 1024
# What a batch and each of its entries cost in memory beside their bytes: many small batches are mostly that.
_BATCH_COST = 400
_ENTRY_COST = 40


class RecentBatch(msgspec.Struct, eq=False):
    """Whole entries that lie one behind the other in one data file. Nobody changes one once it is made."""

    first_index: Index
    last_index: Index
    pos: Pos  # of the first entry
    buffer: bytes
    offsets: Sequence[int]  # of each entry's header in `buffer`

    @property
    def memory_size(self) -> int:
        """Bytes of memory, about."""
        return len(self.buffer) + _BATCH_COST + _ENTRY_COST * len(self.offsets)

    @property
    def end_pos(self) -> Pos:
        return Pos(self.pos + len(self.buffer))

    def offset_of(self, index: int) -> int:
        return self.offsets[index - self.first_index]

    def end_offset_of(self, index: int) -> int:
        """Byte in `buffer` behind the entry."""
        return len(self.buffer) if index == self.last_index else self.offsets[index - self.first_index + 1]

    def begins_at(self, pos: int) -> bool:
        """Whether one of its entries does. What lies within an entry may look like one, if a client wants it to."""
        offset = pos - self.pos
        number = bisect_left(self.offsets, offset)
        return number < len(self.offsets) and self.offsets[number] == offset

    def last_index_within(self, end_pos: int) -> Index:
        """The last entry that ends at or before `end_pos`; first_index - 1 if none does."""
        if self.end_pos <= end_pos:
            return self.last_index
        return Index(self.first_index + bisect_right(self.offsets, end_pos - self.pos) - 2)

    def slice(self, first_index: int, last_index: int) -> "RecentBatch":
        """The same entries from one to the other, or itself if that is all of them."""
        if first_index <= self.first_index and last_index >= self.last_index:
            return self
        first_index = max(first_index, self.first_index)
        last_index = min(last_index, self.last_index)
        start = self.offset_of(first_index)
        low, high = first_index - self.first_index, last_index - self.first_index
        return RecentBatch(
            Index(first_index),
            Index(last_index),
            Pos(self.pos + start),
            self.buffer[start : self.end_offset_of(last_index)],
            [offset - start for offset in self.offsets[low : high + 1]],
        )


# In the place of a batch that is gone: a thousand that wait for their removal could be a gigabyte.
_GONE = RecentBatch(Index(-1), Index(-1), Pos(0), b"", ())


class RecentBatches:
    """Invariant: indexes run on from batch to batch; positions do too, except over the blank of a file's end."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size = 0  # bytes of memory
        self._batches: list[RecentBatch] = []
        self._first_indexes: list[int] = []
        self._positions: list[int] = []
        self._live = 0  # batches before this one are gone; removed from the lists now and then, in bulk

    def __len__(self) -> int:
        return len(self._batches) - self._live

    def append(self, batch: RecentBatch) -> None:
        self._batches.append(batch)
        self._first_indexes.append(batch.first_index)
        self._positions.append(batch.pos)
        self.size += batch.memory_size
        # The newest one stays in any case, so that what was just appended need not be read back.
        while self.size > self.bytes_max and len(self) > 1:
            self.size -= self._batches[self._live].memory_size
            self._batches[self._live] = _GONE
            self._live += 1
        if self._live > _DEAD_MAX:
            self._drop_dead()

    @property
    def newest(self) -> RecentBatch | None:
        return self._batches[-1] if len(self._batches) > self._live else None

    def find(self, index: int) -> RecentBatch | None:
        number = self._number_of(index)
        return self._batches[number] if number is not None else None

    def find_by_pos(self, pos: int) -> RecentBatch | None:
        number = bisect_right(self._positions, pos, lo=self._live) - 1
        if number < self._live or pos >= self._batches[number].end_pos:
            return None
        return self._batches[number]

    def run_from(self, index: int, end_pos_max: int) -> list[RecentBatch]:
        """Batches from the one that holds `index` on, those that begin before `end_pos_max`. Empty if it is gone."""
        number = self._number_of(index)
        if number is None:
            return []
        end = bisect_right(self._positions, end_pos_max - 1, lo=number + 1)
        return self._batches[number:end]

    def joined_from(self, index: int, last_index: int, size_max: int) -> RecentBatch | None:
        """Entries from `index` to `last_index` as one batch of about `size_max` bytes at most, none behind a gap in
        positions. None if `index` is gone.
        """
        number = self._number_of(index)
        if number is None:
            return None
        first = last = self._batches[number].slice(index, last_index)
        size = len(first.buffer)
        buffers, offsets = [first.buffer], [*first.offsets]
        while last.last_index < last_index and size < size_max:
            number += 1
            if number == len(self._batches) or self._batches[number].pos != last.end_pos:
                break
            last = self._batches[number].slice(index, last_index)
            buffers.append(last.buffer)
            offsets += [size + offset for offset in last.offsets]
            size += len(last.buffer)
        if last is first:
            return first
        return RecentBatch(first.first_index, last.last_index, first.pos, b"".join(buffers), offsets)

    def cut_from(self, index: int) -> None:
        """Forgets entries from `index` on."""
        while self and self._batches[-1].last_index >= index:
            batch = self._batches.pop()
            self._first_indexes.pop()
            self._positions.pop()
            self.size -= batch.memory_size
            if batch.first_index < index:
                self.append(batch.slice(batch.first_index, index - 1))
                return

    def _number_of(self, index: int) -> int | None:
        batches = self._batches
        if len(batches) == self._live or index > batches[-1].last_index:
            return None
        if index >= batches[-1].first_index:
            return len(batches) - 1
        number = bisect_right(self._first_indexes, index, lo=self._live) - 1
        return number if number >= self._live else None

    def _drop_dead(self) -> None:
        del self._batches[: self._live]
        del self._first_indexes[: self._live]
        del self._positions[: self._live]
        self._live = 0
