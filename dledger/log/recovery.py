"""What a ledger on disk holds after a stop of any kind.

Below the synced mark everything was durable: it is looked at lightly, and damage found there is noted and kept, to be
repaired from the peers. Above the mark each entry is verified; the log ends at the first one that is not sound. What
is sound is written and synced once more before it counts: after a failed write-back the page cache shows bytes that
the disk never got. What lies behind the end is cut.

Where Java's DLedger was the last to run, its entries are sealed first: it leaves both CRC fields of a header 0 and
never looks at them, so each gets the values that it would have from us, in its place. A crash at any point leaves
bytes that are 0 or right, and the next start does it again; afterwards nothing tells the entries from ours.
"""

import logging
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from disk.disk import Disk, NoSpaceError
from disk.mapped_file import MappedFile
from disk.mapped_file_queue import MappedFileQueueError
from dledger.entry import (
    ENTRY_HEADER_SIZE,
    GENESIS_CHAIN,
    INDEX_UNIT_SIZE,
    EntryCorruptError,
    Index,
    Pos,
    Term,
    VerifiedRange,
    index_units_of,
)
from dledger.log.begin_mark import BeginMark
from dledger.log.below_mark import BelowMark
from dledger.log.config import LogConfig
from dledger.log.data_files import DataFiles
from dledger.log.entry_reader import EntryReader, IsSoundBody, SequentialReader, entry_alone
from dledger.log.errors import LedgerConfigError, LedgerDamagedError, what_to_do
from dledger.log.faulty_ranges import FaultyRange, FaultyRanges, FaultyRangesFile
from dledger.log.index_files import IndexFiles
from dledger.log.java_entries import check_java_end, has_java_replaced, java_begin_index, refuse_foreign_tail
from dledger.log.java_files import JavaRun
from dledger.log.jobs import CutJob, MoveBeginJob
from dledger.log.lost_mark import check_told_members, mark_by_the_begin
from dledger.log.membership_entries import MembershipEntries
from dledger.log.missing_files import MissingFiles
from dledger.log.quorum_state import LastRun
from dledger.log.synced_mark import CutRecord, SyncedMark, SyncedMarkFile, before_first_entry
from dledger.log.tail_scan import junk_behind, last_byte

log = logging.getLogger(__name__)


class Recovered(msgspec.Struct, frozen=True):
    """The state that a LogStore begins with; `mark` is on disk, and everything up to the end is durable."""

    begin_index: Index
    mark: SyncedMark  # at the end of the log
    faulty: tuple[FaultyRange, ...]  # on a full disk not noted yet
    # Runs of equal terms above the mark that was found, as (first index, term).
    term_runs: list[tuple[Index, Term]] = []


