"""Decides when derived files go to disk: ConsumeQueue units, checkpoints, config/*.json. One job at a time.

A checkpoint is two steps: the state is captured at an applied index, then all units up to there are flushed, and only
then is the captured state written. So what it says of the ConsumeQueues holds whenever it can be read.
"""

import logging
from collections.abc import Callable
from typing import Final
from zlib import crc32

import msgspec

from disk.disk import Disk, DiskError
from dledger.entry import Index
from dledger.log.jobs import DiskJob
from store.derived.checkpoint_file import CHECKPOINT_NAMES, Checkpoint, CheckpointJob
from store.java.exports import ExportJob, Versions, versions_of
from store.layout.checkpoint import StoreCheckpoint
from store.layout.consume_queue_unit import CQ_UNIT_SIZE
from store.queues.consume_queue_flush import ConsumeQueueFlushJob
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_queue import UnitQueue
from store.state.state_machine import StateMachine
from store.store_config import StoreConfig

log = logging.getLogger(__name__)

_PAGE_SIZE: Final = 4096
_RETRY_MS: Final = 1000

Capture = Callable[[], Checkpoint | None]


class _CheckpointUnderWay(msgspec.Struct):
    applied_index: Index
    content: bytes
    sums: bytes
    java_checkpoint: StoreCheckpoint
    unflushed: list[UnitQueue] = msgspec.field(default_factory=list)


