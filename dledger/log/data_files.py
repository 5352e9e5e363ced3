"""The data files: where entries lie, byte by byte the same on all members.

An entry never crosses a file end: when it and the 8 bytes of a blank do not fit, a blank fills the file and the entry
begins the next one. Behind the last entry everything is zero.
"""

import errno
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, chain
from typing import ClassVar

import msgspec

from disk.disk import DiskError, NoSpaceError
from disk.mapped_file import DescriptorCache, MappedFile
from disk.mapped_file_queue import MappedFileQueue
from disk.readable import read_what_there_is, unreadable
from dledger.entry import (
    BLANK_HEADER,
    BLANK_HEADER_SIZE,
    BLANK_MAGIC,
    ENTRY_HEADER_SIZE,
    Pos,
    entry_size_max,
)
from dledger.log.errors import EntryTooLargeError, PositionMismatchError
from dledger.log.jobs import zero_range
from dledger.log.recent_batches import RecentBatch


class Stray(msgspec.Struct, frozen=True, eq=False):
    """Positions at which a failed append may have written. Until zeros are durable there, a power loss may bring back
    whole entries of it, with the index and the term that others get meanwhile.
    """

    start: int
    end: int


class DataFiles:
    """Invariant: bytes behind the end of the log are zero, on the medium too, except in `stray`; while there is one
    nothing is written.
    """

    head_size: ClassVar[int] = ENTRY_HEADER_SIZE  # bytes of an entry in front of its body

    def __init__(
        self, descriptors: DescriptorCache, directory: str, file_size: int, allocate_step: int
    ) -> None:
        self.queue = MappedFileQueue(descriptors, directory, file_size)
        self.file_size = file_size
        self.entry_size_max = entry_size_max(file_size)
        self.allocate_step = allocate_step
        self.allocated_to = (
            0  # position up to which the disk has set space aside; anywhere in the newest file
        )
        self.stray: Stray | None = None

    def file_end(self, pos: int) -> int:
        return pos - pos % self.file_size + self.file_size

    def blank_header(self, space_left: int) -> bytes:
        """What says that the rest of a file is empty."""
        return BLANK_HEADER.pack(BLANK_MAGIC, space_left)

    def reserve(self, end_pos: int, body_sizes: Sequence[int]) -> list[Pos]:
        """Where entries with bodies of these sizes go if the log ends at `end_pos`. Raises EntryTooLargeError."""
        file_end = self.file_end(end_pos)
        head_size = self.head_size
        size = sum(body_sizes) + head_size * len(body_sizes)
        if end_pos + size + BLANK_HEADER_SIZE <= file_end and size <= self.entry_size_max:
            entry_sizes = [body_size + head_size for body_size in body_sizes]
            del entry_sizes[-1:]
            return list(accumulate(chain((Pos(end_pos),), entry_sizes))) if body_sizes else []  # type: ignore[arg-type]
        positions: list[Pos] = []
        pos = end_pos
        for body_size in body_sizes:
            entry_size = body_size + head_size
            if entry_size > self.entry_size_max:
                raise EntryTooLargeError(
                    f"an entry of {entry_size} bytes is larger than {self.entry_size_max}, which is what data files of "
                    f"{self.file_size} bytes hold"
                )
            if pos + entry_size + BLANK_HEADER_SIZE > file_end:
                pos = file_end
                file_end += self.file_size
            positions.append(Pos(pos))
            pos += entry_size
        return positions

    def parts_of(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """Cuts positions, which ascend, at file ends: (first, behind last) as numbers into `positions`."""
        if positions[-1] < self.file_end(positions[0]):
            return [(0, len(positions))]
        parts: list[tuple[int, int]] = []
        start = 0
        while start < len(positions):
            end = bisect_left(positions, self.file_end(positions[start]), lo=start)
            parts.append((start, end))
            start = end
        return parts

    def check_follows(self, end_pos: int, pos: int, next_pos: int) -> None:
        """Raises PositionMismatchError unless a range [pos, next_pos) may be appended to a log that ends here."""
        if pos != end_pos and pos != self.file_end(end_pos):
            raise PositionMismatchError(
                f"entries at pos {pos}, but this log ends at {end_pos} and the next file begins at "
                f"{self.file_end(end_pos)}: is the data file size {self.file_size} on the other member too?"
            )
        if next_pos + BLANK_HEADER_SIZE > self.file_end(pos):
            raise PositionMismatchError(
                f"entries at pos {pos} to {next_pos} do not leave a blank in their data file of {self.file_size}"
            )

    def write(self, end_pos: int, batches: Sequence[RecentBatch]) -> list[MappedFile]:
        """Writes batches, each in one file, the first at or behind `end_pos`, and blanks where a file is left. Returns
        the files written to. Raises DiskError; then nothing but zeros is read behind `end_pos`, and NoSpaceError until
        `stray` is cleared.
        """
        if self.stray is not None:
            reason = "what an append has left that found no space is not cleared from the disk yet"
            raise NoSpaceError(errno.ENOSPC, reason, self.queue.directory)
        written: list[MappedFile] = []
        at = written_to = end_pos
        try:
            for batch in batches:
                pos, data = batch.pos, batch.buffer
                if pos != at:
                    # `at` can be a file's first byte only in an empty log, which has no file end before it.
                    left = self.queue.find_mapped_file_by_offset(at)
                    assert left is not None
                    blank = self.blank_header(pos - at)
                    written_to = at + len(blank)
                    left.file().pwrite(blank, at - left.file_from_offset)
                    if left not in written:
                        written.append(left)
                    at = pos
                mapped_file = self._file_with_space(pos, pos + len(data))
                at = written_to = pos + len(data)
                mapped_file.file().pwrite(data, pos - mapped_file.file_from_offset)
                if mapped_file not in written:
                    written.append(mapped_file)
        except DiskError:
            self.forget_from(end_pos, written_to)
            raise
        return written

    def forget_from(self, end_pos: int, written_to: int) -> None:
        """Zeroes what a failed append may have left in [end_pos, written_to), if there is space for that."""
        if written_to > end_pos:
            self.stray = Stray(end_pos, written_to)
            with suppress(DiskError):  # whoever clears it meets it again
                self.zero_stray()

    def zero_stray(self) -> list[MappedFile]:
        """Zeroes `stray`, once more if need be: a sync that comes now covers the zeros. Returns the files in which it
        lies. Raises DiskError.
        """
        stray = self.stray
        zeroed: list[MappedFile] = []
        if stray is None:
            return zeroed
        for mapped_file in self.queue.mapped_files:
            from_offset = mapped_file.file_from_offset
            first, last = max(stray.start, from_offset), min(stray.end, mapped_file.end_offset)
            if first < last:
                zero_range(mapped_file.file(), first - from_offset, last - from_offset)
                zeroed.append(mapped_file)
        return zeroed

    def stray_end(self) -> int:
        return self.stray.end if self.stray is not None else 0

    def clear_stray_by_cut(self) -> None:
        """A cut covers the range; it zeroes it durably before anything is written again."""
        self.stray = None

    def ensure_file(self, pos: int) -> MappedFile:
        """The file that holds `pos`; made now, durably, if nobody has made it ahead."""
        mapped_file = self.queue.find_mapped_file_by_offset(pos)
        if mapped_file is None:
            mapped_file = self.queue.create_mapped_file(pos - pos % self.file_size, durable=True)
        return mapped_file

    def read(self, pos: int, size: int) -> bytes:
        """Bytes within one file, for whoever proves them: what the disk does not give is no entry, nor what a file that
        somebody has cut short lacks. Fewer only where the files end.
        """
        mapped_file = self.queue.find_mapped_file_by_offset(pos)
        if mapped_file is None:
            return b""
        offset = pos - mapped_file.file_from_offset
        data = read_what_there_is(mapped_file.file(), size, offset)
        if len(data) == size:
            return data
        return data + unreadable(min(size, self.file_size - offset) - len(data))

    def read_unproved(self, pos: int, size: int) -> bytes:
        """As read(), for those who take the bytes as they are. Raises DiskError."""
        mapped_file = self.queue.find_mapped_file_by_offset(pos)
        if mapped_file is None:
            return b""
        return mapped_file.file().pread(size, pos - mapped_file.file_from_offset)

    def next_allocation(self, pos: int) -> tuple[int, int]:
        """(position, size) of the next step of space in the file that holds `pos`; size 0 when it has all."""
        start = max(self.allocated_to, pos - pos % self.file_size)
        return start, max(0, min(self.allocate_step, self.file_end(pos) - start))

    def _file_with_space(self, pos: int, end: int) -> MappedFile:
        mapped_file = self.queue.find_mapped_file_by_offset(pos) or self.ensure_file(pos)
        while self.allocated_to < end:
            start, size = self.next_allocation(pos)
            mapped_file.file().allocate(start - mapped_file.file_from_offset, size)
            self.allocated_to = start + size
        return mapped_file
