"""Reading: pulls by queue offset, messages by physical offset, offsets by time. Nothing uncommitted is ever visible.

ConsumeQueues hold units of applied entries alone, and a physical offset counts only below the confirm offset.
"""

from collections.abc import Callable

from dledger.errors import FaultyEntryError
from message.record_layout import RECORD_SIZE_MIN
from store.consume_queue_store import ConsumeQueueStore
from store.dledger_commit_log import store_timestamp_of
from store.errors import MessageDamagedError, StoreDamagedError
from store.get_message import BoundaryType, GetMessageResult, GetMessageStatus
from store.layout.consume_queue_unit import CQ_UNIT_SIZE, FILLER_SIZE
from store.old_commit_log import OldCommitLog
from store.replicated_log import Ledger
from store.reput import Reput
from store.store_config import StoreConfig
from store.unit_queue import UnitQueue

Matcher = Callable[[int], bool]  # of a unit's tags code


class MessageReader:
    """Reads block where the bytes are neither among the newest nor in the page cache."""

    def __init__(
        self,
        config: StoreConfig,
        ledger: Ledger,
        old_commit_log: OldCommitLog,
        queues: ConsumeQueueStore,
        reput: Reput,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._old = old_commit_log
        self._queues = queues
        self._reput = reput

    def get_message(
        self,
        topic: bytes,
        queue_id: int,
        offset: int,
        count_max: int,
        size_max: int,
        matcher: Matcher | None,
    ) -> GetMessageResult:
        """Up to `count_max` messages and `size_max` bytes from queue offset `offset` on; the first match always fits.

        Raises StoreDamagedError, DiskError.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return _nothing(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return _nothing(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return _nothing(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return _nothing(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return _nothing(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        scan_count = max(self._config.max_filter_message_size // CQ_UNIT_SIZE, count_max)
        if queue.is_batch:
            matcher = None  # the messages of a batch have tags of their own, which consumers look at
        # Without a filter each unit is a message, or several.
        units = queue.units(offset, count_max if matcher is None else scan_count)
        if not units:
            next_offset = min(queue.first_offset_of_next_file(offset), high)
            return _nothing(GetMessageStatus.OFFSET_FOUND_NULL, next_offset, low, high)
        return self._read_units(queue, offset, units, count_max, size_max, matcher)

    @property
    def min_phy_offset(self) -> int:
        """Of the first record that is still there."""
        if self._old.end_pos:
            return self._old.begin_pos
        return self._ledger.ledger_begin_pos + self._ledger.head_size

    def earliest_store_timestamp(self) -> int:
        """ms, of the first record that is still there; -1 for none."""
        phy_offset = self.min_phy_offset
        if phy_offset + RECORD_SIZE_MIN > self._reput.confirm_offset:
            return -1
        head = self._read(phy_offset, RECORD_SIZE_MIN)
        return store_timestamp_of(head) if len(head) == RECORD_SIZE_MIN else -1

    def look_message_by_offset(self, phy_offset: int) -> bytes | None:
        """The record at a physical offset, None where no committed message begins."""
        if 0 <= phy_offset < self._old.end_pos:
            old_size = self._old.record_size_at(phy_offset)
            return self._old.read(phy_offset, old_size) if old_size is not None else None
        ledger, pos = self._ledger, phy_offset - self._ledger.head_size
        if pos < ledger.ledger_begin_pos:
            return None
        if phy_offset + RECORD_SIZE_MIN > self._reput.confirm_offset:
            return None
        try:
            size = ledger.body_size_at(pos)
        except FaultyEntryError as error:
            raise MessageDamagedError(str(error)) from error
        if size is None or size < RECORD_SIZE_MIN or phy_offset + size > self._reput.confirm_offset:
            return None
        return self._read_record(phy_offset, size)

    def offset_by_time(
        self, topic: bytes, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """LOWER: the first message stored at `timestamp` (ms) or later, the maximum if there is none.
        UPPER: the last one stored at it, or else the last one before it. 0 for an unknown queue.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        low = self._first_at(queue, timestamp)
        if boundary is BoundaryType.LOWER:
            return low
        return max(self._first_at(queue, timestamp + 1) - 1, queue.min_offset)

    def store_timestamp(self, topic: bytes, queue_id: int, offset: int) -> int:
        """ms; -1 where the queue has no message at `offset`."""
        queue = self._queues.find(topic, queue_id)
        unit = queue.unit(offset) if queue is not None else None
        if queue is None or unit is None:
            return -1
        return self._store_timestamp_of(queue, offset, unit[0])

    def is_in_memory(self, topic: bytes, queue_id: int, offset: int) -> bool:
        """Whether the message counts as hot: not far behind the newest."""
        queue = self._queues.find(topic, queue_id)
        unit = queue.unit(offset) if queue is not None else None
        return unit is not None and self._is_hot(unit[0])

    def _read_units(
        self,
        queue: UnitQueue,
        offset: int,
        units: bytes,
        count_max: int,
        size_max: int,
        matcher: Matcher | None,
    ) -> GetMessageResult:
        config = self._config
        hot = self._is_hot(int.from_bytes(units[:8], "big"))
        read = self._read_record
        if hot:
            count_max = min(count_max, config.max_transfer_count_on_message_in_memory)
            size_max = min(size_max, config.max_transfer_bytes_on_message_in_memory)
        else:
            count_max = min(count_max, config.max_transfer_count_on_message_in_disk)
            size_max = min(size_max, config.max_transfer_bytes_on_message_in_disk)
        min_phy_offset = self.min_phy_offset
        confirm_offset = self._reput.confirm_offset
        status = GetMessageStatus.NO_MATCHED_MESSAGE
        buffers: list[bytes] = []
        total = count = 0
        next_offset = offset
        for (phy_offset, size, tags_code), behind in queue.parse(units, offset):
            # Before the filter, as RocketMQ does: a pull that is full looks no further for the offset to go on from.
            if buffers and (total + size > size_max or count + behind - next_offset > count_max):
                break
            if (phy_offset < min_phy_offset and size > 0) or size == FILLER_SIZE:
                # Fillers too: their message is gone, or was never here.
                if not buffers:
                    status = GetMessageStatus.MESSAGE_WAS_REMOVING
                next_offset = behind
                continue
            if matcher is not None and not matcher(tags_code):
                next_offset = behind
                continue
            # What the log cannot hold is not read: of a damaged unit it could be gigabytes, or nothing.
            record = read(phy_offset, size) if RECORD_SIZE_MIN <= size <= confirm_offset - phy_offset else b""
            if not record or len(record) != size or int.from_bytes(record[:4], "big") != size:
                raise StoreDamagedError(
                    f"{queue.files.directory}: unit {next_offset} says {size} bytes at {phy_offset}, "
                    "where the log has no such record. All ConsumeQueues are built anew at the next start"
                )
            buffers.append(record)
            total += size
            count += behind - next_offset
            next_offset = behind
        if buffers:
            status = GetMessageStatus.FOUND
        return GetMessageResult(
            status,
            next_offset,
            queue.min_offset,
            queue.max_offset,
            buffers,
            total,
            count,
            confirm_offset - phy_offset > config.access_message_in_memory_max_size,
        )

    def _read(self, phy_offset: int, size: int) -> bytes:
        log = self._old if phy_offset < self._old.end_pos else self._ledger
        return log.read(phy_offset, size)

    def _read_record(self, phy_offset: int, size: int) -> bytes:
        if phy_offset < self._old.end_pos:
            return self._old.read(phy_offset, size)
        try:
            return self._ledger.read_body(phy_offset, size)
        except FaultyEntryError as error:
            raise MessageDamagedError(str(error)) from error

    def _is_hot(self, phy_offset: int) -> bool:
        return self._reput.confirm_offset - phy_offset <= self._config.access_message_in_memory_max_size

    def _first_at(self, queue: UnitQueue, timestamp: int) -> int:
        """The first offset whose message was stored at `timestamp` or later; store timestamps never fall."""
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = queue.unit(middle)
            if unit is not None and self._store_timestamp_of(queue, middle, unit[0]) < timestamp:
                low = middle + 1
            else:
                high = middle
        return low

    def _store_timestamp_of(self, queue: UnitQueue, offset: int, phy_offset: int) -> int:
        """ms; -1 where the message is gone: the log loses files before its queues know. Raises StoreDamagedError."""
        if phy_offset < self.min_phy_offset:
            return -1
        behind = phy_offset + RECORD_SIZE_MIN
        head = self._read(phy_offset, RECORD_SIZE_MIN) if behind <= self._reput.confirm_offset else b""
        if len(head) < RECORD_SIZE_MIN:
            raise StoreDamagedError(
                f"{queue.files.directory}: unit {offset} says that a record begins at {phy_offset}, "
                f"but the log ends at {self._reput.confirm_offset}. All ConsumeQueues are built anew at the next start"
            )
        return store_timestamp_of(head)


def _nothing(status: GetMessageStatus, next_offset: int, low: int, high: int) -> GetMessageResult:
    return GetMessageResult(status, next_offset, low, high, [])
