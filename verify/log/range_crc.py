"""CRCs of many large ranges of one file, each byte read about once however the ranges overlap.

Bytes that only look like headers may each claim the rest of their file: what they cost must not be their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zlib_ng.zlib_ng import crc32, crc32_combine

BLOCK_SIZE: Final = 16 * 1024
_READ_SIZE: Final = 256 * BLOCK_SIZE


class RangeCrc:
    """`read(offset, size)` gives the file's bytes. Raises what it raises."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        # Of [start, start + number * BLOCK_SIZE).
        self._prefixes = [0]
        self._start = 0

    def of(self, offset: int, size: int) -> int:
        """CRC-32 of [offset, offset + size), which must be in the file. Offsets that only grow cost least."""
        end = offset + size
        if offset < self._start or offset >= self._start + len(self._prefixes) * BLOCK_SIZE:
            self._start, self._prefixes = offset, [0]
        self._extend(end)
        return self._up_to(end) ^ crc32_combine(self._up_to(offset), 0, size)

    def _up_to(self, end: int) -> int:
        number = (end - self._start) // BLOCK_SIZE
        at = self._start + number * BLOCK_SIZE
        return crc32(self._read(at, end - at), self._prefixes[number])

    def _extend(self, end: int) -> None:
        """Whole blocks up to `end`."""
        at = self._start + (len(self._prefixes) - 1) * BLOCK_SIZE
        while (size := min((end - at) // BLOCK_SIZE * BLOCK_SIZE, _READ_SIZE)) > 0:
            data = memoryview(self._read(at, size))
            for start in range(0, size, BLOCK_SIZE):
                block = data[start : start + BLOCK_SIZE]
                self._prefixes.append(crc32(block, self._prefixes[-1]))
            at += size
