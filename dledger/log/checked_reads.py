"""What leaves the ledger for a peer, a reader or reput is proved as it is read, or lies in memory as it was written.

A cold range costs about a microsecond per entry for its CRCs and the chain; term and chain of a single cold entry cost
two reads of a header, for the chain of the entry in front proves all of a header. What is found damaged is noted, and
from then on refused without a look, until it is repaired.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from disk.disk import DiskError
from disk.mapped_file import MappedFile
from dledger.core.messages import EntryRange, LedgerBegin
from dledger.entry import (
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    GENESIS_CHAIN,
    INDEX_UNIT_SIZE,
    EntryCorruptError,
    EntryFault,
    Index,
    IndexUnit,
    Pos,
    chain_after,
    index_units_of,
    parse_header,
    unit_of_sound_entry,
    verify_entries,
)
from dledger.errors import FaultyEntryError
from dledger.log.data_files import DataFiles
from dledger.log.errors import LedgerDamagedError
from dledger.log.fault_finder import Anchor, FaultFinder, end_anchor
from dledger.log.faulty_ranges import FaultyRange, FaultyRanges, FaultyRangesFile
from dledger.log.index_files import IndexFiles
from dledger.log.jobs import NoteFaultsJob
from dledger.log.log_reader import LogReader, chain_crc_at
from dledger.log.log_repair import RangeRepair
from dledger.log.recent_batches import RecentBatch, RecentBatches
from dledger.log.synced_mark import SyncedMark
from dledger.log.term_runs import TermRuns

log = logging.getLogger(__name__)

_Read = TypeVar("_Read")

# Units read at once for bodies that are not next to each other: 16 KiB cost about what a second read does.
_UNITS_READ = 512


class CheckedReads(LogReader):
    """Invariant: no read returns bytes of an entry in `faulty`, and none from a disk that are not proved."""

    def __init__(
        self,
        data: DataFiles,
        index: IndexFiles,
        recent: RecentBatches,
        term_runs: TermRuns,
        *,
        begin_index: Index,
        mark: SyncedMark,
        faulty: tuple[FaultyRange, ...],
        faulty_file: FaultyRangesFile,
    ) -> None:
        super().__init__(data, index, recent, term_runs, begin_index=begin_index, mark=mark)
        self.faulty = FaultyRanges(faulty)
        self._faulty_file = faulty_file
        self._noting: NoteFaultsJob | None = None
        self.faulty.keep_within(begin_index, mark.begin_pos, self.ledger_end_index, self.ledger_end_pos)
        self.faults_found = 0  # ranges, since the start
        self._dirty_data: list[MappedFile] = []  # written since the last sync job was made; held
        self._dirty_index: list[MappedFile] = []  # written since the last mark job was made; held

    @property
    def has_faults(self) -> bool:
        return len(self.faulty) > 0

    @property
    def ends_in_damage(self) -> bool:
        """Where it ends nobody can tell: entries behind the last one that is known may have gone with it."""
        return self.faulty.first_within(self.ledger_end_index, self.ledger_end_index) is not None

    def fault_found(self, first_index: int, last_index: int) -> list[FaultyRange]:
        """Somebody has read one of these entries and it was not sound. Looks at them and the index units, and notes
        what is damaged: that is returned. Units that contradict sound entries are right when this returns. Blocks for
        as long as it takes to read the entries. Raises DiskError.
        """
        found = self._examine(first_index, last_index)
        for faulty in found:
            if self.faulty.first_within(faulty.first_index, faulty.last_index) is None:
                self.faults_found += 1
                log.error(
                    "damage found %s size=%d directory=%s", faulty, faulty.size, self._data.queue.directory
                )
            self.faulty.add(faulty)
        return found

    def repaired_in_part(self, faulty: FaultyRange) -> None:
        """Some of the range has been written and is durable: what of it is still damaged takes its place. Blocks as
        fault_found() does. Raises DiskError.
        """
        if faulty.last_index == self.ledger_end_index and not self._ends_as_remembered():
            return  # nothing behind it proves that entries which are sound in themselves are those of this log
        rest = self._examine(faulty.first_index, faulty.last_index + 1)
        self.faulty.remove(faulty)
        for still_faulty in rest:
            self.faulty.add(still_faulty)

    def _examine(self, first_index: int, last_index: int) -> list[FaultyRange]:
        """Damage among these entries. Units and blanks that are not right are written."""
        begin = Anchor(
            Index(self.ledger_begin_index - 1),
            self._before_begin_term,
            self.ledger_begin_pos,
            self._before_begin_chain,
        )
        finder = FaultFinder(self._data, self._index, begin, end_anchor(self), self._term_runs)
        found = finder.examine(
            max(first_index, self.ledger_begin_index), min(last_index, self.ledger_end_index)
        )
        for mapped_file in finder.repaired:
            dirty = self._dirty_index if mapped_file in self._index.queue.mapped_files else self._dirty_data
            if mapped_file not in dirty:
                mapped_file.hold()
                dirty.append(mapped_file)
        return found

    def _ends_as_remembered(self) -> bool:
        try:
            pos = self._index.unit(self.ledger_end_index).pos
        except LedgerDamagedError:
            return False
        header = self._data.read(pos, ENTRY_HEADER_SIZE)
        return len(header) == ENTRY_HEADER_SIZE and chain_crc_at(header, 0) == self.ledger_end_chain

    def fault_found_at(self, pos: int) -> list[FaultyRange]:
        """As fault_found(), where all that is known is a position."""
        index = self.first_index_at(pos)
        return self.fault_found(index - 1, index + 1)

    def is_noted(self, faulty: FaultyRange) -> bool:
        """Whether a start would know of this damage: it may not believe in a repair that was only just written."""
        return self._noting is None and faulty in self._faulty_file.ranges

    def range_repair(
        self, faulty: FaultyRange, committed_index: Index | None = None, begin: LedgerBegin | None = None
    ) -> RangeRepair:
        """See RangeRepair. Raises FaultyEntryError if the entry in front of it is damaged, too, or damage is found
        on the way to it; DiskError.
        """
        return RangeRepair(self, self._data, self._index, faulty, self._known_end, committed_index, begin)

    def _known_end(self, mapped_file: MappedFile) -> int:
        """Offset in a file behind the last byte of the log that a start would not know to be damaged. Index files a
        start makes anew.
        """
        start = mapped_file.file_from_offset
        if mapped_file not in self._data.queue.mapped_files:
            return 0
        end = min(self.ledger_end_pos, mapped_file.end_offset)
        for noted in reversed(self._faulty_file.ranges):
            if noted.pos < end <= noted.next_pos:
                end = noted.pos
        return max(0, end - start)

    def wider(self, faulty: FaultyRange, first_index: Index) -> FaultyRange:
        """The range with all from this entry on, which lies in front of it."""
        return replace(faulty, first_index=first_index, pos=Pos(self.likely_pos_at(first_index)))

    def wider_behind(self, faulty: FaultyRange) -> FaultyRange | None:
        """The range with the entry behind it, where that is sound and does not lie where the range says that it does:
        there was a stale one, which is passed over by now.
        """
        index = Index(faulty.last_index + 1)
        if index > self.ledger_end_index:
            return None
        try:
            pos, end_pos = self.pos_at(index), self.end_pos_at(index)
        except (FaultyEntryError, LedgerDamagedError):
            return None
        if pos in (faulty.next_pos, self._data.file_end(faulty.next_pos - 1)):
            return None
        return replace(faulty, last_index=index, next_pos=end_pos)

    def widen(self, wider: FaultyRange) -> None:
        """Entries that are sound in themselves may not be the group's: to be repaired with the damage beside them."""
        self.faulty.add(wider)

    def repaired_up_to(self, faulty: FaultyRange, last_index: Index, next_pos: Pos) -> None:
        """Entries of the range up to there are written and durable, and end at `next_pos`."""
        self.faulty.remove(faulty)
        self.faulty.add(replace(faulty, first_index=Index(last_index + 1), pos=next_pos))

    def repaired(self, faulty: FaultyRange) -> None:
        """All of the range is written and durable."""
        self.faulty.remove(faulty)

    def note_faults_job(self) -> NoteFaultsJob | None:
        """A job that makes durable what is known to be damaged; None when it is."""
        if self._noting is not None or self.faulty.ranges == self._faulty_file.ranges:
            return None
        self._noting = NoteFaultsJob(self._faulty_file, self.faulty.ranges)
        return self._noting

    def faults_noted(self, job: NoteFaultsJob) -> None:
        """Settles a job that has run without error, or found no space: then the next one notes the same."""
        assert job is self._noting
        self._noting = None

    def first_index_at(self, pos: int) -> Index:
        """The first entry that begins at `pos` or behind; the one behind the last if none does. Where `pos` lies in
        damage, one of the damaged entries or the one behind them.
        """
        begin = self.ledger_begin_index
        indexes = range(begin, self.ledger_end_index + 1)
        return Index(begin + bisect_left(indexes, pos, key=lambda index: self.likely_pos_at(Index(index))))

    def _has_unit_at(self, pos: int) -> bool:
        index = self.first_index_at(pos)
        return index <= self.ledger_end_index and self._stored_pos(index) == pos

    def _stored_pos(self, index: int) -> int:
        """As the unit says it, sound or not: good enough to look around."""
        try:
            return self._index.unit(index).pos
        except LedgerDamagedError:
            return 0

    def faulty_at(self, pos: int) -> FaultyRange | None:
        """The damage in which the byte at `pos` is known to lie."""
        return next((faulty for faulty in self.faulty if faulty.pos <= pos < faulty.next_pos), None)

    def refuse_faulty(self, first_index: int, last_index: int) -> None:
        """Raises FaultyEntryError if one of these entries is known to be damaged."""
        faulty = self.faulty.first_within(first_index, last_index)
        if faulty is not None:
            raise FaultyEntryError(
                f"{faulty} are damaged on this member's disk until they are repaired from a peer"
            )

    def likely_pos_at(self, index: Index) -> int:
        """As pos_at(); of a damaged entry what the index says, within the damage: its unit may be damaged as well."""
        try:
            return self.pos_at(index)
        except (FaultyEntryError, LedgerDamagedError):
            stored, faulty = self._stored_pos(index), self.faulty.first_within(index, index)
        if faulty is None:
            return stored
        if index == faulty.first_index:
            return faulty.pos
        return min(max(stored, faulty.pos + 1), faulty.next_pos - 1)

    def body_size_at(self, pos: int) -> int | None:
        size = super().body_size_at(pos)
        if size is None and self.ledger_begin_pos <= pos < self.ledger_end_pos and self._has_unit_at(pos):
            self.fault_found_at(pos)
        if self.recent.find_by_pos(pos) is None:
            faulty = self.faulty_at(pos)
            if faulty is not None:
                self.refuse_faulty(faulty.first_index, faulty.last_index)
        return size

    def read(self, pos: int, size: int) -> bytes:
        """Not proved, and yet no bytes that the disk does not give. Raises FaultyEntryError, DiskError."""
        try:
            return super().read(pos, size)
        except DiskError:
            self._refuse_unreadable(pos)
            raise

    def _refuse_unreadable(self, pos: int) -> None:
        for faulty in self.fault_found_at(pos):
            self.refuse_faulty(faulty.first_index, faulty.last_index)

    def read_body(self, pos: int, size: int) -> bytes:
        """The body at `pos` if it has this size, empty if none lies there. Raises FaultyEntryError, DiskError."""
        return self.read_bodies([(pos, size)])[0]

    def read_bodies(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read as read_body() does, at each (position, size). The positions ascend, so that one read of the index has
        the units of many entries.
        """
        recent = [self._recent_body(pos, size) for pos, size in places]
        cold = self._cold_bodies([place for place, body in zip(places, recent, strict=True) if body is None])
        return [next(cold) if body is None else body for body in recent]

    def _recent_body(self, pos: int, size: int) -> bytes | None:
        batch = self.recent.find_by_pos(pos)
        if batch is None or pos + size > batch.end_pos:
            return None
        return batch.buffer[pos - batch.pos : pos - batch.pos + size]

    def _cold_bodies(self, places: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        for (pos, size), body in zip(places, self._proved_bodies(places), strict=True):
            if body is not None:
                yield body
                continue
            for faulty in self.fault_found_at(pos):
                self.refuse_faulty(faulty.first_index, faulty.last_index)
            # Perhaps its unit was damaged, which is right now.
            yield next(self._proved_bodies([(pos, size)])) or b""

    def _proved_bodies(self, places: Sequence[tuple[int, int]]) -> Iterator[bytes | None]:
        """None where no body of this size lies, or none that is proved."""
        first_index, units = 0, b""  # as the index had them when the first of them was needed
        for pos, size in places:
            entry_pos = pos - ENTRY_HEADER_SIZE
            entry = self._data.read(entry_pos, ENTRY_HEADER_SIZE + size)
            sound = unit_of_sound_entry(entry, entry_pos) if entry_pos >= self.ledger_begin_pos else None
            if sound is None or len(entry) != ENTRY_HEADER_SIZE + size:
                yield None
                continue
            index, unit = sound
            self.refuse_faulty(index, index)
            at = (index - first_index) * INDEX_UNIT_SIZE
            if not 0 <= at < len(units):
                entries_max = (places[-1][0] - pos) // ENTRY_HEADER_SIZE + 1
                first_index, at = index, 0
                units = self._index.read(index, min(entries_max, _UNITS_READ) * INDEX_UNIT_SIZE)
            # Another unit: this is an entry of an earlier history, perhaps.
            yield entry[ENTRY_HEADER_SIZE:] if units[at : at + INDEX_UNIT_SIZE] == unit else None

    def first_index_of_term_at(self, index: Index) -> Index:
        """A hint where to compare next: it may lie too late where something is damaged, never before the run."""
        try:
            return super().first_index_of_term_at(index)
        except (LedgerDamagedError, FaultyEntryError):
            return index

    # -- what LogReader reads of a disk --------------------------------------------------------------------------

    def _unit(self, index: int) -> IndexUnit:
        return self._proved(index)[0]

    def _cold_chain(self, index: Index) -> int:
        return self._proved(index)[1]

    def _cold_batch(self, first_index: int, last_index: int, size_max: int) -> RecentBatch:
        last_index = self._last_sound(first_index, last_index)

        def read() -> RecentBatch:
            batch = super(CheckedReads, self)._cold_batch(first_index, last_index, size_max)
            self._verify(batch.first_index, batch.last_index, batch.pos, batch.buffer)
            return batch

        return self._checked(first_index, last_index, read)

    def _cold_range_from(self, first_index: Index, size_max: int) -> EntryRange:
        last_index = self._last_sound(first_index, self.ledger_end_index)
        first, chain = self._proved(first_index)
        units = self._checked(
            first_index, last_index, lambda: self._range_units(first_index, last_index, size_max)
        )
        last = units[-1]
        if last.index != first_index:
            last, chain = self._proved(last.index)
        return EntryRange(
            first_index, last.index, first.pos, last.pos + last.size - first.pos, last.term, chain
        )

    def _read_entries(self, entries: EntryRange) -> bytes:
        first_index, last_index = entries.first_index, entries.last_index

        def read() -> bytes:
            buffer = super(CheckedReads, self)._read_entries(entries)
            self._verify(first_index, last_index, entries.pos, buffer)
            return buffer

        return self._checked(first_index, last_index, read)

    # -- proofs --------------------------------------------------------------------------------------------------

    def _checked(self, first_index: int, last_index: int, read: Callable[[], _Read]) -> _Read:
        """What `read` returns. If it finds damage, that is noted and refused, or it was the index and is right now."""
        self.refuse_faulty(first_index, last_index)
        try:
            return read()
        except (EntryCorruptError, LedgerDamagedError):
            # From one in front on: the chain that proves the first one may be what is damaged.
            for faulty in self.fault_found(first_index - 1, last_index):
                self.refuse_faulty(faulty.first_index, faulty.last_index)
        try:
            return read()
        except EntryCorruptError as error:
            raise LedgerDamagedError(f"{self._data.queue.directory}: {error}") from error

    def _last_sound(self, first_index: int, last_index: int) -> int:
        """The last entry in front of known damage, `last_index` at most."""
        faulty = self.faulty.first_within(first_index, last_index)
        return last_index if faulty is None or faulty.first_index <= first_index else faulty.first_index - 1

    def _proved(self, index: int) -> tuple[IndexUnit, int]:
        """Unit and chain of a single entry."""
        return self._checked(index, index, lambda: self._proved_as_stored(index))

    def _proved_as_stored(self, index: int) -> tuple[IndexUnit, int]:
        """Raises EntryCorruptError, LedgerDamagedError."""
        unit = self._index.unit(index)
        raw = self._data.read(unit.pos, ENTRY_HEADER_SIZE).ljust(ENTRY_HEADER_SIZE, b"\0")
        header = parse_header(raw)
        seen = header.magic, header.index, header.pos, header.size, header.term
        if seen != (ENTRY_MAGIC, index, unit.pos, unit.size, unit.term):
            raise EntryCorruptError(EntryFault.HEADER, index, unit.pos, f"its unit says {unit}")
        if self._term_runs.first_other(index, [header.term]) is not None:
            raise EntryCorruptError(EntryFault.TERM, index, unit.pos, "it is of an earlier history")
        prev_chain = self._prev_chain(index)
        if prev_chain is not None and chain_after(raw, prev_chain) != header.chain_crc:
            raise EntryCorruptError(
                EntryFault.CHAIN, index, unit.pos, "it does not follow the entry in front"
            )
        return unit, header.chain_crc

    def _prev_chain(self, index: int) -> int | None:
        """Of the entry in front, as it stands; None where nobody knows what was before the first one."""
        if index == self.ledger_begin_index:
            return None if index and self._before_begin_chain == GENESIS_CHAIN else self._before_begin_chain
        batch = self.recent.find(index - 1)
        if batch is not None:
            return chain_crc_at(batch.buffer, batch.offset_of(index - 1))
        pos = self._index.unit(index - 1).pos
        return chain_crc_at(self._data.read(pos, ENTRY_HEADER_SIZE).ljust(ENTRY_HEADER_SIZE, b"\0"), 0)

    def _verify(self, first_index: int, last_index: int, pos: int, entries: bytes) -> None:
        """Whether these are the entries that lie there and that their units tell of: what an earlier history had in
        their place is sound, too. Raises EntryCorruptError, LedgerDamagedError.
        """
        prev_chain = self._prev_chain(first_index)
        if prev_chain is None:
            self._verify_anchor(first_index, pos, entries)
            if first_index == last_index:
                return
            anchor = parse_header(entries)
            prev_chain = anchor.chain_crc
            first_index, pos, entries = first_index + 1, pos + anchor.size, entries[anchor.size :]
        verified = verify_entries(entries, first_index=first_index, first_pos=pos, prev_chain=prev_chain)
        if verified.last_index != last_index:
            raise EntryCorruptError(
                EntryFault.SIZE, last_index, pos, f"entries end with {verified.last_index}"
            )
        if (other := self._term_runs.first_other(first_index, verified.terms)) is not None:
            text = "it is of an earlier history"
            raise EntryCorruptError(EntryFault.TERM, first_index + other, pos + verified.offsets[other], text)
        units = index_units_of(verified)
        if self._index.read(first_index, len(units)) != units:
            text = "units say that other entries lie there"
            raise EntryCorruptError(EntryFault.HEADER, first_index, pos, text)

    @staticmethod
    def _verify_anchor(index: int, pos: int, entries: bytes) -> None:
        """All but the chain of the first entry."""
        size = parse_header(entries.ljust(ENTRY_HEADER_SIZE, b"\0")).size
        try:
            verify_entries(
                entries[: max(size, 1)], first_index=index, first_pos=pos, prev_chain=GENESIS_CHAIN
            )
        except EntryCorruptError as error:
            if error.kind is not EntryFault.CHAIN:
                raise
