"""Writes a ConsumeQueue's unit anew as soon as a reader has met its damage, and does not wait for the scrub.

Where the log has the record is not known: so it is looked for behind the record of the nearest unit in front that is
sound. It goes on until it finds a sound unit behind, for damage seldom hits one unit alone.
"""

import logging
from collections.abc import Callable
from typing import Final

from dledger.log.jobs import DiskJob
from store.dispatch_request import QueueKey
from store.errors import MessageDamagedError, StoreDamagedError
from store.message_reader import MessageReader
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_queue import UnitQueue
from store.queues.unit_scrub import UnitScrub, UnitScrubJob
from store.queues.unit_scrub_jobs import CompareUnitsJob

log = logging.getLogger(__name__)

KIND: Final = "mend-consume-queue"
# Of one tick: consumers wait, and so do others for the disk and the interpreter.
_STEP_SIZE: Final = 256 * 1024


class UnitMender:
    """Invariant: at most one job is under way; what is wanted is mended one after the other."""

    def __init__(
        self,
        walk: UnitScrub,
        queues: ConsumeQueueStore,
        reader: MessageReader,
        head_size: int,
        submit: Callable[[DiskJob], None],
    ) -> None:
        """`walk`: of its own."""
        self._walk = walk
        self._queues = queues
        self._reader = reader
        self._head_size = head_size
        self._submit = submit
        self._wanted: dict[QueueKey, int] = {}  # queue offsets
        self._current: tuple[UnitQueue, int] | None = None
        self._is_found = False  # the log has a record for it
        self._job: UnitScrubJob | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way."""
        return self._job is not None

    @property
    def mended(self) -> int:
        """Units, since the start."""
        return self._walk.mended

    def want(self, topic: bytes, queue_id: int, offset: int) -> None:
        self._wanted[topic, queue_id] = min(offset, self._wanted.get((topic, queue_id), offset))

    def begin_anew(self) -> None:
        """The log has: all queues are gone."""
        self._wanted.clear()
        self._current = None
        self._walk.end_round()

    @property
    def has_work(self) -> bool:
        """For the next tick."""
        return self._job is None and (self._current is not None or bool(self._wanted))

    def tick(self) -> None:
        """Submits a job if one is due. Raises StoreDamagedError when a unit cannot be mended."""
        if self._job is not None:
            return
        if self._current is None:
            if not self._wanted:
                return
            key, offset = self._wanted.popitem()
            queue = self._queues.find(*key)
            if queue is None:
                return
            log.warning(
                "a reader has met a damaged unit, it is looked for in the log directory=%s offset=%d",
                queue.files.directory,
                offset,
            )
            self._current = queue, offset
            self._is_found = False
            self._begin(queue, offset)
        elif self._walk.is_over:
            self._end(*self._current)
            return
        self._job = self._walk.next_job(_STEP_SIZE)
        self._submit(self._job)

    def job_done(self, job: DiskJob, error: Exception | None) -> bool:
        """Whether it was one of these. Raises any error that is none of a disk."""
        if job is not self._job:
            return False
        mine, self._job = self._job, None
        assert mine is not None
        if error is not None:
            if not isinstance(error, OSError):
                raise error
            # The next reader asks again.
            log.warning("damaged units could not be mended error=%s", error)
            self._current = None
            self._walk.end_round()
            return True
        for finding in self._walk.settle(mine):
            log.warning("mended=%s where=%s reason=%s", finding.is_mended, finding.where, finding.reason)
        if self._current is not None and isinstance(mine, CompareUnitsJob):
            self._compared(mine, *self._current)
        return True

    def _compared(self, job: CompareUnitsJob, queue: UnitQueue, offset: int) -> None:
        """A run of sound units behind that which is wanted ends the search."""
        wanted = queue.number_of(offset)
        damaged = [run for run, _ in job.differing] + job.missing
        for run in job.runs:
            if run.queue is queue and run.is_certain:
                if run.number <= wanted < run.number + run.count:
                    self._is_found = True
                elif run.number > wanted and run not in damaged:
                    self._walk.end_round()
                    return

    def _begin(self, queue: UnitQueue, offset: int) -> None:
        """With the nearest record of the queue in front whose unit is sound; or where the log begins."""
        wanted, step = queue.number_of(offset), 1
        while wanted - step >= queue.first_unit:
            found = queue.unit_at(wanted - step)
            try:
                if found is not None and self._reader.leads_to_its_record(queue, *found):
                    self._walk.begin_at(self._entry_pos(found[1][0]), (queue, wanted - step))
                    return
            except MessageDamagedError:
                pass
            step *= 2
        self._walk.begin_round()

    def _entry_pos(self, phy_offset: int) -> int:
        return phy_offset if self._reader.is_before_log(phy_offset) else phy_offset - self._head_size

    def _end(self, queue: UnitQueue, offset: int) -> None:
        self._current = None
        if self._is_found or not self._queues.is_known(queue):
            return
        if self._walk.has_passed_over:
            log.warning(
                "the log is damaged where the record of offset %d may be, directory=%s",
                offset,
                queue.files.directory,
            )
            return
        found = queue.unit_at(queue.number_of(offset))
        if found is None or self._is_sound(queue, *found):
            return
        number = queue.number_of(offset)
        before = queue.unit_at(number - 1)
        if before is None or self._reader.is_gone(queue, before[0], before[1][0]):
            # The search went through all of the log, which retention has begun anew behind it.
            log.warning("its message is gone, the queue begins behind it directory=%s", queue.files.directory)
            queue.begin_with(number + 1)
            return
        self._queues.condemn(queue.topic, queue.queue_id)
        raise StoreDamagedError(
            f"{queue.files.directory}: the log has no record of unit {offset}. All ConsumeQueues are built anew at the "
            "next start"
        )

    def _is_sound(self, queue: UnitQueue, offset: int, unit: tuple[int, int, int]) -> bool:
        try:
            return self._reader.is_gone(queue, offset, unit[0]) or self._reader.leads_to_its_record(
                queue, offset, unit
            )
        except MessageDamagedError:
            return True  # it leads to a record, which is being repaired
