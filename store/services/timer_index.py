"""When each waiting timer message is due: made from the timer topic's queue by every member, so a new leader knows.

The next minutes are in memory, in order. What is due later lies in a bucket for each hour: its newest units in memory,
the others in a file. The files live as long as the process. At a start the index is made anew from the records that
have not ended, which are truth; so nothing of it needs to be synced, checked at a start or repaired.
"""

import errno
import logging
import struct
from collections import Counter
from heapq import heappop, heappush
from itertools import accumulate
from typing import Final

from zlib_ng.zlib_ng import crc32

from disk.disk import Disk, DiskError
from message.dispatch_columns import scan_records
from message.errors import MessageDecodeError
from message.properties import pairs_of
from store.errors import StoreDamagedError
from store.message_reader import MessageReader
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_queue import UnitQueue
from store.services.timer_message import (
    TIMER_TOPIC_BYTES,
    due_ms,
    is_rolled,
    out_ms,
    real_topic,
    recalled_key,
    slot_of,
)
from store.state.tables.timer_table import TimerTable

log = logging.getLogger(__name__)

# Due time (ms), queue offset, number of the topic that it counts for (0: for none).
_UNIT: Final = struct.Struct(">qqI")
_HOUR_MS: Final = 3_600_000
# An hour's units are brought to memory so long before it, some of them with each tick.
_AHEAD_MS: Final = 600_000
_UNITS_PER_STEP: Final = 1024
# Of a bucket, in memory, before they go to its file.
_UNITS_KEPT_MAX: Final = 256
# Of one step, which all else waits for: some milliseconds.
_READ_COUNT: Final = 256
_READ_SIZE: Final = 1 << 20


class Waiting(int):
    """Due time, queue offset and topic in one number, which sorts by the first two. 72 bytes in the heap."""

    __slots__ = ()

    @classmethod
    def of(cls, due_ms: int, offset: int, topic_number: int) -> "Waiting":
        return cls(due_ms << 96 | offset << 32 | topic_number)

    @property
    def due_ms(self) -> int:
        return self >> 96

    @property
    def offset(self) -> int:
        return self >> 32 & 0xFFFF_FFFF_FFFF_FFFF

    @property
    def topic_number(self) -> int:
        return self & 0xFFFF_FFFF


class _Bucket:
    """Units of one hour, the first of them in a file, the others in memory."""

    __slots__ = ("_crc", "_crc_read", "_read_to", "begin_ms", "file_size", "path", "units")

    def __init__(self, path: str, begin_ms: int) -> None:
        self.path = path
        self.begin_ms = begin_ms
        self.units = bytearray()
        self.file_size = 0
        self._crc = self._crc_read = self._read_to = 0

    def spill(self, disk: Disk) -> None:
        """Adds those in memory to the file. Raises DiskError; then they stay."""
        file = disk.open(self.path, create=True)
        try:
            file.pwrite(self.units, self.file_size)
        finally:
            file.close()
        self._crc = crc32(self.units, self._crc)
        self.file_size += len(self.units)
        self.units.clear()

    def read(self, disk: Disk) -> bytes:
        """The next units, none at the end. Raises DiskError, also where the file is not as it was written."""
        if self._read_to < self.file_size:
            file = disk.open(self.path, read_only=True)
            try:
                units = file.pread(
                    min(_UNITS_PER_STEP * _UNIT.size, self.file_size - self._read_to), self._read_to
                )
            finally:
                file.close()
            self._crc_read = crc32(units, self._crc_read)
            self._read_to += len(units)
            is_sound = self._crc_read == self._crc if self._read_to == self.file_size else units
            if not is_sound or len(units) % _UNIT.size:
                raise DiskError(errno.EIO, "a file of timers was changed", self.path)
            return units
        units = bytes(self.units)
        self.units.clear()
        return units


