"""Writes units of ConsumeQueues anew, as the log has them: one that a reader cannot follow, or those of a block in
which the scrub has found another sum.

A walk goes over the log, from the record of the nearest right unit in front, and compares each unit that it comes by.
It ends behind the units that are wanted, with one that was right. So the log says what a unit should be, and a sum says
only where to look.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from disk.disk import DiskError
from dledger.log.jobs import DiskJob
from store.dispatch_request import DispatchRequest, unit_bytes
from store.errors import MessageDamagedError, StoreDamagedError
from store.layout.consume_queue_unit import CQ_UNIT, FILLER
from store.message_reader import MessageReader
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.record_walk import RecordWalk
from store.queues.unit_queue import UnitQueue
from store.services.delayed_message import SCHEDULE_TOPIC_BYTES, is_delay_of_other_levels

log = logging.getLogger(__name__)

# Of one tick: consumers wait, and so do others for the disk and the interpreter.
_STEP_SIZE: Final = 256 * 1024

OnMended = Callable[[UnitQueue], None]


class Rebuilding:
    """Units of one queue. Invariant: from where the walk began up to `number` they are as the log has them, and the
    next record that is the queue's has the offset `_offset`, unless the log leaves some out.
    """

    def __init__(
        self, queue: UnitQueue, wanted: int, until: int, walk: RecordWalk, reader: MessageReader
    ) -> None:
        """From the unit `wanted` on, up to `until`."""
        self.queue = queue
        self.walk = walk
        self.rebuilt = 0  # units
        self.is_over = False
        self.has_begun = False  # a record of the queue was found
        self.until = until
        self._is_right = True  # the last unit that was compared
        self.number, self._offset = queue.first_unit, queue.min_offset
        try:
            if wanted < queue.flushed_unit:
                queue.files.make_whole(wanted * queue.unit_size)
            walk.begin_at(self._right_in_front(wanted, reader))
        except OSError as error:
            walk.fault = str(error)

    def _right_in_front(self, wanted: int, reader: MessageReader) -> int | None:
        """Where the record of the nearest unit lies that leads to its own."""
        queue, step = self.queue, 1
        while wanted - step >= queue.first_unit:
            found = queue.unit_at(wanted - step)
            try:
                if found is not None and reader.leads_to_its_record(queue, *found):
                    self.has_begun = True
                    self.number, self._offset = wanted - step, found[0]
                    return found[1][0]
            except (MessageDamagedError, DiskError):
                pass
            step *= 2
        return None

    def wants(self, number: int) -> bool:
        return self.number <= number < self.until

    @property
    def is_done(self) -> bool:
        return self.number >= self.until and (self._is_right or self.walk.is_over)

    def take(self, requests: Sequence[DispatchRequest]) -> None:
        """Compares the units of the next records."""
        queue = self.queue
        units: list[bytes] = []
        for request in map(queue.part_of, requests):
            if request is None:
                continue
            places = queue.parse(unit_bytes(request), request.queue_offset)
            for unit, (_, base, behind) in zip(request.units, places, strict=True):
                if base < self._offset:
                    continue  # another record has had it
                if not self.has_begun:
                    self._begin_with(base)
                elif not queue.is_batch:
                    units += [FILLER] * (base - self._offset)
                units.append(unit)
                self._offset = behind
        if units and self.walk.fault is None:
            self._compare(units)

    def _begin_with(self, base: int) -> None:
        """The log has nothing of the queue in front of that record."""
        self.has_begun = True
        if base > self._offset and self.queue.is_batch:
            self.walk.fault = "batches in front are gone, and how many is not known"
        elif base > self._offset:
            log.warning("messages are gone, the queue begins behind directory=%s", self.queue.files.directory)
            self.queue.begin_with(base)
            self.number = base

    def _compare(self, units: Sequence[bytes]) -> None:
        """Units from `number` on. Those that are others in the files are written anew."""
        queue, size = self.queue, self.queue.unit_size
        first, self.number = self.number, self.number + len(units)
        numbers = range(max(first, queue.first_unit), min(self.number, queue.flushed_unit))
        stored = queue.files.read(numbers.start * size, len(numbers) * size) if numbers else b""
        found = [stored[at : at + size] for at in range(0, len(stored), size)]
        right = [
            as_is if _is_as(queue, as_is, unit) else unit
            for as_is, unit in zip(found, units[numbers.start - first :], strict=False)
        ]
        wrong = [at for at, as_is in enumerate(found) if as_is != right[at]]
        self._is_right = not wrong or numbers[wrong[-1]] != self.number - 1
        if wrong:
            start, last = numbers[wrong[0]], numbers[wrong[-1]]
            queue.files.write(start * size, b"".join(right[wrong[0] : wrong[-1] + 1]))
            self.rebuilt += len(wrong)
            directory = queue.files.directory
            log.warning("units rebuilt from the log directory=%s first=%d last=%d", directory, start, last)


def _is_as(queue: UnitQueue, stored: bytes, unit: bytes) -> bool:
    if stored == unit or queue.topic != SCHEDULE_TOPIC_BYTES:
        return stored == unit
    says, should = CQ_UNIT.unpack_from(stored), CQ_UNIT.unpack_from(unit)
    return says[:2] == should[:2] and is_delay_of_other_levels(says[2], should[2])


class UnitRebuild:
    """Invariant: at most one job is under way. What readers want goes before what the scrub wants."""

    def __init__(
        self,
        new_walk: Callable[[], RecordWalk],
        queues: ConsumeQueueStore,
        reader: MessageReader,
        on_mended: OnMended,
        submit: Callable[[DiskJob], None],
    ) -> None:
        """`on_mended`: for objects that remember what a damaged unit said."""
        self.rebuilt = 0  # units, since the start
        self._new_walk = new_walk
        self._queues = queues
        self._reader = reader
        self._on_mended = on_mended
        self._submit = submit
        self._wanted: list[Rebuilding] = []
        self._current: Rebuilding | None = None  # whose walk is under way, as a job

    def want(self, topic: bytes, queue_id: int, offset: int) -> None:
        """A reader cannot follow the unit there."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return
        number = queue.number_of(offset)
        if not any(each.queue is queue and each.wants(number) for each in self._wanted):
            log.warning("a reader met a damaged unit directory=%s offset=%d", queue.files.directory, offset)
            self._wanted.insert(0, Rebuilding(queue, number, number + 1, self._new_walk(), self._reader))

    def want_block(self, queue: UnitQueue, first: int, end: int) -> Rebuilding:
        """The sum of these units is another."""
        rebuilding = Rebuilding(queue, first, end, self._new_walk(), self._reader)
        self._wanted.append(rebuilding)
        return rebuilding

    def begin_anew(self) -> None:
        """The log has: all queues are gone."""
        for rebuilding in self._wanted:
            rebuilding.is_over = True
        self._wanted.clear()

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way."""
        return self._current is not None

    @property
    def has_work(self) -> bool:
        """For the next tick. While a job is under way as well: the next one must not wait until others want a tick."""
        return bool(self._wanted)

    def tick(self) -> None:
        """Submits a job if one is due. Raises StoreDamagedError when the log has no record of a unit."""
        if self._current is None and self._wanted and not self._ends(self._wanted[0]):
            self._current = self._wanted[0]
            self._current.walk.prepare(_STEP_SIZE)
            self._submit(self._current.walk)

    def job_done(self, job: DiskJob, error: Exception | None) -> bool:
        """Whether it was one of these. Raises StoreDamagedError when the log has no record of a unit, and any error
        that is none of a disk.
        """
        rebuilding = self._current
        if rebuilding is None or job is not rebuilding.walk:
            return False
        self._current = None
        if rebuilding.is_over or not self._queues.is_known(rebuilding.queue):
            return True
        before = rebuilding.rebuilt
        try:
            if error is not None:
                raise error
            rebuilding.take(rebuilding.walk.settle())
        except OSError as failure:
            rebuilding.walk.fault = str(failure)
        if rebuilding.rebuilt > before:
            self.rebuilt += rebuilding.rebuilt - before
            self._on_mended(rebuilding.queue)
        self._ends(rebuilding)
        return True

    def _ends(self, rebuilding: Rebuilding) -> bool:
        """Ends it if it has come to its end. Returns whether it has."""
        queue, walk = rebuilding.queue, rebuilding.walk
        if self._queues.is_known(queue) and not rebuilding.is_done:
            if walk.fault is not None:
                # The next reader asks again, and so does the next round of the scrub.
                log.warning("units wait directory=%s reason=%s", queue.files.directory, walk.fault)
            elif not walk.is_over:
                return False
            else:
                self._without_record(rebuilding)
        rebuilding.is_over = True
        self._wanted.remove(rebuilding)
        return True

    def _without_record(self, rebuilding: Rebuilding) -> None:
        queue = rebuilding.queue
        if not rebuilding.has_begun:
            log.warning("messages are gone, the queue begins behind directory=%s", queue.files.directory)
            queue.begin_with(rebuilding.until)
            return
        self._queues.condemn(queue.topic, queue.queue_id)
        raise StoreDamagedError(
            f"{queue.files.directory}: the log has no record of unit {rebuilding.number}. All ConsumeQueues are built "
            "anew at the next start"
        )
