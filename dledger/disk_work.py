"""When a replica's disk work is due, and one blocking job of a kind at a time: sync, hard state, cut, mark,
next file, probe for space.

Group commit falls out of that: while a sync runs, what is appended waits; when it ends, the next takes all
of it. What a finished job means for the core is the replica's to say: `settle` returns it as a value.
"""

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from disk.disk import NoSpaceError
from dledger.config import DLedgerConfig, FlushMode
from dledger.core.messages import LedgerBegin
from dledger.core.output import BeginAnew, Cut, HardState
from dledger.entry import Index, Pos, Term
from dledger.log.committed_mark import CommittedMark, CommittedMarkJob
from dledger.log.java_files import curr_term_job
from dledger.log.jobs import (
    CutJob,
    DiskJob,
    MarkJob,
    MoveBeginJob,
    NoteFaultsJob,
    PrepareFileJob,
    ProbeSpaceJob,
    SyncJob,
)
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState

log = logging.getLogger(__name__)


class Synced(msgspec.Struct, frozen=True, gc=False):
    """More of the log is durable, or told by its mark. How far it goes the log says, which knows of cuts meanwhile."""


class HardStateSaved(msgspec.Struct, frozen=True, gc=False):
    sequence: int


class CutDone(msgspec.Struct, frozen=True, gc=False):
    pass