class TimerIndex:
    """Invariant: each record of the queue before `next_offset` that has not ended is in `_near`, in a bucket, or in
    `_taken`, until the leader's service gives it back or sees it end. Some that have ended may be, too.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        queues: ConsumeQueueStore,
        reader: MessageReader,
        table: TimerTable,
        slot_ms: int | None,
    ) -> None:
        """`slot_ms`: of the slots that are to be counted; None: of none."""
        self._disk = disk
        self._directory = directory
        self._queues = queues
        self._reader = reader
        self._table = table
        self._slot_ms = slot_ms
        self._queue: UnitQueue | None = None
        self._has_looked = False
        # Of a record that is rolled from here on, the record before it is in the index and counts.
        self._live_from = 0
        self._begin_anew(None)

    def _begin_anew(self, queue: UnitQueue | None) -> None:
        self._queue = queue
        self.next_offset = 0
        self._near: list[Waiting] = []
        self._taken: set[Waiting] = set()
        self._near_hour = 0  # all that is due in it or before is in memory, or about to be
        self._buckets: dict[int, _Bucket] = {}
        self._arriving: list[_Bucket] = []  # the earliest first
        self._topics: list[str] = [""]
        self._topic_numbers: dict[str, int] = {}
        self._counts: Counter[int] = Counter()
        self.slots: Counter[int] = Counter()
        self.added: Counter[str] = Counter()  # by topic, of what was stored since the start
        for name in self._disk.list_directory(self._directory):
            self._disk.unlink(f"{self._directory}/{name}")

    def is_ready(self, now_ms: int) -> bool:
        """Whether all that has been dispatched is here, and what is due in memory."""
        queue = self._queues.find(TIMER_TOPIC_BYTES, 0)
        if self._arriving and now_ms >= self._arriving[0].begin_ms:
            return False
        return queue is None or (queue is self._queue and self._next(queue) >= queue.max_offset)

    def _next(self, queue: UnitQueue) -> int:
        return self._table.next_waiting(max(self.next_offset, queue.min_offset))

    @property
    def behind(self) -> int:
        """How many records of the queue were not looked at yet."""
        queue = self._queues.find(TIMER_TOPIC_BYTES, 0)
        return max(queue.max_offset - self._next(queue), 0) if queue is not None else 0

    def count_due(self, now_ms: int) -> int:
        """How many are due, of what is in memory."""
        count, to_see = 0, [0]
        while to_see:
            number = to_see.pop()
            if number < len(self._near) and self._near[number].due_ms <= now_ms:
                count += 1
                to_see += (2 * number + 1, 2 * number + 2)  # the heap has what is due later behind it
        return count

    @property
    def counts(self) -> dict[str, int]:
        """By topic, how many messages wait."""
        return {self._topics[number]: count for number, count in self._counts.items() if count > 0}

    def catch_up(self, now_ms: int) -> bool:
        """Takes up some of what was dispatched meanwhile. Returns whether there is more. Raises UnitDamagedError,
        MessageDamagedError, DiskError.
        """
        if self._table.awaits_take_over:
            return False
        queue = self._queues.find(TIMER_TOPIC_BYTES, 0)
        if queue is not self._queue or not self._has_looked:
            is_new = self._has_looked and self._queue is None
            self._live_from = queue.max_offset if queue is not None and not is_new else 0
            self._has_looked = True
            self._begin_anew(queue)  # of another log, if there was one before
        if queue is None:
            return False
        self._bring_near(now_ms)
        read_to = self._next(queue) + _READ_COUNT
        while (offset := self._next(queue)) < min(queue.max_offset, read_to):
            records, next_offset = self._reader.read_on(queue, offset, _READ_COUNT, _READ_SIZE)
            if next_offset <= offset:
                return False
            if records:  # none where they are gone
                self._add(records)
            self.next_offset = next_offset
        return offset < queue.max_offset or bool(self._arriving)

    def _add(self, records: list[bytes]) -> None:
        try:
            columns = scan_records(b"".join(records), _offsets(records))
        except MessageDecodeError as error:
            raise StoreDamagedError(f"a timer message is unsound: {error}") from error
        for offset, properties, store_timestamp in zip(
            columns.queue_offsets, columns.properties, columns.store_timestamps, strict=True
        ):
            if self._table.is_ended(offset):
                continue
            topic_number = 0
            said = pairs_of(properties)
            when_ms = due_ms(said, store_timestamp)
            if recalled_key(said) is not None:
                when_ms = out_ms(said) or 0  # before all that it may recall
            elif offset < self._live_from or not is_rolled(said):
                topic_number = self._number_of(real_topic(said).decode("utf-8", "replace"))
                if offset >= self._live_from:
                    self.added[self._topics[topic_number]] += 1
            waiting = Waiting.of(when_ms, offset, topic_number)
            self._put(waiting)
            self._count(waiting, 1)

    def _number_of(self, topic: str) -> int:
        number = self._topic_numbers.get(topic)
        if number is None:
            number = self._topic_numbers[topic] = len(self._topics)
            self._topics.append(topic)
        return number

    def _count(self, waiting: Waiting, by: int) -> None:
        if waiting.topic_number:
            self._counts[waiting.topic_number] += by
            if self._slot_ms is not None:
                slot = slot_of(waiting.due_ms, self._slot_ms)
                self.slots[slot] += by
                if not self.slots[slot]:
                    del self.slots[slot]

    # -- what is due -------------------------------------------------------------------------------------------

    @property
    def first(self) -> Waiting | None:
        """What is due first, of what is in memory. At a member that does not lead it may have ended."""
        return self._near[0] if self._near else None

    def take(self) -> Waiting:
        """Takes `first`: then it is for the caller to give it back, or to say that it has ended."""
        waiting = heappop(self._near)
        self._taken.add(waiting)
        return waiting

    def give_back(self, waiting: Waiting) -> None:
        """What was taken before the index was made anew is in it again already."""
        if waiting in self._taken:
            self._taken.remove(waiting)
            heappush(self._near, waiting)

    def ended(self, waiting: Waiting) -> None:
        """Of what was taken."""
        if waiting in self._taken:
            self._taken.remove(waiting)
            self._count(waiting, -1)

    def forget_ended(self, now_ms: int) -> None:
        """Drops what is due and has ended, at a member that does not lead."""
        while self._near and self._near[0].due_ms <= now_ms and self._table.is_ended(self._near[0].offset):
            self.ended(self.take())

    # -- far and near ------------------------------------------------------------------------------------------

    def _put(self, waiting: Waiting) -> None:
        hour = waiting.due_ms // _HOUR_MS
        if hour <= self._near_hour:
            heappush(self._near, waiting)
            return
        bucket = self._buckets.get(hour)
        if bucket is None:
            bucket = self._buckets[hour] = _Bucket(f"{self._directory}/{hour}", hour * _HOUR_MS)
        bucket.units += _UNIT.pack(waiting.due_ms, waiting.offset, waiting.topic_number)
        if len(bucket.units) >= _UNITS_KEPT_MAX * _UNIT.size:
            self._spill(bucket)

    def _spill(self, bucket: _Bucket) -> None:
        """A disk that is full makes it wait in memory."""
        try:
            if not bucket.file_size:
                self._disk.make_directory(self._directory)
            bucket.spill(self._disk)
        except DiskError as error:
            log.warning("timers wait in memory file=%s error=%s", bucket.path, error)

    def _bring_near(self, now_ms: int) -> None:
        """Some units of the hour that comes next. Raises DiskError."""
        near_hour = (now_ms + _AHEAD_MS) // _HOUR_MS
        if near_hour > self._near_hour:
            for hour in sorted(hour for hour in self._buckets if hour <= near_hour):
                self._arriving.append(self._buckets.pop(hour))
            self._near_hour = near_hour
        if not self._arriving:
            return
        bucket = self._arriving[0]
        try:
            units = bucket.read(self._disk)
        except DiskError as error:
            log.warning("timers are read again from the log file=%s error=%s", bucket.path, error)
            self._begin_anew(self._queue)
            # What is due already must not lie in a bucket while the index looks ready.
            self._near_hour = near_hour
            return
        for unit in _UNIT.iter_unpack(units):
            heappush(self._near, Waiting.of(*unit))
        if not units:
            self._arriving.pop(0)
            if bucket.file_size:
                self._disk.unlink(bucket.path)


def _offsets(records: list[bytes]) -> list[int]:
    """Where each begins when they lie one behind the other."""
    return list(accumulate(map(len, records[:-1]), initial=0))
