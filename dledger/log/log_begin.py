"""The beginning of a ledger: reading, and deleting its oldest files one by one.

What may go is the caller's to say, who knows commits and times; how it goes so that no crash leaves a ledger without a
beginning is decided here and in recovery.py.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from disk.disk import Disk
from disk.mapped_file import MappedFile
from dledger.core.messages import LedgerBegin, MembershipBefore
from dledger.entry import INDEX_UNIT_SIZE, Index, Pos, Term
from dledger.errors import FaultyEntryError
from dledger.log.checked_reads import CheckedReads
from dledger.log.config import LogConfig
from dledger.log.data_files import DataFiles
from dledger.log.entry_reader import header_at
from dledger.log.errors import LedgerDamagedError
from dledger.log.faulty_ranges import FaultyRangesFile
from dledger.log.index_files import IndexFiles
from dledger.log.jobs import CutJob, MarkJob, MoveBeginJob
from dledger.log.membership_entries import MembershipEntries
from dledger.log.recent_batches import RecentBatches
from dledger.log.recovery import Recovered
from dledger.log.synced_mark import SyncedMarkFile
from dledger.log.term_runs import TermRuns


class LogBegin(CheckedReads):
    """Invariant: every mark that is written from now on says where the ledger begins in memory."""

    def __init__(
        self,
        disk: Disk,
        config: LogConfig,
        data: DataFiles,
        index: IndexFiles,
        mark_file: SyncedMarkFile,
        faulty_file: FaultyRangesFile,
        recovered: Recovered,
    ) -> None:
        super().__init__(
            data,
            index,
            RecentBatches(config.recent_bytes_max),
            TermRuns(recovered.term_runs),
            begin_index=recovered.begin_index,
            mark=recovered.mark,
            faulty=recovered.faulty,
            faulty_file=faulty_file,
        )
        self.config = config
        self._disk = disk
        self._mark_file = mark_file
        self._mark = recovered.mark  # as the next job writes it
        self._mark_on_disk = recovered.mark
        self.memberships = MembershipEntries(recovered.mark)
        self._marking: MarkJob | None = None
        self._moving: MoveBeginJob | None = None
        self._cutting: CutJob | None = None
        self._doomed: list[str] = []  # files before the begin, oldest first, that are not unlinked yet

    @property
    def durable_begin_pos(self) -> Pos:
        """Where the log begins after a power loss: further in front, while a move of its begin is under way."""
        return self._mark_on_disk.begin_pos

    @property
    def first_file_last_index(self) -> Index | None:
        """The last entry of the oldest data file. None if the log ends in that file, or as long as damage hides it."""
        files = self._data.queue.mapped_files
        if len(files) < 2 or self.ledger_end_pos <= files[1].file_from_offset:
            return None
        next_pos = files[1].file_from_offset
        index = header_at(self._data, next_pos).index
        try:
            if self.ledger_begin_index < index <= self.ledger_end_index and self.pos_at(index) == next_pos:
                return Index(index - 1)
        except FaultyEntryError:
            return None
        if not self.faulty_at(next_pos):
            self.fault_found_at(next_pos)
        return None

    def delete_first_file_job(self) -> MoveBeginJob | None:
        """Takes the oldest data file out of the log at once, and index files with it; the job takes them off the disk.

        None if the log ends in that file, if the synced mark does not lie behind it, or if the mark is being written.
        """
        if self._moving or self._marking or self._cutting:
            return None
        last_index = self.first_file_last_index
        if last_index is None or self._mark.index <= last_index:
            return None
        try:
            chain, term = self.chain_at(last_index), self._present_term(last_index)
            membership = self.memberships.up_to(last_index, self.body_at)
        except FaultyEntryError:
            return None  # the log would begin behind an entry that nobody knows
        assert chain is not None
        begin_pos = Pos(self._data.queue.mapped_files[0].end_offset)
        return self._move_begin_job(LedgerBegin(last_index, term, chain, begin_pos, membership))

    def begin_at_job(self, begin: LedgerBegin) -> MoveBeginJob | None:
        """As delete_first_file_job(), of all files in front of `begin`, which a peer's log has in common with this one
        as far as the entries are sound. What is damaged in front of it need not be known any more.

        None also if the entries here are others, or if the log ends there.
        """
        index = begin.before_index
        if self._moving or self._marking or self._cutting:
            return None
        if not self.ledger_begin_index <= index < min(self._mark.index, self.ledger_end_index):
            return None
        if not self._may_begin_at(begin):
            return None
        with suppress(FaultyEntryError):
            # One's own list of them is as long as this log; a peer's may be longer.
            begin = replace(begin, membership=self.memberships.up_to(index, self.body_at))
        return self._move_begin_job(begin)

    def _may_begin_at(self, begin: LedgerBegin) -> bool:
        index = begin.before_index
        with suppress(FaultyEntryError):
            if (self.term_at(index), self.chain_at(index)) != (begin.before_term, begin.before_chain):
                return False
        with suppress(FaultyEntryError):
            return self.pos_at(Index(index + 1)) == begin.pos
        return any(mapped_file.file_from_offset == begin.pos for mapped_file in self._data.queue.mapped_files)

    def _move_begin_job(self, begin: LedgerBegin) -> MoveBeginJob:
        self._begin_behind(
            begin.before_index, begin.before_term, begin.before_chain, begin.pos, begin.membership
        )
        detached = [
            *self._data.queue.detach_before(begin.pos),
            *self._index.queue.detach_before(self.ledger_begin_index * INDEX_UNIT_SIZE),
        ]
        self._doomed += [mapped_file.path for mapped_file in detached]
        self._retire(detached)
        self._moving = MoveBeginJob(
            self._disk,
            self._mark_file,
            self._mark,
            unlinked=tuple(self._doomed),
            directories=self._directories,
        )
        return self._moving

    def move_begin_done(self, job: MoveBeginJob) -> None:
        """Settles a job that has run without error."""
        assert job is self._moving
        self._moving = None
        if job.is_done:
            self._mark_on_disk = job.mark
            self._doomed.clear()  # else a cut was in the way: the next deletion takes them, or recovery

    def membership_up_to(self, index: Index) -> MembershipBefore | None:
        """The last membership entry that is not behind `index`, or the first one that is known; None: there is none.
        Raises FaultyEntryError, LedgerDamagedError, DiskError.
        """
        return self.memberships.up_to(index, self.body_at)

    @property
    def membership_before_begin(self) -> MembershipBefore | None:
        return self.memberships.before_begin

    @property
    def begin(self) -> LedgerBegin:
        """As a peer is told."""
        return LedgerBegin(
            Index(self.ledger_begin_index - 1),
            self._before_begin_term,
            self._before_begin_chain,
            self.ledger_begin_pos,
            self.membership_before_begin,
        )

    def _begin_behind(
        self,
        index: Index,
        term: Term,
        chain: int,
        begin_pos: Pos,
        membership: MembershipBefore | None,
    ) -> None:
        """The log begins behind an entry with this index, term and chain, at `begin_pos`, in memory and in marks.
        `membership`: the last membership entry up to there.
        """
        # A peer that no longer knows the last one up to there names a later one.
        known_to = index if membership is None else max(index, membership.index)
        self.memberships.begin_behind(known_to, membership)
        self.ledger_begin_index, self.ledger_begin_pos = Index(index + 1), begin_pos
        self._before_begin_term, self._before_begin_chain = term, chain
        self.faulty.keep_within(
            self.ledger_begin_index, begin_pos, self.ledger_end_index, self.ledger_end_pos
        )
        self._mark = replace(
            self._mark,
            before_begin_index=index,
            before_begin_term=term,
            before_begin_chain=chain,
            begin_pos=begin_pos,
            **self._memberships_as_marked(self._mark.index),
        )

    def _memberships_as_marked(self, index: Index) -> dict[str, Any]:
        """For a mark at `index`: whole, although the entry that says it may not have been read in this run. Its damage
        must take from no start who the members are.
        """
        with suppress(FaultyEntryError, LedgerDamagedError):
            self.memberships.up_to(index, self.body_at)
        return self.memberships.as_marked(index)

    def _retire(self, detached: Sequence[MappedFile]) -> None:
        """Files that are no longer part of the log: nothing in them needs a sync."""
        for mapped_file in detached:
            for dirty in (self._dirty_data, self._dirty_index):
                if mapped_file in dirty:
                    dirty.remove(mapped_file)
                    mapped_file.release()
            mapped_file.retire()

    @property
    def _directories(self) -> tuple[str, str]:
        return self.config.data_directory, self.config.index_directory