class Recovery:
    """One run over the files of a ledger that nobody else has open."""

    def __init__(
        self,
        disk: Disk,
        config: LogConfig,
        data: DataFiles,
        index: IndexFiles,
        mark_file: SyncedMarkFile,
        faulty_file: FaultyRangesFile,
        java_run: JavaRun | None,
        is_sound_body: IsSoundBody,
        last_run: LastRun,
    ) -> None:
        """`java_run`: Java was the last to run here. `is_sound_body` judges the bodies of its entries."""
        self._disk = disk
        self._config = config
        self._data = data
        self._index = index
        self._mark_file = mark_file
        self._faulty_file = faulty_file
        self._faulty = faulty_file.ranges
        self._java_run = java_run
        self._is_sound_body = is_sound_body if java_run is not None else None
        self._last_run = last_run
        self._was_doubted = False  # by a mark that does not count any more
        self._touched: list[MappedFile] = []
        self._memberships = MembershipEntries(None)

    def run(self) -> Recovered:
        """Raises LedgerDamagedError, LedgerConfigError, DiskError. The files are changed only above the mark."""
        mark = self._mark_file.mark
        size = (mark or self._mark_file.begin.mark).data_file_size
        if size not in (0, self._config.data_file_size):
            raise LedgerConfigError(
                f"{self._config.data_directory}: made with data files of {size} bytes, configured are "
                f"{self._config.data_file_size}. The size is a constant of the group: configure the old one"
            )
        if mark is None and self._java_run is None:
            mark = mark_by_the_begin(self._data, self._config, self._mark_file.begin)
        if mark is not None:
            self._finish_deletion(mark)
            mark = self._doubt_damage_behind(mark)
            mark = self._make_missing_files_anew(mark)
        if mark is not None and mark.cut is not None:
            mark = self._redo_cut(mark, mark.cut)
        else:
            self._load_data(mark)
        begin_pos = self._data.queue.min_offset
        begin_mark: BeginMark = mark or self._mark_file.begin.mark
        if mark is not None and self._java_run is not None and begin_pos > mark.begin_pos:
            # Java's retention tells our mark nothing. What is left is proved anew, from the first entry on.
            log.warning("Java deleted data files begin_pos=%d before=%d", begin_pos, mark.begin_pos)
            self._was_doubted, mark = mark.doubted, None
        begin_index = self._begin_index(mark)
        self._load_index(begin_index)
        if mark is not None and mark.index >= begin_index:
            if self._java_run is not None and has_java_replaced(self._data, self._index, mark):
                log.warning("Java went on in front of our mark index=%d: all is proved anew", mark.index)
                mark = before_first_entry(mark, doubted=mark.doubted)
            else:
                self._check_below(mark)
        self._memberships = MembershipEntries(mark)
        if mark is None:
            # Entries that say it may be gone; those that are there say it themselves.
            told = MembershipEntries(begin_mark)
            self._memberships.before_begin = told.known_up_to(Index(begin_index - 1))
        reader = self._reader(mark, begin_index)
        start_index = reader.index
        term_runs: list[tuple[Index, Term]] = []
        for verified in reader.ranges():
            if self._java_run is not None and verified.first_pos % self._data.file_size == 0:
                log.info("entries that Java may have written are sealed pos=%d", verified.first_pos)
            self._rewrite(verified)
            _add_runs(term_runs, verified)
        if self._java_run is None:
            self._refuse_foreign_tail(mark, reader)
            if self._mark_file.mark is None:
                check_told_members(self._config, self._mark_file.begin, reader)
        else:
            check_java_end(self._data, self._config, self._java_run, reader)
        return self._finish(mark, begin_index, start_index, reader, term_runs)

    # -- files -------------------------------------------------------------------------------------------------

    def _finish_deletion(self, mark: SyncedMark) -> None:
        """Files before the begin are what a crash has left of a deletion."""
        unlinked = [
            queue.path_of(offset)
            for queue, begin in (
                (self._data.queue, mark.begin_pos),
                (self._index.queue, (mark.before_begin_index + 1) * INDEX_UNIT_SIZE),
            )
            for offset in queue.list_files()
            if offset + queue.mapped_file_size <= begin
        ]
        if not unlinked:
            return
        log.warning("deletion redone begin=%d files=%d", mark.before_begin_index + 1, len(unlinked))
        if self._mark_file.mark is None:
            # No mark before all is proved: with one the next start would not know that it was lost.
            self._mark_file.begin.make_durable()
            for path in unlinked:
                self._disk.unlink(path)
            return
        MoveBeginJob(
            self._disk,
            self._mark_file,
            mark,  # again: what was read may not be on disk
            unlinked=unlinked,
            directories=[self._config.data_directory, self._config.index_directory],
        ).run()

    def _doubt_damage_behind(self, mark: SyncedMark) -> SyncedMark:
        """Entries behind the mark that were known to be damaged look like the end of the log where a repair of them had
        begun when the process ended, and no later start knows of them.
        """
        is_known = any(known.last_index > mark.index for known in self._faulty_file.ranges)
        if is_known and self._last_run is not LastRun.STOPPED_CLEANLY:
            return self._doubt(mark)
        return mark

    def _make_missing_files_anew(self, mark: SyncedMark) -> SyncedMark:
        if self._java_run is not None:
            return mark  # its retention tells our mark nothing
        missing = MissingFiles(self._data.queue, mark, self._last_run)
        if missing.hides_what_was_behind:
            mark = self._doubt(mark)
        missing.make_anew()
        return mark

    def _doubt(self, mark: SyncedMark) -> SyncedMark:
        """Durably, before what it follows from is changed."""
        if not mark.doubted:
            mark = replace(mark, doubted=True)
            self._mark_file.write(mark)
        return mark

    def _redo_cut(self, mark: SyncedMark, cut: CutRecord) -> SyncedMark:
        log.warning("cut redone from_pos=%d old_end=%d", cut.from_pos, cut.old_end)
        first = cut.from_pos - cut.from_pos % self._data.file_size
        self._mark_file.write(mark)  # what was read may not be on disk, and the bytes go only after it
        for offset in reversed(self._data.queue.list_files()):
            if offset > first:
                self._disk.unlink(self._data.queue.path_of(offset))
        self._disk.sync_directory(self._config.data_directory)
        self._load_data(mark)
        mark_after = replace(mark, cut=None)
        self._cut(mark, mark_after, cut, unlinked=[])
        return mark_after

    def _load_data(self, mark: SyncedMark | None) -> None:
        """Also removes a file made ahead that a cut has left alone behind a gap: it took no entry yet."""
        queue = self._data.queue
        offsets = queue.list_files()
        expected = offsets[0] if offsets else 0
        if mark is not None and mark.index <= mark.before_begin_index and self._java_run is None:
            expected = mark.begin_pos  # of a log that is empty: the gap may be in front of all files
        for offset in offsets:
            if offset > expected and not any(queue.read_listed(offset, ENTRY_HEADER_SIZE)):
                self._disk.unlink(queue.path_of(offset))
                self._disk.sync_directory(self._config.data_directory)
            else:
                expected = offset + self._data.file_size
        try:
            queue.load()
        except MappedFileQueueError as error:
            if self._java_run is not None:
                raise LedgerConfigError(
                    f"{error} Nothing was changed. Configure the size that Java's broker had "
                    "(mappedFileSizeCommitLog); if it is that one, take the files from another member"
                ) from error
            raise LedgerDamagedError(
                f"{error} Nothing was changed. {what_to_do(self._config.directory)}"
            ) from error

    def _load_index(self, begin_index: Index) -> None:
        """Files that make no queue, or one that begins too late, are made anew: all in them follows from the data."""
        queue = self._index.queue
        try:
            queue.load(accept_short=True)
            if queue.min_offset <= begin_index * INDEX_UNIT_SIZE:
                return
            reason = f"they begin with {queue.mapped_files[0].path}"
        except MappedFileQueueError as error:
            reason = str(error)
        log.warning("index files made anew reason=%s", reason)
        queue.close()
        for offset in queue.list_files():
            self._disk.unlink(queue.path_of(offset))

    # -- where to begin ------------------------------------------------------------------------------------------

    def _begin_index(self, mark: SyncedMark | None) -> Index:
        empty_begin = Index(mark.before_begin_index + 1 if mark is not None else 0)
        has_entries = mark is not None and mark.index >= empty_begin
        files = self._data.queue.mapped_files
        if not files:
            if has_entries:
                raise LedgerDamagedError(
                    f"{self._config.data_directory}: no data file, but entries were durable. "
                    + what_to_do(self._config.directory)
                )
            return empty_begin
        if mark is None and self._java_run is not None:
            return java_begin_index(self._data, self._config)
        if mark is not None and has_entries and files[0].file_from_offset == mark.begin_pos:
            return (
                empty_begin  # whatever its first entry says: that is looked at with all others below the mark
            )
        try:
            begin_index = self._first_entry().first_index
        except EntryCorruptError as error:
            # Above position 0 nothing but the first entry says which index it has.
            if has_entries or (mark is None and files[0].file_from_offset > 0):
                raise LedgerDamagedError(
                    f"{files[0].path}: {error}, although it was durable. Nothing was changed. "
                    + what_to_do(self._config.directory)
                ) from error
            return empty_begin
        if mark is not None and begin_index != empty_begin:
            raise LedgerDamagedError(
                f"{files[0].path}: begins with entry {begin_index}, but the log began with {empty_begin}; files before "
                f"it are missing. Nothing was changed. {what_to_do(self._config.directory)}"
            )
        return begin_index

    def _check_below(self, mark: SyncedMark) -> None:
        """Notes damage, durably, before anything else is done; on a full disk as soon as there is space: until then
        a start may know no more of it than what whoever reads there finds again.
        """
        below = BelowMark(self._data, self._index, mark, directory=self._config.directory)
        known = self._faulty_file.ranges
        below.check(known)
        self._touch(below.repaired)
        faulty = FaultyRanges()
        for found in below.faulty:
            faulty.add(found)
        for found in faulty:
            log.error("damaged entries are kept until they are repaired: %s size=%d", found, found.size)
        if faulty.ranges != known or self._faulty_file.was_damaged:
            for mapped_file in below.repaired:
                mapped_file.file().fdatasync()  # before that is forgotten which they were repaired of
            try:
                self._faulty_file.write(faulty.ranges)
            except NoSpaceError as error:
                log.warning("damage not noted yet: %s", error)
        self._faulty = faulty.ranges

    def _first_entry(self) -> VerifiedRange:
        return entry_alone(self._data, self._data.queue.min_offset, None)

    def _reader(self, mark: SyncedMark | None, begin_index: Index) -> SequentialReader:
        is_sound_body = self._is_sound_body
        if mark is not None:
            return EntryReader(self._data, mark.index, mark.term, mark.end_pos, mark.chain_crc, is_sound_body)
        first = self._anchor(begin_index)
        if first is not None:
            self._rewrite(first)
            index, term, end_pos, chain = first.last_index, first.last_term, first.next_pos, first.chain
            return EntryReader(self._data, index, term, end_pos, chain, is_sound_body)
        start = Pos(self._data.queue.min_offset)
        return EntryReader(self._data, Index(begin_index - 1), Term(-1), start, GENESIS_CHAIN, is_sound_body)

    def _anchor(self, begin_index: Index) -> VerifiedRange | None:
        """The first entry where its chain is the anchor of all others: it is taken as it is, and written again by
        itself. One that Java wrote has none before it is sealed.
        """
        if begin_index == 0:
            return None
        if self._java_run is None:
            return self._first_entry()
        try:
            first = self._first_entry()
        except EntryCorruptError:
            return None
        return first if first.chain else None

    # -- above the mark ----------------------------------------------------------------------------------------

    def _rewrite(self, verified: VerifiedRange) -> None:
        self._memberships.add_range(verified, 0, self._data.head_size)
        self._data.queue.write(verified.first_pos, memoryview(verified.buffer)[: verified.size])
        mapped_file = self._data.queue.find_mapped_file_by_offset(verified.first_pos)
        assert mapped_file is not None
        self._touch([mapped_file])
        self._touch(self._index.correct(verified.first_index, index_units_of(verified)))

    def _touch(self, files: Iterable[MappedFile]) -> None:
        self._touched += [mapped_file for mapped_file in files if mapped_file not in self._touched]

    def _refuse_foreign_tail(self, mark: SyncedMark | None, reader: SequentialReader) -> None:
        """What another program wrote behind the end must not be cut. Raises LedgerConfigError, LedgerDamagedError,
        DiskError.
        """
        refuse_foreign_tail(self._data, self._config, reader)

    def _finish(
        self,
        mark: SyncedMark | None,
        begin_index: Index,
        start_index: Index,
        reader: SequentialReader,
        term_runs: list[tuple[Index, Term]],
    ) -> Recovered:
        """Makes the sound part durable, cuts the rest, moves the mark to the end."""
        for pos, size in reader.blanks:
            if pos + size <= reader.end_pos:
                self._data.queue.write(pos, self._data.blank_header(size))
                left = self._data.queue.find_mapped_file_by_offset(pos)
                assert left is not None
                self._touch([left])
        junk_end, torn = junk_behind(self._data.queue.mapped_files, reader)
        self._cut_index(reader.index + 1)
        # The newest file may have been made just before a crash, and neither its length nor names be on disk yet.
        self._touch(self._data.queue.mapped_files[-1:])
        for mapped_file in self._touched:
            mapped_file.file().fdatasync()
        self._disk.sync_directory(self._config.data_directory)
        self._disk.sync_directory(self._config.index_directory)
        # Java keeps none.
        is_mark_lost = mark is None and (self._java_run is None or self._mark_file.unreadable is not None)
        # Each run begins with a mark, so without one there were entries perhaps, also where there are none now.
        has_run = self._last_run is not LastRun.UNKNOWN or reader.index >= begin_index
        before = mark or SyncedMark(
            Index(-1), Term(-1), Pos(0), GENESIS_CHAIN, data_file_size=self._config.data_file_size,
            before_begin_index=Index(begin_index - 1), doubted=self._was_doubted,
        )  # fmt: skip
        new_mark = replace(
            before,
            index=reader.index,
            term=reader.term,
            end_pos=reader.end_pos,
            chain_crc=reader.chain,
            begin_pos=Pos(max(before.begin_pos, self._data.queue.min_offset)),
            doubted=before.doubted or torn or (is_mark_lost and has_run),
            **self._memberships.as_marked(reader.index),
        )
        if junk_end > reader.end_pos:
            cut = CutRecord(reader.end_pos, Pos(junk_end))
            file_end = self._data.file_end(reader.end_pos)
            later = self._data.queue.detach_from(file_end)
            unlinked = [mapped_file.path for mapped_file in reversed(later)]
            self._cut(replace(new_mark, cut=cut), new_mark, cut, unlinked)
            for mapped_file in later:
                mapped_file.retire()
        elif new_mark != mark or self._mark_file.mark is None or self._mark_file.slots.was_damaged:
            self._mark_file.write(new_mark)
        else:
            # It may say that a cut is done, and the one on the disk that it is under way: what is appended from now on
            # would be taken for what was to be cut.
            self._mark_file.make_durable(new_mark)
        log.info(
            "recovered begin=%d end=%d/%d end_pos=%d above_mark=%d doubted=%s mark=%s stopped_by=%s",
            begin_index, reader.term, reader.index, reader.end_pos, reader.index - start_index, new_mark.doubted,
            self._how_marked(mark), reader.stopped_by,
        )  # fmt: skip
        return Recovered(begin_index, new_mark, self._faulty, term_runs)

    def _how_marked(self, mark: SyncedMark | None) -> str:
        if self._mark_file.mark is not None:
            return "found"
        return "lost, by the begin mark" if mark is not None else self._mark_file.unreadable or "none"

    def _cut(
        self, mark_while: SyncedMark, mark_after: SyncedMark, cut: CutRecord, unlinked: list[str]
    ) -> None:
        mapped_file = self._data.queue.find_mapped_file_by_offset(cut.from_pos)
        zeroed = []
        if mapped_file is not None:
            from_offset = mapped_file.file_from_offset
            zeroed = [
                (
                    mapped_file,
                    cut.from_pos - from_offset,
                    min(cut.old_end, mapped_file.end_offset) - from_offset,
                )
            ]
        job = CutJob(
            self._disk,
            self._mark_file,
            mark_while_cutting=mark_while,
            mark=mark_after,
            zeroed=zeroed,
            unlinked=unlinked,
            directories=[self._config.data_directory],
        )
        job.run()
        for held in job.held:
            held.release()

    def _cut_index(self, first_index: int) -> None:
        """Clears units that have no entry any more."""
        queue = self._index.queue
        offset = first_index * INDEX_UNIT_SIZE
        queue.delete_from(offset + 1)
        mapped_file = queue.find_mapped_file_by_offset(offset)
        if mapped_file is not None:
            start = offset - mapped_file.file_from_offset
            last = last_byte(mapped_file, start)
            if last >= 0:
                self._index.zero(first_index, first_index + (last - start) // INDEX_UNIT_SIZE)
                self._touch([mapped_file])


def _add_runs(runs: list[tuple[Index, Term]], verified: VerifiedRange) -> None:
    last_term = runs[-1][1] if runs else None
    if verified.last_term == last_term:
        return
    for index, term in enumerate(verified.terms, verified.first_index):
        if term != last_term:
            last_term = Term(term)
            runs.append((Index(index), last_term))