class StoreFlusher:
    """Invariant: at most one job is under way, and job_done() is called for each."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        queues: ConsumeQueueStore,
        state: StateMachine,
        capture: Capture,
        pack_sums: Callable[[], bytes],
        index_msg_timestamp: Callable[[], int],
        submit: Callable[[DiskJob], None],
    ) -> None:
        """`capture` gives the state as it is now, None if it is not fit for a checkpoint; `pack_sums` the sums of
        derived files. `index_msg_timestamp`: up to which store time, ms, IndexFiles are on disk.
        """
        self._config = config
        self._disk = disk
        self._queues = queues
        self._state = state
        self._capture = capture
        self._pack_sums = pack_sums
        self._index_msg_timestamp = index_msg_timestamp
        self._submit = submit
        self._job: DiskJob | None = None
        self._checkpoint: _CheckpointUnderWay | None = None
        self._to_flush: list[UnitQueue] = []
        self._exported: Versions | None = None
        # Nothing is exported before this is applied: Java may have written what lies in config/ now, and whoever leads
        # first looks at it. A member that has no entry yet may come to hold, and lead on, Java's.
        self.export_from_index = Index(-1)
        self._started_ms: int | None = None  # when the first tick came; all intervals count from there
        self._checkpoint_ms = self._flush_ms = self._export_ms = 0
        self.checkpoint_index = Index(-1)  # applied index of the newest checkpoint on disk
        self.capture_number = 0  # of the newest state captured for a checkpoint
        self.written_number = 0  # of the newest one that is on disk
        self._wanted_number = 0
        # What lies on disk as a whole, with its CRC-32; None: a checkpoint of ours, which has one in it.
        self._state_directory = f"{config.ledger_directory}/pydledger"
        self.written: dict[str, int | None] = {}
        self._forget_written()

    @property
    def is_busy(self) -> bool:
        return self._job is not None

    def tick(self, applied_index: Index, now_ms: int) -> None:
        """Submits a job if one is due."""
        if self._job is not None:
            return
        if self._started_ms is None:
            self._started_ms = self._checkpoint_ms = self._flush_ms = self._export_ms = now_ms
        config = self._config
        is_wanted = self.written_number < self._wanted_number
        if self._checkpoint is None and (applied_index > self.checkpoint_index or is_wanted):
            ahead = applied_index - self.checkpoint_index
            waited = now_ms - self._checkpoint_ms
            if waited >= config.flush_consume_queue_thorough_interval_ms or (
                (ahead >= config.checkpoint_entries_max or is_wanted) and waited >= _RETRY_MS
            ):
                self._checkpoint_ms = now_ms
                captured = self._capture()
                if captured is not None:
                    self._begin_checkpoint(captured)
        if now_ms - self._flush_ms >= config.flush_interval_consume_queue_ms:
            self._flush_ms = now_ms
            least_units = config.flush_consume_queue_least_pages * _PAGE_SIZE // CQ_UNIT_SIZE
            self._to_flush = self._queues.dirty(least_units)
        job = self._next_job()
        if job is None and now_ms - self._export_ms >= config.flush_consumer_offset_interval_ms:
            self._export_ms = now_ms
            job = self._export_job(applied_index)
        if job is not None:
            self._job = job
            self._submit(job)

    def want_checkpoint(self) -> None:
        """Soon, although nothing may have been applied since the last one."""
        self._wanted_number = self.capture_number + 1

    def write_anew(self, path: str) -> None:
        """One of `written` is damaged. With no job under way. Raises DiskError."""
        crc = self.written[path]
        if crc is None:
            # Lest the next checkpoint go over the sound one, where nothing was applied meanwhile.
            self._disk.unlink(path)
        if path.startswith(f"{self._config.store_path_root_dir}/config/"):
            self._exported = None
        else:
            self.want_checkpoint()

    def _forget_written(self) -> None:
        self.written.clear()
        for name in CHECKPOINT_NAMES:
            self.written[f"{self._state_directory}/{name}"] = None

    def begin_anew(self) -> None:
        """The queues and the state are gone, and so is what was to be written of them."""
        self._forget_written()
        self._checkpoint = None
        self._to_flush = []
        self._exported = None
        self.export_from_index = Index(-1)

    def job_done(self, job: DiskJob, error: Exception | None) -> None:
        """A DiskError is tried again later, for all of this can be made again. Raises any other error."""
        assert job is self._job, f"{job.kind} is not the job under way"
        self._job = None
        self._settle(job, error)
        if error is not None and not isinstance(error, DiskError):
            raise error

    def flush_all(self, applied_index: Index, checkpoint: Checkpoint | None) -> None:
        """Everything, now; blocks. Raises DiskError. No job may be under way. `checkpoint`: of the state as it is, None
        if it is not fit for one.
        """
        assert self._job is None, "jobs are settled first"
        self._checkpoint = None
        if checkpoint is not None and checkpoint.applied_index > self.checkpoint_index:
            self._begin_checkpoint(checkpoint)
        self._to_flush = self._queues.dirty()
        if self._state.tables.pop_table.check_point_count:
            self._exported = None  # RocketMQ's offsets are to be others than those that were exported
        while (job := self._next_job() or self._export_job(applied_index, is_hand_over=True)) is not None:
            try:
                job.run()
            except DiskError as error:
                self._settle(job, error)
                raise
            self._settle(job, None)

    def _begin_checkpoint(self, captured: Checkpoint) -> None:
        self.capture_number += 1
        java_checkpoint = StoreCheckpoint(
            physic_msg_timestamp=captured.store_timestamp,
            logics_msg_timestamp=captured.store_timestamp,
            # After a crash Java deletes IndexFiles that end later than that.
            index_msg_timestamp=self._index_msg_timestamp(),
            confirm_phy_offset=captured.confirm_offset,
        )
        self._checkpoint = _CheckpointUnderWay(
            captured.applied_index, captured.pack(), self._pack_sums(), java_checkpoint, self._queues.dirty()
        )

    def _next_job(self) -> DiskJob | None:
        checkpoint = self._checkpoint
        if checkpoint is None:
            return self._queues.flush_job(self._to_flush)
        return self._queues.flush_job(checkpoint.unflushed) or CheckpointJob(
            self._disk,
            self._state_directory,
            checkpoint.applied_index,
            checkpoint.content,
            checkpoint.sums,
            store_path_root_dir=self._config.store_path_root_dir,
            java_checkpoint=checkpoint.java_checkpoint,
        )

    def may_export(self, applied_index: Index) -> bool:
        return applied_index >= max(self.export_from_index, 0) and self._state.is_whole

    def _export_job(self, applied_index: Index, *, is_hand_over: bool = False) -> ExportJob | None:
        tables = self._state.tables
        if not self.may_export(applied_index):
            return None
        if self._exported == versions_of(tables):
            return None
        directory = f"{self._config.store_path_root_dir}/config"
        return ExportJob(
            self._disk, directory, tables, applied_index, self._exported, is_hand_over=is_hand_over
        )

    def _settle(self, job: DiskJob, error: Exception | None) -> None:
        if error is not None:
            log.warning("job failed, will be tried again job=%s error=%s", job.kind, error)
            self._checkpoint = None
            if not isinstance(job, ConsumeQueueFlushJob):
                self._forget_written()  # it may have written some of it
        match job:
            case ConsumeQueueFlushJob():
                self._queues.flush_done(job, succeeded=error is None)
            case CheckpointJob() if error is None:
                self.checkpoint_index = job.applied_index
                self.written_number = self.capture_number
                self._checkpoint = None
                self.written[job.java_path] = crc32(job.java_content)
            case ExportJob() if error is None:
                self._exported = job.versions
                self.written.update(job.written)
