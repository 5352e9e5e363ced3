"""What the units of one queue should be: the CRC-32 of each block of them.

The sums are of the units as they were dispatched, and are written beside each checkpoint (sums_file.py). A block begins
with a file or 1,024 units behind the begin of the one in front.
"""

from array import array
from typing import Final
from zlib import crc32

BLOCK_UNITS: Final = 1024

PackedSums = tuple[int, int, bytes]  # end, number of the first block, four bytes for each block


class UnitSums:
    """Invariant: there is a sum for each block up to unit `end`; the last one is of the units in front of `end` alone.
    0 stands for one that is not known.
    """

    __slots__ = ("_blocks_per_file", "_first_block", "_sums", "_unit_size", "_units_per_file", "end")

    def __init__(self, unit_size: int, units_per_file: int) -> None:
        self.end = 0
        self._unit_size = unit_size
        self._units_per_file = units_per_file
        self._blocks_per_file = -(-units_per_file // BLOCK_UNITS)
        self._first_block = 0
        self._sums = array("I")

    def block_of(self, number: int) -> int:
        """The block in which the unit lies."""
        file_number, in_file = divmod(number, self._units_per_file)
        return file_number * self._blocks_per_file + in_file // BLOCK_UNITS

    def bounds(self, block: int) -> tuple[int, int]:
        """The first unit of a block, and the one behind its last."""
        file_number, in_file = divmod(block, self._blocks_per_file)
        file_start = file_number * self._units_per_file
        first = file_start + in_file * BLOCK_UNITS
        return first, min(first + BLOCK_UNITS, file_start + self._units_per_file)

    def begin(self, first: int, end: int, packed: PackedSums | None = None) -> None:
        """The queue has the units from `first` to `end`. Of their blocks those are known that `packed` has."""
        self.end = end
        self._first_block = self.block_of(first)
        count = 0
        if end > self.bounds(self._first_block)[0]:
            count = self.block_of(end - 1) + 1 - self._first_block
        self._sums = array("I", bytes(4 * count))
        if packed is None:
            return
        packed_end, packed_first_block, sums = packed
        for block, value in enumerate(array("I", sums), packed_first_block):
            block_end = self.bounds(block)[1]
            if min(block_end, packed_end) == min(block_end, end):
                self.set(block, value)

    def add(self, units: bytes | bytearray) -> None:
        """The units behind `end`."""
        view = memoryview(units)
        while view:
            first, block_end = self.bounds(self.block_of(self.end))
            part = view[: (block_end - self.end) * self._unit_size]
            if self.end == first:
                self._sums.append(crc32(part))
            elif self._sums[-1]:
                self._sums[-1] = crc32(part, self._sums[-1])
            self.end += len(part) // self._unit_size
            view = view[len(part) :]

    def is_known_to(self, end: int) -> bool:
        """Whether the last block in front of unit `end` has a sum that goes no further."""
        return end == self.end or end == self.bounds(self.block_of(end - 1))[1]

    def get(self, block: int) -> int:
        """0: it is not known."""
        at = block - self._first_block
        return self._sums[at] if 0 <= at < len(self._sums) else 0

    def set(self, block: int, value: int) -> None:
        at = block - self._first_block
        if 0 <= at < len(self._sums):
            self._sums[at] = value

    def pack(self, first: int) -> PackedSums:
        """Forgets the blocks in front of unit `first`."""
        count = min(max(0, self.block_of(first) - self._first_block), len(self._sums))
        del self._sums[:count]
        self._first_block += count
        return self.end, self._first_block, self._sums.tobytes()
