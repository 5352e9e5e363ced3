"""The walk of the scrub over ConsumeQueues: all units that the log gives are compared with those in the files.

It goes along the log and not along the queues, because the log is the truth: of each record it is known which unit it
must have, and where, whatever has become of the unit. What is damaged is written anew at once. Units that no file holds
durably yet are in memory, and are left alone.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from disk.disk import Disk, DiskError
from dledger.entry import Index, Pos, Term
from dledger.log.errors import LedgerError
from dledger.log.scrub_job import Place
from dledger.log.scrub_walk import Finding
from store.dispatch_request import DispatchRequest, unit_bytes
from store.errors import MessageDamagedError
from store.index.index_file_scrub import CompareKeysJob, KeyRows, KeyRun
from store.java.old_commit_log import OldCommitLog
from store.layout.batch_unit import BATCH_UNIT
from store.layout.consume_queue_unit import CQ_UNIT
from store.message_reader import MessageReader
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_queue import UnitQueue
from store.queues.unit_scrub_jobs import CompareUnitsJob, DispatchAgainJob, ReadRange, UnitRun
from store.replicated_log import Ledger
from store.reput import Reput
from store.services.delayed_message import SCHEDULE_TOPIC_BYTES, is_delay_of_other_levels
from store.store_config import StoreConfig

log = logging.getLogger(__name__)

_PASSED_MAX: Final = 64  # of entries in a row without a unit that says where they lie

OnMended = Callable[[UnitQueue], None]
UnitScrubJob = DispatchAgainJob | CompareUnitsJob | CompareKeysJob


class UnitScrub:
    """Fulfils ScrubWalk. Invariant: units of all records up to `_place` have been compared in this round, except where
    the log is damaged (`has_passed_over`).
    """

    def __init__(
        self,
        kind: str,
        config: StoreConfig,
        disk: Disk,
        ledger: Ledger,
        old_commit_log: OldCommitLog,
        queues: ConsumeQueueStore,
        reader: MessageReader,
        reput: Reput,
        on_mended: OnMended,
        key_rows: KeyRows | None = None,
    ) -> None:
        """`kind`: of its jobs. `on_mended`: for objects that remember what a damaged unit said. `key_rows`: entries of
        the IndexFiles are compared as well.
        """
        self.has_passed_over = False
        self.mended = 0  # units, since the start
        self._kind = kind
        self._config = config
        self._disk = disk
        self._ledger = ledger
        self._old = old_commit_log
        self._queues = queues
        self._reader = reader
        self._reput = reput
        self._on_mended = on_mended
        self._key_rows = key_rows
        self._key_runs: list[KeyRun] = []  # likewise
        self._key_fault: tuple[str, str] | None = None  # that a first reading found
        self._runs: list[UnitRun] = []  # to be compared before the walk goes on
        # The number that the next batch's unit has. Such units do not tell it, and one may be damaged.
        self._next_numbers: dict[UnitQueue, int] = {}
        self._is_in_old = False  # in what lies before the log
        self._place = Place(Index(-1), Term(-1), Pos(0), None)
        self._last_index = Index(-1)

    # -- ScrubWalk -----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        begin_pos = self._old.begin_pos if self._old.end_pos else self._ledger.ledger_begin_pos
        unit_bytes = sum((queue.flushed_unit - queue.first_unit) * queue.unit_size for queue in self._queues)
        return max(0, self._reput.confirm_offset - begin_pos) + unit_bytes

    def begin_round(self) -> None:
        if self._old.end_pos:
            self.begin_at(self._old.begin_pos)
        else:
            self.begin_at(self._ledger.ledger_begin_pos)

    def begin_at(self, pos: int, number: tuple[UnitQueue, int] | None = None) -> None:
        """The round is to begin with the record there, whose unit has that `number` in that queue."""
        ledger = self._ledger
        self._runs = []
        self._lose_keys()
        self._next_numbers = dict([number] if number is not None else [])
        self.has_passed_over = False
        self._last_index = self._reput.applied_index
        self._is_in_old = pos < self._old.end_pos
        if self._is_in_old:
            self._place = Place(Index(-1), Term(-1), Pos(pos), None)
        elif pos <= ledger.ledger_begin_pos:
            self._place = ledger.begin_place()
        else:
            index = ledger.first_index_at(pos)
            self._place = Place(Index(index - 1), Term(-1), Pos(pos), None, is_proven=False)

    def end_round(self) -> None:
        self._runs = []
        self._lose_keys()
        self._is_in_old = False
        self._last_index = Index(-1)

    @property
    def is_over(self) -> bool:
        is_behind = not self._is_in_old and self._place.index >= self._last_index
        return is_behind and not self._runs and not self._key_runs

    def next_job(self, size_max: int) -> UnitScrubJob:
        if self._runs:
            return CompareUnitsJob(self._kind, self._disk, self._runs)
        if self._key_runs:
            return CompareKeysJob(self._kind, self._disk, self._key_runs)
        old, ledger = self._old, self._ledger
        if self._is_in_old:
            if self._place.end_pos < old.begin_pos:  # retention has been here
                self._place = Place(Index(-1), Term(-1), Pos(old.begin_pos), None)
                self._lose_count()
            size_max = min(size_max, old.end_pos - self._place.end_pos)
            return self._dispatch_again(old.read_behind, 0, size_max)
        if self._is_before_log(self._place):
            self._place = ledger.begin_place()
            self._lose_count()
        # What lies behind is not dispatched yet, or being written.
        size_max = min(size_max, self._reput.confirm_offset - self._place.end_pos)
        return self._dispatch_again(ledger.read_behind, ledger.head_size, size_max)

    def settle(self, job: UnitScrubJob) -> list[Finding]:
        if isinstance(job, DispatchAgainJob):
            if job.place is self._place and not self._is_before_log(job.place):
                self._dispatched(job)
            return []
        if isinstance(job, CompareKeysJob):
            return self._compared_keys(job) if job.runs is self._key_runs else []
        if job.runs is not self._runs:
            return []
        self._runs = []
        unequal = [run for run, _ in job.differing] + job.missing
        for run in job.runs:
            if not run.is_certain and run.queue not in self._next_numbers and run not in unequal:
                self._next_numbers[run.queue] = run.number + run.count
        findings: list[Finding] = []
        for run in job.missing:
            findings += self._remade(run)
        for run, found in job.differing:
            findings += self._mended(run, found)
        return findings

    # -- along the log -------------------------------------------------------------------------------------------

    def _is_before_log(self, place: Place) -> bool:
        """The log begins behind it since: no index leads on from there, and what was read there counts no more."""
        return not self._is_in_old and place.is_before(self._ledger.begin_place())

    def _dispatch_again(self, read_range: ReadRange, head_size: int, size_max: int) -> DispatchAgainJob:
        return DispatchAgainJob(
            self._kind,
            read_range,
            head_size,
            self._place,
            size_max,
            self._config.delay_levels,
            with_keys=self._key_rows is not None,
        )

    def _dispatched(self, job: DispatchAgainJob) -> None:
        if job.missing is not None:
            self._lose_count()
            self._missed()
            return
        read = job.read
        assert read is not None, "it has run"
        if read.fault is not None:
            # The entries have a scrub of their own, and those who repair them.
            self.has_passed_over = True
            self._lose_count()
            self._pass_over()
            return
        self._place = read.behind
        if self._is_in_old and self._place.end_pos >= self._old.end_pos:
            self._leave_old()
        self._runs = [run for request in job.requests if (run := self._run_of(request)) is not None]
        if self._key_rows is not None:
            self._key_runs = self._key_rows.runs_of(job.keys)

    def _leave_old(self) -> None:
        self._is_in_old = False
        self._place = self._ledger.begin_place()

    def _missed(self) -> None:
        """A file of the log is not there: unless retention took it, the next start finds the member damaged."""
        if self._is_in_old:
            if self._place.end_pos >= self._old.begin_pos:
                self.has_passed_over = True
                self._leave_old()
        else:
            self.has_passed_over = True
            self._last_index = self._place.index

    def _pass_over(self) -> None:
        """Over the entry at the place. Of records before the log no index tells where the next one lies."""
        if self._is_in_old:
            self._leave_old()
            return
        first_index = Index(self._place.index + 1)
        for index in range(first_index, min(first_index + _PASSED_MAX, self._last_index)):
            try:
                pos = self._ledger.likely_pos_at(Index(index + 1))
            except LedgerError:
                continue
            if self._place.end_pos < pos < self._reput.confirm_offset:
                self._place = Place(Index(index), Term(-1), Pos(pos), None, is_proven=False)
                return
        self._last_index = self._place.index  # the next round comes to it

    def _run_of(self, request: DispatchRequest) -> UnitRun | None:
        """Its units that count and are in files; None if there are none."""
        queue = self._queues.find(request.topic, request.queue_id)
        if queue is None:
            return None
        if queue.is_batch is not request.is_batch:
            if request.is_batch:
                return None
            request = request.as_batches()
        units = unit_bytes(request)
        number, is_certain = request.queue_offset, True
        if queue.is_batch:
            bases = [values[4] for values in BATCH_UNIT.iter_unpack(units)]
            skip = bisect_left(bases, queue.min_offset)
            if skip == len(bases):
                return None
            units = units[skip * queue.unit_size :]
            number, is_certain = self._number_of_batch(queue, bases[skip], len(bases) - skip)
        first = max(number, queue.first_unit)
        end = min(number + len(units) // queue.unit_size, queue.flushed_unit)
        if first >= end:
            return None
        size = queue.unit_size
        file_size = queue.files.mapped_file_size
        starts = range(first * size // file_size * file_size, end * size, file_size)
        return UnitRun(
            queue,
            first,
            units[(first - number) * size : (end - number) * size],
            is_certain,
            tuple(queue.files.path_of(start) for start in starts),
        )

    def _number_of_batch(self, queue: UnitQueue, base: int, count: int) -> tuple[int, bool]:
        """The number of the unit of the batch that begins at `base`, and whether that is certain: what the search finds
        is not, for it may have met a damaged unit.
        """
        number = self._next_numbers.get(queue)
        if number is None and base == queue.min_offset:
            number = queue.first_unit
        if number is None:
            return queue.number_of(base), False
        self._next_numbers[queue] = number + count
        return number, True

    def _lose_count(self) -> None:
        """Records were passed over, and what they gave is not known."""
        self._next_numbers.clear()
        self._lose_keys()

    def _lose_keys(self) -> None:
        self._key_runs = []
        self._key_fault = None
        if self._key_rows is not None:
            self._key_rows.lost_its_place()

    def _compared_keys(self, job: CompareKeysJob) -> list[Finding]:
        if job.fault is not None and job.fault != self._key_fault:
            self._key_fault = job.fault  # once more
            return []
        self._key_runs = []
        if job.fault is None or any(run.file.is_deleted for run in job.runs):
            return []
        self._lose_keys()
        assert self._key_rows is not None, "its runs were compared"
        return [self._key_rows.index.found_damaged(*job.fault)]

    # -- damage --------------------------------------------------------------------------------------------------

    def _remade(self, run: UnitRun) -> list[Finding]:
        """The walk fills what it comes to, and readers that come to the rest have it filled."""
        files = run.queue.files
        findings = []
        for mapped_file in files.mapped_files:
            if mapped_file.path not in run.paths or self._disk.exists(mapped_file.path):
                continue
            is_mended = True
            try:
                files.remake(mapped_file.file_from_offset)
            except DiskError as error:
                log.warning("a file cannot be made anew path=%s error=%s", mapped_file.path, error)
                is_mended = False
            findings.append(Finding("consumequeue", mapped_file.path, "the file was gone", is_mended))
        return findings + (self._mended(run, bytes(len(run.units))) if findings else [])

    def _mended(self, run: UnitRun, found: bytes) -> list[Finding]:
        queue, size = run.queue, run.queue.unit_size
        if not self._queues.is_known(queue) or not run.is_certain:
            return []
        try:
            again = queue.files.read(run.number * size, len(run.units))
        except DiskError:
            again = found  # what the disk does not give is as good as damaged
        damaged: list[list[int]] = []  # places of units in the run, those together that follow each other
        for place in range(run.count):
            if self._is_damaged(run, found, again, place):
                if damaged and damaged[-1][-1] == place - 1:
                    damaged[-1].append(place)
                else:
                    damaged.append([place])
        findings = []
        for places in damaged:
            first, last = run.number + places[0], run.number + places[-1]
            is_mended = True
            try:
                for number in (first, last):
                    queue.files.make_whole(number * size)
                queue.files.write(first * size, run.units[places[0] * size : (places[-1] + 1) * size])
            except DiskError as error:
                log.warning(
                    "units cannot be written anew directory=%s error=%s", queue.files.directory, error
                )
                is_mended = False
            else:
                self.mended += len(places)
                self._on_mended(queue)
            where = f"{queue.files.directory} units {first}..{last}"
            findings.append(
                Finding("consumequeue", where, "they are not those of the log's records", is_mended)
            )
        return findings

    def _is_damaged(self, run: UnitRun, found: bytes, again: bytes, place: int) -> bool:
        queue, size = run.queue, run.queue.unit_size
        at = place * size
        unit, wanted = found[at : at + size], run.units[at : at + size]
        number = run.number + place
        if unit == wanted or not queue.first_unit <= number < queue.flushed_unit:
            return False
        if again[at : at + size] != unit:
            return False  # a second reading finds something else: the next round shall say
        says, should = CQ_UNIT.unpack_from(unit), CQ_UNIT.unpack_from(wanted)
        if says[0] == should[0]:
            is_sound = queue.topic == SCHEDULE_TOPIC_BYTES and says[1] == should[1]
            return not (is_sound and is_delay_of_other_levels(says[2], should[2]))
        # A log of other hands may give two messages one offset. Then the first one's unit is there.
        base = number if not queue.is_batch else BATCH_UNIT.unpack(unit)[4]
        try:
            return not self._reader.leads_to_its_record(queue, base, says)
        except (MessageDamagedError, DiskError):
            return True