class SpaceProbed(msgspec.Struct, frozen=True, gc=False):
    """What a probe has found."""

    has_space: bool


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The member must not go on: what a failed sync did not write counts as written for ever after."""

    reason: str


Settled = Synced | HardStateSaved | CutDone | SpaceProbed | Failed
# What follows from a job that has run, with an error that it tolerates or without one, at a time in ms.
Ended = Callable[[Exception | None, int], Settled | None]


class DiskWork:
    """Invariant: at most one job of a kind is under way."""

    def __init__(
        self,
        config: DLedgerConfig,
        log_store: LogStore,
        quorum_state: QuorumState,
        submit: Callable[[DiskJob], None],
        now_ms: int,
    ) -> None:
        self._config = config
        self._log = log_store
        self._quorum_state = quorum_state
        self._submit = submit
        self._under_way: dict[DiskJob, tuple[Ended, type[Exception] | tuple[type[Exception], ...]]] = {}
        self._syncs_each_append = config.flush_mode is FlushMode.SYNC_FLUSH
        self._sync: SyncJob | None = None
        self._cut: CutJob | None = None
        self._mark: MarkJob | None = None
        self._move: MoveBeginJob | None = None
        self._note: NoteFaultsJob | None = None
        self._prepare: PrepareFileJob | None = None
        self._probe: ProbeSpaceJob | None = None
        self._probe_at_ms: int | None = None
        self._saving: HardState | None = None
        self._is_exporting = False
        self._exported: Term | None = None
        self._committed_mark = CommittedMark(log_store.disk, log_store.config.own_directory, now_ms)
        self._flushed_ms = now_ms
        self._thorough_ms = now_ms
        self._prepare_not_before_ms = now_ms
        self._note_not_before_ms = now_ms
        self._mark_not_before_ms = now_ms
        self._prepared_pos = Pos(-1)  # where the log ended when nothing ahead was wanting

    @property
    def idle(self) -> bool:
        """Nothing under way. What is not due yet is not counted."""
        return not self._under_way

    def appended(self) -> None:
        """Entries have just been handed to the log store."""
        if self._syncs_each_append and self._sync is None:
            self.start_sync()

    def save_hard_state(self, hard_state: HardState) -> None:
        assert self._saving is None, "the core waits for hard_state_saved"
        self._saving = hard_state
        ended = partial(self._hard_state_ended, hard_state)
        self._start(self._quorum_state.store_job(hard_state), ended)

    def hard_state_stored(self) -> None:
        """All that was given is on disk by another way, and nobody waits for the job that was to do it."""
        self._saving = None

    def begin_cut(self, cut: Cut | BeginAnew) -> None:
        """The log store has done it in memory when this returns; nothing may be appended before CutDone."""
        assert self._cut is None, "the core waits for cut_done"
        if isinstance(cut, Cut):
            self._cut = self._log.begin_cut(cut.from_index)
        else:
            self._cut = self._log.begin_anew(
                cut.before_begin_index,
                cut.before_begin_term,
                cut.before_begin_chain,
                cut.begin_pos,
                cut.membership,
            )
        self._start(self._cut, self._cut_ended)

    def no_space(self, now_ms: int) -> None:
        """A write has failed for want of space: probes again and again, until there is some. More writes that fail put
        that off no further.
        """
        if self._probe is None and self._probe_at_ms is None:
            self._probe_at_ms = now_ms + self._config.no_space_retry_ms

    def probe_space(self, now_ms: int) -> None:
        """At the next tick."""
        if self._probe is None:
            self._probe_at_ms = now_ms

    def delete_first_file(self) -> bool:
        """Whether a deletion of the oldest data file has begun."""
        return self._move_begin(self._log.delete_first_file_job)

    def begin_at(self, begin: LedgerBegin) -> bool:
        """Whether the log begins there from now on, and the files in front of it are being deleted."""
        return self._move_begin(lambda: self._log.begin_at_job(begin))

    def _move_begin(self, make_job: Callable[[], MoveBeginJob | None]) -> bool:
        if self._move is not None or self._mark is not None or self._cut is not None:
            return False
        self._move = make_job()
        if self._move is None:
            return False
        self._start(self._move, self._move_ended)
        return True

    def start_sync(self) -> None:
        """Of all that was appended up to now, unless one is under way or nothing waits."""
        if self._sync is not None:
            return
        job = self._log.sync_job()
        if job is not None:
            self._sync = job
            self._start(job, self._sync_ended)

    def tick(self, committed_index: Index, now_ms: int) -> None:
        if not self._syncs_each_append:
            self._flush(now_ms)
        self._start_mark(now_ms)
        if (telling := self._committed_mark.job(committed_index, now_ms)) is not None:
            # Nothing of ours depends on it.
            self._start(telling, partial(self._committed_mark_ended, telling), tolerates=Exception)
        if self._probe_at_ms is not None and now_ms >= self._probe_at_ms:
            self._probe_at_ms = None
            self._probe = self._log.probe_job()
            self._start(self._probe, self._probe_ended, tolerates=NoSpaceError)
        if self._note is None and now_ms >= self._note_not_before_ms:
            self._note = self._log.note_faults_job()
            if self._note is not None:
                self._start(self._note, self._note_ended, tolerates=NoSpaceError)
        # Half a file ahead, or half a step of allocation, is more than what comes in between two ticks.
        end_pos = self._log.ledger_end_pos
        if end_pos != self._prepared_pos and self._prepare is None and now_ms >= self._prepare_not_before_ms:
            self._prepare = self._log.prepare_job()
            if self._prepare is not None:
                self._start(self._prepare, self._prepare_ended, tolerates=NoSpaceError)
            elif self._cut is None:
                self._prepared_pos = end_pos

    def _start_mark(self, now_ms: int) -> None:
        is_free = self._mark is None and self._cut is None and self._move is None
        if is_free and now_ms >= self._mark_not_before_ms:
            self._mark = self._log.mark_job(now_ms)
            if self._mark is not None:
                self._start(self._mark, self._mark_ended)

    def _start(
        self, job: DiskJob, ended: Ended, *, tolerates: type[Exception] | tuple[type[Exception], ...] = ()
    ) -> None:
        """Submits a job. `ended` follows from it, also from an error that it `tolerates`."""
        self._under_way[job] = (ended, tolerates)
        self._submit(job)

    def settle(self, job: DiskJob, error: Exception | None, now_ms: int) -> Settled | None:
        """`job` has run. An error that it does not tolerate, want of space in a sync included, means that something is
        not on disk that this member believed to be there.
        """
        ended, tolerates = self._under_way.pop(job)
        if error is not None and not isinstance(error, tolerates):
            return Failed(f"{job.kind} job: {error!r}")
        return ended(error, now_ms)

    def _sync_ended(self, error: Exception | None, now_ms: int) -> Settled:
        job, self._sync = self._sync, None
        assert job is not None, "one was started"
        self._log.sync_done(job)
        if self._syncs_each_append:
            self.start_sync()
        self._start_mark(now_ms)
        return Synced()

    def _hard_state_ended(
        self, hard_state: HardState, error: Exception | None, now_ms: int
    ) -> Settled | None:
        if self._saving is not hard_state:
            return None  # it was stored by another way meanwhile
        self._saving = None
        self._export_curr_term()
        return HardStateSaved(hard_state.sequence)

    def _cut_ended(self, error: Exception | None, now_ms: int) -> Settled:
        job, self._cut = self._cut, None
        assert job is not None, "one was started"
        self._log.cut_done(job)
        return CutDone()

    def _mark_ended(self, error: Exception | None, now_ms: int) -> Settled | None:
        job, self._mark = self._mark, None
        assert job is not None, "one was started"
        self._log.mark_done(job)
        if job.lacks_space:
            self._mark_not_before_ms = now_ms + self._config.no_space_retry_ms
            return None
        return Synced()

    def _move_ended(self, error: Exception | None, now_ms: int) -> Settled:
        job, self._move = self._move, None
        assert job is not None, "one was started"
        self._log.move_begin_done(job)
        self._start_mark(now_ms)
        return Synced()

    def _prepare_ended(self, error: Exception | None, now_ms: int) -> None:
        """The next file may be late for want of space: the append that needs it will say so."""
        job, self._prepare = self._prepare, None
        assert job is not None, "one was started"
        assert error is None or isinstance(error, NoSpaceError), "it tolerates no other"
        self._log.prepare_done(job, error)
        if error is not None:
            self._prepare_not_before_ms = now_ms + self._config.no_space_retry_ms

    def _note_ended(self, error: Exception | None, now_ms: int) -> None:
        """Without space nobody has written down what is damaged: whoever reads there after a start finds it again."""
        job, self._note = self._note, None
        assert job is not None, "one was started"
        self._log.faults_noted(job)
        if error is not None:
            self._note_not_before_ms = now_ms + self._config.no_space_retry_ms

    def _probe_ended(self, error: Exception | None, now_ms: int) -> Settled:
        job, self._probe = self._probe, None
        assert job is not None, "one was started"
        assert error is None or isinstance(error, NoSpaceError), "it tolerates no other"
        has_space = self._log.probe_done(job, error)
        if not has_space:
            self.no_space(now_ms)
        return SpaceProbed(has_space)

    def _committed_mark_ended(self, job: CommittedMarkJob, error: Exception | None, now_ms: int) -> None:
        self._committed_mark.done(job, error)

    def _export_curr_term(self) -> None:
        wanted = self._quorum_state.hard_state.curr_term
        if not self._is_exporting and self._exported != wanted:
            self._exported = wanted
            self._is_exporting = True
            job = curr_term_job(self._log.disk, self._config.directory, wanted)
            self._start(job, self._export_ended, tolerates=Exception)

    def _export_ended(self, error: Exception | None, now_ms: int) -> None:
        """Nothing of ours depends on it; the next change of term, or a clean stop, writes it again."""
        self._is_exporting = False
        if error is not None:
            log.warning("currterm not exported directory=%s error=%s", self._config.directory, error)
        else:
            self._export_curr_term()

    def _flush(self, now_ms: int) -> None:
        if now_ms - self._thorough_ms >= self._config.flush_thorough_interval_ms:
            self._thorough_ms = self._flushed_ms = now_ms
            self.start_sync()
        elif now_ms - self._flushed_ms >= self._config.flush_interval_ms:
            self._flushed_ms = now_ms
            if self._log.unsynced_size >= self._config.flush_size_min:
                self.start_sync()
