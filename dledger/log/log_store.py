"""The ledger of one member: entries appended at the end, made durable, and marked so. log_reader.py is its reading
half, cut_log.py cuts the tail, log_begin.py deletes what is old.

Decides where entries lie and what of them is durable. Term, vote and commit are the core's; when to sync is the
caller's, who owns time and threads: everything here runs in one thread, blocking work is handed out as jobs (jobs.py)
and settled when they have run.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar, Self

from msgspec.structs import replace

from disk.disk import Disk, DiskError, NoSpaceError
from disk.mapped_file import DescriptorCache, MappedFile
from dledger.core.output import Batch
from dledger.entry import (
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    INDEX_UNIT,
    INDEX_UNIT_SIZE,
    EntryKind,
    Index,
    Pos,
    Term,
    VerifiedRange,
    chain_after,
    index_units_of,
    seal_entries,
)
from dledger.errors import FaultyEntryError
from dledger.log.committed_mark import forget_committed_mark
from dledger.log.config import LogConfig
from dledger.log.cut_log import CutLog
from dledger.log.data_files import DataFiles, Stray
from dledger.log.entry_reader import IsSoundBody
from dledger.log.faulty_ranges import FaultyRangesFile
from dledger.log.index_files import IndexFiles
from dledger.log.java_files import find_java_run
from dledger.log.jobs import MarkJob, ProbeSpaceJob, SyncJob
from dledger.log.log_reader import chain_crc_at
from dledger.log.quorum_state import LastRun
from dledger.log.recent_batches import RecentBatch
from dledger.log.recovery import Recovered, Recovery
from dledger.log.synced_mark import SyncedMarkFile

MARK_STEP_SIZE = 64 * 1024 * 1024
MARK_INTERVAL_MS = 1000


class LogStore(CutLog):
    """Invariant: ledger_begin_index - 1 <= durable_index <= ledger_end_index, and each entry up to durable_index was
    covered by an fdatasync that began after it was written and that no cut has overtaken.
    """

    data_files: ClassVar[type[DataFiles]] = DataFiles
    recovery: ClassVar[type[Recovery]] = Recovery

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
        """For open(). Takes over what recovery has found."""
        super().__init__(disk, config, descriptors, data, index, mark_file, faulty_file, recovered)
        self.doubted = recovered.mark.doubted  # as found at the start: entries above the mark may be lost
        self._mark_moved_ms: int | None = None
        self._clearing: Stray | None = None  # by a probe under way

    @classmethod
    def open(
        cls,
        disk: Disk,
        config: LogConfig,
        is_sound_body: IsSoundBody = lambda body: True,
        last_run: LastRun = LastRun.UNKNOWN,
    ) -> Self:
        """Recovers what the directory holds; an empty or missing one becomes an empty ledger. Blocks. `is_sound_body`
        judges entries that Java wrote since we were here last; the quorum state has been loaded by then, and knows the
        `last_run`.

        Raises LedgerDamagedError when something durable is not readable, LedgerConfigError when the directory was made
        with another data file size, DiskError.
        """
        for directory in (config.data_directory, config.index_directory, config.own_directory):
            disk.make_directory(directory)
        disk.sync_directory(config.directory)  # an earlier start may have been ended before it came to that
        forget_committed_mark(
            disk, config.own_directory
        )  # recovery may take long, and finds what is still there
        descriptors = DescriptorCache(disk)
        data = cls.data_files(descriptors, config.data_directory, config.data_file_size, config.allocate_step)
        index = IndexFiles(descriptors, config.index_directory, config.index_file_size)
        mark_file = SyncedMarkFile(disk, config.own_directory)
        faulty_file = FaultyRangesFile(disk, config.own_directory)
        try:
            recovered = cls.recovery(
                disk,
                config,
                data,
                index,
                mark_file,
                faulty_file,
                find_java_run(disk, config.directory),
                is_sound_body,
                last_run,
            ).run()
            data.allocated_to = recovered.mark.end_pos
            # So that the first append waits for no directory.
            data.ensure_file(recovered.mark.end_pos)
            index.ensure_file(recovered.mark.index + 1)
        except BaseException:
            data.queue.close()
            index.queue.close()
            mark_file.close()
            faulty_file.close()
            raise
        return cls(disk, config, descriptors, data, index, mark_file, faulty_file, recovered)

    # -- appending ---------------------------------------------------------------------------------------------

    def reserve(self, body_sizes: Sequence[int]) -> list[Pos]:
        """Positions of entries with bodies of these sizes, if they are appended next. Changes nothing.

        Raises EntryTooLargeError.
        """
        return self._data.reserve(self.ledger_end_pos, body_sizes)

    def append(
        self,
        bodies: Sequence[bytes],
        positions: Sequence[Pos],
        term: Term,
        kind: EntryKind,
        head_kind: EntryKind | None = None,
    ) -> Batch:
        """Seals and writes entries at the positions that reserve() has given for them, all or none. `head_kind`: of
        the first entry, where it differs from that of the others.

        Raises DiskError; the log is then as before. NoSpaceError passes, with a probe that probe_done() approves.
        """
        assert self._cutting is None, "no append while a cut is under way"
        assert bodies, "a batch has an entry"
        expected = (self.ledger_end_pos, self._data.file_end(self.ledger_end_pos))
        assert positions[0] in expected, "positions are reserved anew after each append and cut"
        first_index = self.ledger_end_index + 1
        buffers, chain = self._seal(bodies, positions, first_index, term, kind, head_kind)
        parts = len(buffers) // len(bodies)  # of an entry
        head_size = self.head_size
        last_index = first_index + len(bodies) - 1
        next_pos = positions[-1] + head_size + len(bodies[-1])
        pack_unit = INDEX_UNIT.pack
        units = [
            pack_unit(ENTRY_MAGIC, pos, head_size + len(body), index, term)
            for index, (pos, body) in enumerate(zip(positions, bodies, strict=True), first_index)
        ]
        batches: list[RecentBatch] = []
        for start, end in self._data.parts_of(positions):
            pos = positions[start]
            batches.append(
                RecentBatch(
                    Index(first_index + start),
                    Index(first_index + end - 1),
                    pos,
                    b"".join(buffers[parts * start : parts * end]),
                    [position - pos for position in positions[start:end]],
                )
            )
        batch = self._write(batches, b"".join(units), last_index, term, next_pos, chain)
        self._term_runs.add(first_index, term)
        if kind is EntryKind.MEMBERSHIP:
            assert len(bodies) == 1, "a membership entry comes alone"
            self.memberships.add(Index(first_index), bodies[0])
        return batch

    def _seal(
        self,
        bodies: Sequence[bytes],
        positions: Sequence[Pos],
        first_index: int,
        term: Term,
        kind: EntryKind,
        head_kind: EntryKind | None,
    ) -> tuple[Sequence[bytes], int]:
        """The bytes of the entries, equally many parts of each, and the chain behind them."""
        chain = self.ledger_end_chain
        if head_kind is None:
            return seal_entries(bodies, positions, first_index, term, kind, chain)
        head, chain = seal_entries(bodies[:1], positions[:1], first_index, term, head_kind, chain)
        others, chain = seal_entries(bodies[1:], positions[1:], first_index + 1, term, kind, chain)
        return head + others, chain

    def append_range(self, payload: VerifiedRange, skip: int) -> Batch:
        """Writes verified entries but the first `skip` as they are. They must follow the end of the log.

        Raises PositionMismatchError, DiskError; the log is then as before.
        """
        assert self._cutting is None, "no append while a cut is under way"
        assert 0 <= skip < payload.count, "an entry is left"
        first_index = payload.first_index + skip
        assert first_index == self.ledger_end_index + 1, "entries follow the end"
        start = payload.offsets[skip]
        pos, next_pos = payload.first_pos + start, payload.next_pos
        self._data.check_follows(self.ledger_end_pos, pos, next_pos)
        whole = payload.buffer
        header = memoryview(whole)[start : start + ENTRY_HEADER_SIZE]
        chained = chain_after(header, self.ledger_end_chain) == chain_crc_at(whole, start)
        assert chained, "entries are verified against the chain of the entry that they follow"
        size = payload.size
        if start or len(whole) != size or not isinstance(whole, bytes):
            buffer = bytes(memoryview(whole)[start:size])
            offsets = [offset - start for offset in payload.offsets[skip:]]
        else:
            buffer, offsets = whole, payload.offsets
        recent = RecentBatch(Index(first_index), payload.last_index, Pos(pos), buffer, offsets)
        units = index_units_of(payload)[skip * INDEX_UNIT_SIZE :]
        batch = self._write([recent], units, payload.last_index, payload.last_term, next_pos, payload.chain)
        self._term_runs.add_all(first_index, payload.terms[skip:])
        if EntryKind.MEMBERSHIP in payload.kinds:
            self.memberships.add_range(payload, skip, self.head_size)
        return batch

    def _write(
        self,
        batches: Sequence[RecentBatch],
        units: bytes,
        last_index: int,
        term: Term,
        next_pos: int,
        chain: int,
    ) -> Batch:
        """Writes entries and their units, and the log ends behind them. Raises DiskError; then nothing has changed."""
        data_files = self._data.write(self.ledger_end_pos, batches)
        first_index = batches[0].first_index
        try:
            index_files = self._index.write(first_index, units)
        except DiskError:
            self._data.forget_from(self.ledger_end_pos, next_pos)
            raise
        for mapped_file in data_files:
            if mapped_file not in self._dirty_data:
                mapped_file.hold()
                self._dirty_data.append(mapped_file)
        for mapped_file in index_files:
            if mapped_file not in self._dirty_index:
                mapped_file.hold()
                self._dirty_index.append(mapped_file)
        size = 0
        for batch in batches:
            self.recent.append(batch)
            if batch.pos % self._data.file_size == 0:
                self._file_begins.append(batch.first_index)
            size += len(batch.buffer)
        self.ledger_end_index = Index(last_index)
        self.ledger_end_term = term
        self.ledger_end_pos = Pos(next_pos)
        self.ledger_end_chain = chain
        return Batch(first_index, self.ledger_end_index, term, size)

    # -- durability --------------------------------------------------------------------------------------------

    def sync_job(self) -> SyncJob | None:
        """A job that makes all that is appended now durable; None when nothing was written since the last one."""
        if not self._dirty_data:
            return None
        job = SyncJob(self.log_generation, self.ledger_end_index, self.ledger_end_pos, self._dirty_data)
        self._release(self._dirty_data)
        self._syncs.append(job)
        return job

    def sync_done(self, job: SyncJob) -> Index:
        """Settles a job that has run without error. Returns the durable index, which cuts since may have limited."""
        self._syncs.remove(job)
        self._release(job.held)
        if job.durable_index > self.durable_index:
            self.durable_index = job.durable_index
            self.durable_pos = job.durable_pos
        return self.durable_index

    @property
    def index_before_untold(self) -> Index:
        """The last entry in front of the first one that the mark on disk has to tell of and does not: that says who the
        members are, or begins a data file. The end if there is none.

        A member that lost a file with these would not know that it lost something, or whose votes count.
        """
        mark, on_disk = self._mark, self._mark_on_disk  # a cut has lowered the one, and not yet the other
        index = self.ledger_end_index
        marked_index = min(mark.index, on_disk.index)
        if self.memberships.last_index > marked_index:
            first_index = self.memberships.first_behind(min(mark.told_index, on_disk.told_index))
            if first_index is not None:
                index = Index(first_index - 1)
        if self._file_begins:
            number = bisect_right(self._file_begins, marked_index)
            if number < len(self._file_begins):
                index = min(index, Index(self._file_begins[number] - 1))
        return index

    @property
    def unsynced_size(self) -> int:
        """Bytes appended that are not durable."""
        return self.ledger_end_pos - self.durable_pos

    def mark_job(self, now_ms: int) -> MarkJob | None:
        """A job that moves the synced mark to the durable index, when it is time: each second or 64 MiB, and at once to
        what it has to tell of.
        """
        mark = self._mark
        if self._marking or self._moving or self._cutting or self.durable_index <= mark.index:
            return None
        if self._mark_moved_ms is None:
            self._mark_moved_ms = now_ms  # the first entries since the start
        step = self.durable_pos - mark.end_pos
        is_time = step >= MARK_STEP_SIZE or now_ms - self._mark_moved_ms >= MARK_INTERVAL_MS
        if not is_time and self.index_before_untold >= self.durable_index:
            return None
        self._mark_moved_ms = now_ms
        with suppress(FaultyEntryError):
            return self._new_mark_job()
        return None  # it would name an entry that is damaged now: it moves when that is repaired

    def mark_done(self, job: MarkJob) -> None:
        """Settles a job that has run without error."""
        assert job is self._marking
        self._marking = None
        self._release(job.held)
        if not job.cancelled and not job.lacks_space:
            self._mark = job.mark
            self._mark_on_disk = job.mark
            del self._file_begins[: bisect_right(self._file_begins, job.mark.index)]

    def _new_mark_job(self) -> MarkJob:
        chain = self.chain_at(self.durable_index)
        assert chain is not None
        mark = replace(
            self._mark,
            index=self.durable_index,
            term=self._present_term(self.durable_index),
            end_pos=self.durable_pos,
            chain_crc=chain,
            **self._memberships_as_marked(self.durable_index),
        )
        self._marking = MarkJob(self._mark_file, mark, self._dirty_index)
        self._release(self._dirty_index)
        return self._marking

    def doubt_saved(self) -> None:
        """The quorum state has the doubt durably. Blocks on a sync, if the mark has it too: a start would else find it
        there again, when the doubt has long ended. Before any job is made. Raises DiskError.
        """
        if self._mark.doubted:
            self._mark = replace(self._mark, doubted=False)
            self._mark_file.write(self._mark)

    # -- space -------------------------------------------------------------------------------------------------

    def probe_job(self) -> ProbeSpaceJob:
        """A job after which an append may find space that has found none. Raises DiskError."""
        zeroed: list[MappedFile] = []
        with suppress(NoSpaceError):
            zeroed = self._data.zero_stray()
            self._clearing = self._data.stray
        # As much as the next append may ask for.
        size = min(self.config.allocate_step, self.config.data_file_size)
        path = f"{self.config.own_directory}/space-probe"
        return ProbeSpaceJob(self._disk, path, size, zeroed)

    def probe_done(self, job: ProbeSpaceJob, error: DiskError | None = None) -> bool:
        """Settles a job that has run, or found no space. Returns whether appends are taken again."""
        self._release(job.held)
        cleared, self._clearing = self._clearing, None
        if error is None and cleared is self._data.stray:  # not one that came while the job ran
            self._data.stray = None
        return error is None and self._data.stray is None

    # -- the end -----------------------------------------------------------------------------------------------

    @property
    def is_marked(self) -> bool:
        """Whether the mark on disk tells of all that is durable."""
        return self._mark_on_disk.index == self.durable_index

    def close(self, *, clean: bool = False) -> None:
        """Closes the files; no job may be under way. `clean`: syncs and marks the end first, and removes the file
        made ahead, in which Java would look for a message. Blocks. Raises DiskError, and all is closed then.
        """
        try:
            if clean:
                self._close_clean()
        finally:
            self._release(self._dirty_data)
            self._release(self._dirty_index)
            self._data.queue.close()
            self._index.queue.close()
            self._mark_file.close()
            self._faulty_file.close()

    def _close_clean(self) -> None:
        under_way = [
            job
            for job in (*self._syncs, self._marking, self._moving, self._cutting, self._noting)
            if job is not None
        ]
        assert not under_way, "jobs are settled first"
        zeroed: list[MappedFile] = []
        with suppress(NoSpaceError):  # a start cuts what is left
            zeroed = self._data.zero_stray()
        for mapped_file in zeroed:
            mapped_file.file().fdatasync()
        sync = self.sync_job()
        if sync is not None:
            sync.run()
            self.sync_done(sync)
        if self.faulty.ranges != self._faulty_file.ranges:
            with suppress(NoSpaceError):  # whoever reads there after a start finds it again
                self._faulty_file.write(self.faulty.ranges)
        if self.durable_index > self._mark.index:
            mark = self._new_mark_job()
            mark.run()
            self.mark_done(mark)
        # Else damage to one slot could uncover the mark before, which does not tell of all that was acknowledged.
        self._mark_file.slots.sync_copy()
        self._data.queue.delete_from(self._data.file_end(self.ledger_end_pos))
        self._disk.sync_directory(self.config.data_directory)
