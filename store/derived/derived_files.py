"""Looks after what is derived from the log while the member runs: flushes it, walks through it for damage, mends that,
and lets go what retention takes. At a start it is recovered, at a clean stop all of it is flushed.
"""

import logging

from disk.disk import Disk, NoSpaceError
from dledger.entry import Index
from dledger.log.java_files import checkpoint_job
from dledger.log.jobs import DiskJob
from store.derived.checkpoint_file import Checkpoint
from store.derived.state_files_scrub import StateFilesScrub
from store.derived.store_checkpoints import StoreCheckpoints
from store.derived.store_flusher import StoreFlusher
from store.derived.sums_file import DerivedSums
from store.errors import MessageDamagedError, UnitDamagedError
from store.index.index_file_scrub import ChainScrub
from store.index.index_service import IndexService
from store.java.abort_file import mark_stopped
from store.java.old_commit_log import OldCommitLog
from store.java.timer_export import TimerExport, remove_timer_files
from store.message_reader import MessageReader
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.record_walk import RecordWalk
from store.queues.unit_rebuild import OnMended, UnitRebuild
from store.queues.unit_scrub import UnitScrub
from store.replicated_log import ReplicatedLog
from store.reput import Reput
from store.retention import FirstWaitingPos, HourOf, Retention
from store.state.state_machine import StateMachine
from store.store_config import StoreConfig
from store.store_runtime import StoreRuntime

log = logging.getLogger(__name__)


class DerivedFiles:
    """Invariant: after the log began anew nothing is derived from it (`is_clearing`) before the files that were derived
    from the former log have gone, and these go once no job writes to them.
    """

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        runtime: StoreRuntime,
        replica: ReplicatedLog,
        old_commit_log: OldCommitLog,
        queues: ConsumeQueueStore,
        state: StateMachine,
        reput: Reput,
        reader: MessageReader,
        index: IndexService,
        checkpoints: StoreCheckpoints,
        on_mended: OnMended,
        first_waiting_pos: FirstWaitingPos,
        hour_of: HourOf,
    ) -> None:
        """`on_mended` hears of each mended unit, for readers may remember what it said before."""
        self._config = config
        self._disk = disk
        self._runtime = runtime
        self._replica = replica
        self._queues = queues
        self._state = state
        self._reput = reput
        self._index = index
        self._checkpoints = checkpoints
        self._last_checkpoint: Checkpoint | None = None  # taken by stop()
        self._timer_export: TimerExport | None = None  # likewise
        self._reader = reader
        self.is_clearing = False
        self.flusher = StoreFlusher(
            config,
            disk,
            queues,
            state,
            checkpoints.capture,
            lambda: DerivedSums(queues.pack_sums(), index.sums).pack(),
            lambda: index.flushed_timestamp,
            runtime.submit,
        )
        self.retention = Retention(
            config, disk, replica, old_commit_log, queues, self.flusher, first_waiting_pos, hour_of
        )
        self.unit_rebuild = UnitRebuild(
            lambda: RecordWalk(config, replica.log, old_commit_log, reput),
            queues,
            reader,
            on_mended,
            runtime.submit,
        )
        self._unit_scrub = UnitScrub(disk, queues, self.unit_rebuild)
        replica.scrubber.add(self._unit_scrub)
        replica.scrubber.add(ChainScrub(disk, index))
        replica.scrubber.add(StateFilesScrub(disk, self.flusher))

    # -- start and end -----------------------------------------------------------------------------------------

    def recover(self, *, stopped_cleanly: bool) -> None:
        """Blocks. Raises DiskError, StoreDamagedError."""
        self._checkpoints.recover()
        self._index.open(self._checkpoints.sums.index_files, stopped_cleanly=stopped_cleanly)
        self.flusher.checkpoint_index = self._reput.applied_index
        # With the next term: before, what Java's broker has left in config/ may still be wanted.
        self.flusher.export_from_index = Index(self._replica.log.ledger_end_index + 1)
        # What a stop has left of the files of deleted topics goes.
        self.retention.queues.emptied(self._queues.empty_queues(self._state.deleted_topics))

    def stop(self, now_ms: int) -> None:
        """All that is committed is dispatched, for the last time. Raises DiskError."""
        self._index.catch_up(now_ms)
        self._last_checkpoint = self._checkpoints.capture()
        if self.flusher.may_export(self._reput.applied_index):
            self._timer_export = self._collect_timers()

    def _collect_timers(self) -> TimerExport | None:
        table = self._state.tables.timer_table
        try:
            return TimerExport(self._disk, self._config, self._queues, self._reader, table)
        except (UnitDamagedError, MessageDamagedError) as error:
            log.warning("timer messages are not handed over, RocketMQ reads them all again error=%s", error)
            remove_timer_files(self._disk, self._config)
            return None

    def close(self, now_ms: int, *, clean: bool) -> None:
        """Clean (after stop()): flushes all, and exports it for Java, unless there is no space; blocks. Raises
        DiskError.
        """
        if clean:
            try:
                self._flush_all(now_ms)
            except NoSpaceError as error:
                log.warning(
                    "derived files are left as by a crash, the next start makes them good error=%s", error
                )
        self._index.close()
        self._queues.close()

    def _flush_all(self, now_ms: int) -> None:
        applied_index = self._reput.applied_index
        self._index.flush(now_ms)  # the checkpoint tells of it
        self.flusher.flush_all(applied_index, self._last_checkpoint)
        if self._timer_export is not None:
            self._timer_export.run()
        # Java dispatches what lies behind this index; were it too far, those messages never got units.
        end_index = self._replica.log.ledger_end_index
        checkpoint_job(self._disk, self._config.ledger_directory, end_index, applied_index).run()
        mark_stopped(self._disk, self._config)

    # -- while it runs -----------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way."""
        return self.flusher.is_busy or self._index.is_busy or self.unit_rebuild.is_busy

    @property
    def has_work(self) -> bool:
        """For the next tick."""
        return self._index.has_work or self.unit_rebuild.has_work or self.retention.queues.has_work

    def tick(self, now_ms: int) -> None:
        """Starts jobs that are due. Raises StoreDamagedError, DiskError."""
        self.flusher.tick(self._reput.applied_index, now_ms)
        if not self.is_clearing:
            self.unit_rebuild.tick()
            self._index.tick(now_ms)
            self.retention.tick(self._state.full_state_log.complete_index, now_ms)

    def job_done(self, job: DiskJob, error: Exception | None, now_ms: int) -> None:
        if not self._index.job_done(job, error) and not self.unit_rebuild.job_done(job, error):
            self.flusher.job_done(job, error)
        self.clear()
        self.flusher.tick(self._reput.applied_index, now_ms)

    # -- a log that begins anew --------------------------------------------------------------------------------

    def begin_anew(self) -> None:
        """What was derived is void. Its files go with clear()."""
        self._queues.forget_all()
        self._unit_scrub.end_round()
        self.unit_rebuild.begin_anew()
        self.flusher.begin_anew()
        self.retention.begin_anew()
        self.is_clearing = True

    def clear(self) -> None:
        """Deletes the files of the former log, if there are any and no job writes to them. Raises DiskError."""
        if self.is_clearing and not self.is_busy:
            self._queues.delete_all()
            self._index.begin_anew()
            self.is_clearing = False
            if self._reput.is_behind:
                self._runtime.reput_wanted()
