"""The scrub of IndexFiles: their chains by themselves, and their entries with the keys of the log's records.

Each entry is led to once: by its slot, or by the next entry of that slot. So in a file that is right, the numbers that
are pointed at and those that are there are the same ones in the same slots, and two sums of them are equal. That takes
one pass and no memory. What the entries say is compared where the walk along the log comes by. An index that is damaged
anywhere is built anew as a whole.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import mul

import msgspec

from disk.disk import Disk
from dledger.log.scrub_job import read_from_medium
from dledger.log.scrub_walk import Finding
from message.key_columns import KeyColumns
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
    time_diff,
)


class Sums(msgspec.Struct):
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
        self, disk: Disk, path: str, shape: IndexFileShape, header: IndexHeader, start: int, size_max: int
    ) -> None:
        self.path = path
        self.start = start
        self.end = start  # once it has run
        self.size = 0
        self.sums = Sums()
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
                if read_from_medium(file, INDEX_HEADER_SIZE, 0) != self._header.pack():
                    self.fault = "its header is not what was written"
            elif self.start < shape.slots_end:
                size = self._size_max - self._size_max % HASH_SLOT_SIZE
                self.end = min(self.start + size, shape.slots_end)
                self._add_slots(read_from_medium(file, self.end - self.start, self.start))
                if self.end == shape.slots_end:
                    self.end = entry_offset(1, shape.slot_count)
            else:
                size = self._size_max - self._size_max % INDEX_ENTRY_SIZE
                self.end = min(self.start + size, entries_end)
                self._add_entries(read_from_medium(file, self.end - self.start, self.start))
        finally:
            file.close()
        self.size = self.end - self.start

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
        self._sums = Sums()
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
        return ChainJob(self._disk, file.mapped_file.path, file.shape, header, self._at, size_max)

    def settle(self, job: ChainJob) -> list[Finding]:
        if self.is_over or self._files[-1][0].mapped_file.path != job.path or self._at != job.start:
            return []
        file, header = self._files[-1]
        sums, part = self._sums, job.sums
        sums.pointing += part.pointing
        sums.pointing_by_slot += part.pointing_by_slot
        sums.there += part.there
        sums.there_by_slot += part.there_by_slot
        self._at = job.end
        fault = job.fault
        if fault is None:
            if self._at < entry_offset(header.index_count, file.shape.slot_count):
                return []
            fault = None if sums.are_equal else "its chains do not lead to each entry once"
        self._begin_file()
        if fault is not None and self._suspect is not file:
            self._suspect = file  # once more
            return []
        self._files.pop()
        if fault is None:
            return []
        self._files.clear()
        return [self._index.found_damaged(job.path, fault)]

    def _begin_file(self) -> None:
        self._at = 0
        self._sums = Sums()

    def _is_at_rest(self, file: IndexFile, header: IndexHeader) -> bool:
        """Nothing has been added since the round began, nor is being added; else the next round reads it."""
        return not file.is_deleted and file.header == header and not self._index.is_writing(file)


class KeyRun(msgspec.Struct):
    """Entries of one file as they should be."""

    file: IndexFile
    number: int  # of the first one
    rows: list[tuple[int, int, int]]  # hash, physical offset, seconds


class CompareKeysJob:
    """Fulfils ScrubJob."""

    writes = False

    def __init__(self, kind: str, disk: Disk, runs: Sequence[KeyRun]) -> None:
        self.kind = kind
        self.runs = runs
        self.size = 0
        self.fault: tuple[str, str] | None = None  # path, reason
        self._disk = disk

    def run(self) -> None:
        for run in self.runs:
            path = run.file.mapped_file.path
            try:
                file = self._disk.open(path, read_only=True)
            except FileNotFoundError:
                self.fault = path, "the file is gone"
                return
            try:
                size = INDEX_ENTRY_SIZE * len(run.rows)
                data = read_from_medium(file, size, entry_offset(run.number, run.file.shape.slot_count))
            finally:
                file.close()
            self.size += size
            for number, (found, row) in enumerate(
                zip(INDEX_ENTRY.iter_unpack(data), run.rows, strict=True), run.number
            ):
                # Java counts the first entry's seconds from the file before.
                if found[:2] != row[:2] or (found[2] != row[2] and number > 1):
                    self.fault = path, f"entry {number} says {found[:3]}, the log {row}"
                    return


class KeyRows:
    """Which entries the keys of the records are that a walk along the log comes by.

    Where it stands in the files is known from where a file begins, by the header in memory. So of a file whose first
    messages the log has lost the entries are not compared.
    """

    def __init__(self, index: IndexService) -> None:
        self.index = index
        self._next: tuple[IndexFile, int] | None = None  # the entry of the next key

    def lost_its_place(self) -> None:
        """Records were passed over."""
        self._next = None

    def runs_of(self, keys: KeyColumns) -> list[KeyRun]:
        files = self.index.index_files
        if self._next is not None and self._next[0] not in files:
            self._next = None
        if not files or not len(keys):
            return []
        phy_offsets = keys.phy_offsets
        end = bisect_right(phy_offsets, files[-1].header.end_phy_offset)
        if not end:
            self._next = None
            return []
        start = 0
        if self._next is None:
            found = self._first_begin(phy_offsets, files)
            if found is None:
                return []
            start, file = found
            self._next = file, 1
        runs: list[KeyRun] = []
        file, number = self._next
        at = files.index(file)
        while start < end:
            header = file.header
            count = min(end - start, header.index_count - number)
            rows = [
                (keys.key_hashes[row], phy_offsets[row], time_diff(timestamp, header.begin_timestamp))
                for row, timestamp in enumerate(keys.store_timestamps[start : start + count], start)
            ]
            if rows:
                runs.append(KeyRun(file, number, rows))
            start, number = start + count, number + count
            if start < end:
                if at + 1 == len(files):
                    self._next = None
                    return runs
                at, number = at + 1, 1
                file = files[at]
        # Keys that no file holds yet may be in one when the walk comes by again.
        self._next = (file, number) if end == len(phy_offsets) else None
        return runs

    @staticmethod
    def _first_begin(phy_offsets: Sequence[int], files: Sequence[IndexFile]) -> tuple[int, IndexFile] | None:
        """The first row that a file begins with. One that goes on with a message of the file before is none."""
        before = -1
        for file in files:
            begin = file.header.begin_phy_offset
            row = bisect_left(phy_offsets, begin)
            if row < len(phy_offsets) and phy_offsets[row] == begin != before:
                return row, file
            before = file.header.end_phy_offset
        return None
