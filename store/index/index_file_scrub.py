"""The scrub of IndexFiles: their chains by themselves, and a file that is full with its sum.

Each entry is led to once: by its slot, or by the next entry of that slot. So in a file that is right, the numbers that
are pointed at and those that are there are the same ones in the same slots, and two sums of them are equal. That takes
one pass and no memory. A full file never changes again: the first round that finds its chains right takes a CRC-32 of
it, and later ones compare. An index that is damaged anywhere is built anew as a whole.
"""

from operator import mul
from zlib import crc32

import msgspec

from disk.disk import Disk, File
from dledger.log.scrub_job import read_from_medium
from dledger.log.scrub_walk import Finding
from store.index.index_file import IndexFile, slots_of
from store.index.index_service import IndexService
from store.layout.index_file import (
    HASH_SLOT_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    IndexFileShape,
    IndexHeader,
    entry_offset,
)


class ChainSums(msgspec.Struct):
    """Of numbers of entries, and of numbers times slots; equal where chains are whole."""

    pointing: int = 0
    pointing_by_slot: int = 0
    there: int = 0
    there_by_slot: int = 0

    @property
    def are_equal(self) -> bool:
        return (self.pointing, self.pointing_by_slot) == (self.there, self.there_by_slot)


class ChainJob:
    """Fulfils ScrubJob: the part of one file from byte `start` on."""

    kind = "scrub"
    writes = False

    def __init__(
        self,
        disk: Disk,
        path: str,
        shape: IndexFileShape,
        header: IndexHeader,
        start: int,
        crc: int,
        size_max: int,
    ) -> None:
        self.path = path
        self.crc = crc  # of all that lies in front of `start`; of what is read as well, once it has run
        self.start = start
        self.end = start  # once it has run
        self.size = 0
        self.sums = ChainSums()
        self.fault: str | None = None
        self._disk = disk
        self._shape = shape
        self._header = header
        self._size_max = size_max

    def run(self) -> None:
        try:
            file = self._disk.open(self.path, read_only=True)
        except FileNotFoundError:
            self.fault = "the file is gone"
            return
        try:
            shape = self._shape
            entries_end = entry_offset(self._header.index_count, shape.slot_count)
            if self.start < INDEX_HEADER_SIZE:
                self.end = INDEX_HEADER_SIZE
                if self._read(file, INDEX_HEADER_SIZE) != self._header.pack():
                    self.fault = "its header is not what was written"
            elif self.start < shape.slots_end:
                size = self._size_max - self._size_max % HASH_SLOT_SIZE
                self.end = min(self.start + size, shape.slots_end)
                self._add_slots(self._read(file, self.end - self.start))
                if self.end == shape.slots_end:
                    self.end = entry_offset(1, shape.slot_count)
            else:
                size = self._size_max - self._size_max % INDEX_ENTRY_SIZE
                self.end = min(self.start + size, entries_end)
                self._add_entries(self._read(file, self.end - self.start))
        finally:
            file.close()
        self.size = self.end - self.start

    def _read(self, file: File, size: int) -> bytes:
        data = read_from_medium(file, size, self.start)
        self.crc = crc32(data, self.crc)
        return data

    def _add_slots(self, data: bytes) -> None:
        if data.count(0) == len(data):
            return
        slots = slots_of(data)
        first = (self.start - INDEX_HEADER_SIZE) // HASH_SLOT_SIZE
        self.sums.pointing = sum(slots)
        self.sums.pointing_by_slot = sum(map(mul, slots, range(first, first + len(slots))))

    def _add_entries(self, data: bytes) -> None:
        sums, slot_count = self.sums, self._shape.slot_count
        first = (self.start - entry_offset(0, slot_count)) // INDEX_ENTRY_SIZE
        low, high = self._header.begin_phy_offset, self._header.end_phy_offset
        for number, (key_hash, phy_offset, _, previous) in enumerate(INDEX_ENTRY.iter_unpack(data), first):
            if not (low <= phy_offset <= high and 0 <= previous < number):
                self.fault = f"entry {number} says physical offset {phy_offset}, before it {previous}"
                return
            low, slot = phy_offset, key_hash % slot_count
            sums.there += number
            sums.there_by_slot += number * slot
            sums.pointing += previous
            sums.pointing_by_slot += previous * slot


class ChainScrub:
    """Fulfils ScrubWalk."""

    def __init__(self, disk: Disk, index: IndexService) -> None:
        self._disk = disk
        self._index = index
        self._files: list[tuple[IndexFile, IndexHeader]] = []  # still to be read, the next one last
        self._at = 0
        self._crc = 0
        self._sums = ChainSums()
        self._suspect: IndexFile | None = None  # a first reading found it damaged

    @property
    def size(self) -> int:
        return sum(
            entry_offset(file.header.index_count, file.shape.slot_count) for file in self._index.index_files
        )

    def begin_round(self) -> None:
        self._files = [(file, file.header) for file in self._index.index_files]
        self._suspect = None
        self._begin_file()

    @property
    def is_over(self) -> bool:
        while self._files and not self._is_at_rest(*self._files[-1]):
            self._files.pop()
            self._begin_file()
        return not self._files

    def next_job(self, size_max: int) -> ChainJob:
        file, header = self._files[-1]
        return ChainJob(self._disk, file.mapped_file.path, file.shape, header, self._at, self._crc, size_max)

    def settle(self, job: ChainJob) -> list[Finding]:
        if self.is_over or self._files[-1][0].mapped_file.path != job.path or self._at != job.start:
            return []
        file, header = self._files[-1]
        sums, part = self._sums, job.sums
        sums.pointing += part.pointing
        sums.pointing_by_slot += part.pointing_by_slot
        sums.there += part.there
        sums.there_by_slot += part.there_by_slot
        self._at, self._crc = job.end, job.crc
        fault = job.fault
        if fault is None:
            if self._at < entry_offset(header.index_count, file.shape.slot_count):
                return []
            fault = self._fault_of(file) if sums.are_equal else "its chains do not lead to each entry once"
        self._begin_file()
        if fault is not None and self._suspect is not file:
            self._suspect = file  # once more
            return []
        self._files.pop()
        if fault is None:
            return []
        self._files.clear()
        return [self._index.found_damaged(job.path, fault)]

    def _fault_of(self, file: IndexFile) -> str | None:
        """Of one whose chains are right."""
        if file.header.index_count < file.shape.index_count_max:
            return None
        if file.sum is None:
            file.sum = self._crc
        return None if file.sum == self._crc else "it is full, and not as it was"

    def _begin_file(self) -> None:
        self._at = 0
        self._crc = 0
        self._sums = ChainSums()

    def _is_at_rest(self, file: IndexFile, header: IndexHeader) -> bool:
        """Nothing has been added since the round began, nor is being added; else the next round reads it."""
        return not file.is_deleted and file.header == header and not self._index.is_writing(file)
