"""What a scrub is told of a ledger, and what it tells the ledger."""

import msgspec

from disk.disk import Disk
from disk.mapped_file import DescriptorCache
from disk.slots import Slots
from dledger.entry import GENESIS_CHAIN, INDEX_UNIT_SIZE, Index, Pos
from dledger.log.data_files import DataFiles
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.index_files import IndexFiles
from dledger.log.log_begin import LogBegin
from dledger.log.range_read import RangeRead, next_entries, read_range, up_to_other_units
from dledger.log.scrub_job import Place


class ScrubBounds(msgspec.Struct, frozen=True):
    """What of a ledger is to be found on disk as it was written."""

    begin: Place  # before the first entry
    last_index: Index
    end_pos: Pos  # behind that entry
    end_chain: int  # of that entry
    log_generation: int  # what was read of an earlier one may have been cut meanwhile


class ScrubbedLog(LogBegin):
    """Nothing is scrubbed while a cut is under way, for it may take what would be mended."""

    log_generation: int

    @property
    def disk(self) -> Disk:
        """For files beside the ledger."""
        return self._disk

    @property
    def record_slots(self) -> tuple[Slots, Slots]:
        """Of the records beside the entries: synced mark and begin mark."""
        return self._mark_file.slots, self._mark_file.begin.slots

    @property
    def is_cutting(self) -> bool:
        return self._cutting is not None

    def scrub_bounds(self) -> ScrubBounds:
        """Up to the synced mark: what lies above it a crash may take."""
        before_index = Index(self.ledger_begin_index - 1)
        chain = self._before_begin_chain
        # Nobody remembers the chain before a log that Java's retention has begun.
        is_known = before_index < 0 or chain != GENESIS_CHAIN
        begin = Place(
            before_index,
            self._before_begin_term,
            self.ledger_begin_pos,
            chain if is_known else None,
            is_known,
        )
        return ScrubBounds(
            begin, self._mark.index, self._mark.end_pos, self._mark.chain_crc, self.log_generation
        )

    def begin_place(self) -> Place:
        """Before the first entry."""
        return self.scrub_bounds().begin

    def read_behind(self, place: Place, size_max: int) -> RangeRead:
        """Some entries behind `place`, about `size_max` bytes. In any thread. Raises DiskError."""
        config = self.config
        return read_range(
            self._disk,
            config.data_directory,
            type(self._data),
            config.data_file_size,
            place,
            lambda data, place: self._next_range(data, place, size_max),
        )

    def _next_range(self, data: DataFiles, place: Place, size_max: int) -> RangeRead:
        read = next_entries(data, place, size_max)
        if read.verified is None:
            return read
        first_index, size = read.verified.first_index, read.verified.count * INDEX_UNIT_SIZE
        return up_to_other_units(read, place, self._units_on_disk(first_index, size))

    def _units_on_disk(self, first_index: int, size: int) -> bytes:
        """In any thread; none where a file of the index is gone. Raises DiskError."""
        config = self.config
        index = IndexFiles(DescriptorCache(self._disk), config.index_directory, config.index_file_size)
        start, end = first_index * INDEX_UNIT_SIZE, first_index * INDEX_UNIT_SIZE + size
        for file_start in range(start - start % config.index_file_size, end, config.index_file_size):
            index.queue.adopt(file_start)
        try:
            return index.read(first_index, size)
        except FileNotFoundError:
            return b""
        finally:
            index.queue.close()

    def note_damage(self, faulty: FaultyRange) -> None:
        """What fault_found() does not see: entries that are sound in themselves and are not those of this history."""
        self.faults_found += 1
        self.faulty.add(faulty)

    def remake_index_file(self, path: str) -> bool:
        """Whether one of the index is gone from `path`. It is there again then, and its units are missing, which are
        written anew as they are found so. Not durably: a start without it makes the index anew. Raises OSError.
        """
        queue = self._index.queue
        gone = [mapped_file for mapped_file in queue.mapped_files if mapped_file.path == path]
        for mapped_file in gone:
            queue.remake(mapped_file.file_from_offset)
        return bool(gone)
