"""The tail of a ledger: entries cut off it, all of it begun anew, and the files that are made ahead of its end.

A cut takes entries out of the log at once; its job takes them off the disk, and nothing is appended until that has run.
"""

from bisect import bisect_right

from msgspec.structs import replace

from disk.disk import Disk, DiskError
from disk.mapped_file import DescriptorCache, MappedFile
from disk.mapped_file_queue import MappedFileQueue
from dledger.core.messages import MembershipBefore
from dledger.entry import INDEX_UNIT_SIZE, Index, Pos, Term
from dledger.log.config import LogConfig
from dledger.log.data_files import DataFiles
from dledger.log.faulty_ranges import FaultyRangesFile
from dledger.log.index_files import IndexFiles
from dledger.log.jobs import CutJob, PrepareFileJob, SyncJob
from dledger.log.recovery import Recovered
from dledger.log.scrubbed_log import ScrubbedLog
from dledger.log.synced_mark import CutRecord, SyncedMark, SyncedMarkFile


class CutLog(ScrubbedLog):
    """Invariant: what a cut took is durable no more, and no sync or file that began before it counts as of after it."""

    def __init__(
        self,
        disk: Disk,
        config: LogConfig,
        descriptors: DescriptorCache,
        data: DataFiles,
        index: IndexFiles,
        mark_file: SyncedMarkFile,
        faulty_file: FaultyRangesFile,
        recovered: Recovered,
    ) -> None:
        super().__init__(disk, config, data, index, mark_file, faulty_file, recovered)
        self.log_generation = 0
        self.durable_index = recovered.mark.index
        self.durable_pos = recovered.mark.end_pos
        self._descriptors = descriptors
        # Entries that begin a data file, of which the mark may not tell yet.
        self._file_begins: list[Index] = []
        self._syncs: list[SyncJob] = []
        self._preparing: PrepareFileJob | None = None
        self._made: list[
            tuple[MappedFileQueue, int]
        ] = []  # (queue, offset) of files made ahead, not in use yet

    # -- cutting -----------------------------------------------------------------------------------------------

    def begin_cut(self, from_index: Index) -> CutJob:
        """Takes the entries from `from_index` on out of the log at once; the job takes them off the disk.

        Until cut_done() nothing may be appended.
        """
        assert self._cutting is None, "one cut at a time"
        assert self.ledger_begin_index <= from_index <= self.ledger_end_index
        last_index = Index(from_index - 1)
        end_pos, chain = self.end_pos_at(last_index), self.chain_at(last_index)
        term = self.term_at(last_index)
        assert term is not None
        assert chain is not None
        old_end_index = self.ledger_end_index
        old_end = self._stop_writing()
        mark = self._mark
        self.memberships.cut_from(from_index)
        if mark.index >= from_index:
            mark = replace(
                mark,
                index=last_index,
                term=term,
                end_pos=end_pos,
                chain_crc=chain,
                **self._memberships_as_marked(last_index),
            )
        if self.durable_index > last_index:
            self.durable_index, self.durable_pos = last_index, end_pos
        self._end_at(last_index, term, end_pos, chain)
        self._mark = mark
        job = self._cut_job(mark, end_pos, old_end, from_index, old_end_index)
        self._cutting = job
        return job

    def _stop_writing(self) -> int:
        """A cut begins. Returns the position behind everything that may be written."""
        end = max(self.ledger_end_pos, self._data.stray_end())
        self._data.clear_stray_by_cut()
        for job in (self._marking, self._moving):
            if job is not None:
                job.cancelled = True
        self.log_generation += 1
        return end

    def _end_at(self, last_index: Index, term: Term, end_pos: Pos, chain: int) -> None:
        self.ledger_end_index, self.ledger_end_term = last_index, term
        self.ledger_end_pos, self.ledger_end_chain = end_pos, chain
        self.recent.cut_from(last_index + 1)
        del self._file_begins[bisect_right(self._file_begins, last_index) :]
        self._term_runs.cut_from(last_index + 1)
        self.faulty.keep_within(self.ledger_begin_index, self.ledger_begin_pos, last_index, end_pos)
        for sync in self._syncs:
            sync.limit(last_index, end_pos)

    def _cut_job(
        self, mark: SyncedMark, end_pos: Pos, old_end: int, from_index: int, old_end_index: int
    ) -> CutJob:
        data_file = self._data.ensure_file(end_pos)
        index_file = self._index.ensure_file(from_index)
        unit_offset = from_index * INDEX_UNIT_SIZE
        unit_end = (old_end_index + 1) * INDEX_UNIT_SIZE
        zeroed = [
            (mapped_file, start - from_offset, min(end, mapped_file.end_offset) - from_offset)
            for mapped_file, from_offset, start, end in (
                (data_file, data_file.file_from_offset, end_pos, old_end),
                (index_file, index_file.file_from_offset, unit_offset, unit_end),
            )
        ]
        detached = [
            *reversed(self._data.queue.detach_from(data_file.end_offset)),
            *reversed(self._index.queue.detach_from(index_file.end_offset)),
        ]
        job = CutJob(
            self._disk,
            self._mark_file,
            mark_while_cutting=replace(mark, cut=CutRecord(end_pos, Pos(old_end))),
            mark=mark,
            zeroed=zeroed,
            unlinked=[mapped_file.path for mapped_file in detached],
            directories=self._directories if detached else (),
        )
        self._retire(detached)
        if self._data.allocated_to > data_file.end_offset:
            self._data.allocated_to = data_file.end_offset
        return job

    def cut_done(self, job: CutJob) -> None:
        """Settles a cut that has run without error: the log may be appended to again."""
        assert job is self._cutting
        self._cutting = None
        self._mark_on_disk = self._mark
        self._release(job.held)
        self._take_made()

    # -- the begin ---------------------------------------------------------------------------------------------

    def begin_anew(
        self,
        before_begin_index: Index,
        term: Term,
        chain: int,
        begin_pos: Pos,
        membership: MembershipBefore | None = None,
    ) -> CutJob:
        """Takes all entries out of the log at once: it begins, empty, behind an entry that it does not hold, which has
        this term and chain; `membership` is the last membership entry up to there. As begin_cut() otherwise.
        """
        assert self._cutting is None, "one cut at a time"
        assert begin_pos % self._data.file_size == 0, "a log begins with a data file"
        old_end = self._stop_writing()
        self.memberships.cut_from(0)
        self._begin_behind(before_begin_index, term, chain, begin_pos, membership)
        self._end_at(Index(-1), term, begin_pos, chain)
        self.ledger_end_index = before_begin_index
        self.durable_index, self.durable_pos = before_begin_index, begin_pos
        mark = replace(self._mark, index=before_begin_index, term=term, end_pos=begin_pos, chain_crc=chain)
        # The newest first: a start that finds neither all nor a mark takes what is left for the old log.
        detached = [*reversed(self._data.queue.detach_from(0)), *reversed(self._index.queue.detach_from(0))]
        job = self._cutting = CutJob(
            self._disk,
            self._mark_file,
            mark_while_cutting=replace(mark, cut=CutRecord(begin_pos, Pos(max(old_end, begin_pos)))),
            mark=mark,
            zeroed=[],
            # Not those before the old begin: a deletion may be unlinking them now. The new begin lies behind them.
            unlinked=[mapped_file.path for mapped_file in detached],
            directories=self._directories,
        )
        self._mark = mark
        self._retire(detached)
        self._data.allocated_to = begin_pos
        return job

    # -- files ahead -------------------------------------------------------------------------------------------

    def prepare_job(self) -> PrepareFileJob | None:
        """A job that finds space for the next step of writes or makes the next file; None when nothing is needed."""
        if self._preparing is not None or self._cutting is not None:
            return None
        allocate = None
        end_pos = self.ledger_end_pos
        current = self._data.queue.find_mapped_file_by_offset(end_pos)
        if current is not None and self._data.allocated_to - end_pos < self.config.allocate_step // 2:
            start, size = self._data.next_allocation(end_pos)
            if size:
                allocate = current, start - current.file_from_offset, size
        made = []
        for queue, end in (
            (self._data.queue, end_pos),
            (self._index.queue, (self.ledger_end_index + 1) * INDEX_UNIT_SIZE),
        ):
            # From the half of a file on: not for a log that hardly grows, not too late for one that does.
            if queue.mapped_files and queue.end_offset - end < queue.mapped_file_size // 2:
                made.append((queue, queue.end_offset))
        if allocate is None and not made:
            return None
        self._preparing = PrepareFileJob(self._descriptors, self.log_generation, allocate=allocate, made=made)
        return self._preparing

    def prepare_done(self, job: PrepareFileJob, error: DiskError | None = None) -> None:
        """Settles a job. With `error` nothing is taken over: the append that needs the file or the space meets it."""
        assert job is self._preparing
        self._preparing = None
        self._release(job.held)
        if error is not None:
            return
        if job.log_generation == self.log_generation:
            self._data.allocated_to = max(self._data.allocated_to, job.allocated_to)
        self._made += job.made
        if self._cutting is None:
            self._take_made()

    def _take_made(self) -> None:
        """Files made ahead come into use. No cut is under way, so what is still there stays."""
        for queue, offset in self._made:
            path = queue.path_of(offset)
            if queue.find_mapped_file_by_offset(offset) is not None or not self._disk.exists(path):
                continue  # an append could not wait for it, or a cut has taken it
            if offset == queue.end_offset:
                queue.adopt(offset)
            else:
                # A cut has taken the files before it. A crash before this line leaves a gap that recovery closes.
                self._disk.unlink(path)
        self._made.clear()

    def _release(self, held: list[MappedFile]) -> None:
        for mapped_file in held:
            mapped_file.release()
        held.clear()
