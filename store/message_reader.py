"""Reading: pulls by queue offset, messages by physical offset, offsets by time. Nothing uncommitted is ever visible to
clients.

ConsumeQueues hold units of applied entries alone, and a physical offset counts only below the confirm offset.
"""

import struct

from dledger.errors import FaultyEntryError
from message.dispatch_columns import scan_records
from message.errors import MessageDecodeError
from message.record_layout import RECORD_SIZE_MIN
from store.dledger_commit_log import store_timestamp_of
from store.errors import MessageDamagedError, UnitDamagedError
from store.filter.message_filter import MessageFilter
from store.get_message import BoundaryType, GetMessageResult, GetMessageStatus
from store.inner_batch import inner_count
from store.java.old_commit_log import OldCommitLog
from store.layout.consume_queue_unit import CQ_UNIT_SIZE, FILLER_SIZE
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_queue import Unit, UnitQueue
from store.replicated_log import Ledger
from store.reput import Reput
from store.store_config import StoreConfig
from store.system_message import is_system_record

# A pull whose filter looks at records reads on until it has enough of them or this is spent, some 5 ms of work: what it
# wants may be rare, and others wait.
_FILTER_COST_MAX = 1024 * 1024
# In bytes: what a filter costs for each record besides reading it.
_FILTER_RECORD_COST = 1024

# Of a record: its size, queue id and queue offset. A damaged unit may lead to the record of another message.
_NAMES = struct.Struct(">i8xi4xq")


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
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        """Up to `count_max` messages and `size_max` bytes from queue offset `offset` on; the first match always fits.

        Raises UnitDamagedError, MessageDamagedError, DiskError.
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
            message_filter = None  # the messages of a batch have tags of their own, which consumers look at
        # Without a filter each unit is a message, or several.
        units = queue.units(offset, count_max if message_filter is None else scan_count)
        if not units:
            next_offset = min(queue.first_offset_of_next_file(offset), high)
            return _nothing(GetMessageStatus.OFFSET_FOUND_NULL, next_offset, low, high)
        count_max, size_max = self._transfer_limits(units, count_max, size_max)
        if message_filter is None or message_filter.by_record is None:
            return self._read_units(queue, offset, units, count_max, size_max, message_filter)
        return self._look_through(queue, offset, units, count_max, size_max, message_filter)

    def read_on(
        self, queue: UnitQueue, offset: int, count_max: int, size_max: int
    ) -> tuple[list[bytes], int]:
        """Records from `offset` on that are there, and the offset to go on from: `offset` itself at the end. For the
        store's own use, so beyond what a pull may have. Raises UnitDamagedError, MessageDamagedError, DiskError.
        """
        units = queue.units(offset, count_max)
        if not units:
            return [], min(queue.first_offset_of_next_file(offset), queue.max_offset)
        found = self._read_units(queue, offset, units, count_max, size_max, None)
        return found.buffers, found.next_begin_offset

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
        """The record at a physical offset, None where no committed message begins. Entries of the store's own are no
        messages: some have secrets.
        """
        record = self._look(phy_offset, self._reput.confirm_offset)
        return None if record is None or is_system_record(record) else record

    def look_appended_message(self, phy_offset: int) -> bytes | None:
        """As look_message_by_offset(), also of what is not dispatched yet, or not committed: for what goes behind it
        into the log.
        """
        return self._look(phy_offset, self._ledger.ledger_end_pos)

    def _look(self, phy_offset: int, end_pos: int) -> bytes | None:
        if 0 <= phy_offset < self._old.end_pos:
            old_size = self._old.record_size_at(phy_offset)
            return self._old.read(phy_offset, old_size) if old_size is not None else None
        ledger, pos = self._ledger, phy_offset - self._ledger.head_size
        if pos < ledger.ledger_begin_pos:
            return None
        if phy_offset + RECORD_SIZE_MIN > end_pos:
            return None
        try:
            size = ledger.body_size_at(pos)
        except FaultyEntryError as error:
            raise MessageDamagedError(str(error)) from error
        if size is None or size < RECORD_SIZE_MIN or phy_offset + size > end_pos:
            return None
        return self._read_records([(phy_offset, size)])[0]

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
        return self._store_timestamp_of(queue, offset, unit)

    def is_in_memory(self, topic: bytes, queue_id: int, offset: int) -> bool:
        """Whether the message counts as hot: not far behind the newest."""
        queue = self._queues.find(topic, queue_id)
        unit = queue.unit(offset) if queue is not None else None
        return unit is not None and self._is_hot(unit[0])

    def _transfer_limits(self, units: bytes, count_max: int, size_max: int) -> tuple[int, int]:
        """How many messages and bytes a pull of these units may have at most."""
        config = self._config
        if self._is_hot(int.from_bytes(units[:8], "big")):
            count_max = min(count_max, config.max_transfer_count_on_message_in_memory)
            return count_max, min(size_max, config.max_transfer_bytes_on_message_in_memory)
        count_max = min(count_max, config.max_transfer_count_on_message_in_disk)
        return count_max, min(size_max, config.max_transfer_bytes_on_message_in_disk)

    def _look_through(
        self,
        queue: UnitQueue,
        offset: int,
        units: bytes,
        count_max: int,
        size_max: int,
        message_filter: MessageFilter,
    ) -> GetMessageResult:
        """Reads step by step, until enough is wanted, the units end or the filter has cost enough."""
        result = self._read_units(queue, offset, units, count_max, size_max, message_filter)
        while result.count < count_max and result.filter_cost < _FILTER_COST_MAX:
            left = units[(result.next_begin_offset - offset) * CQ_UNIT_SIZE :]
            if not left:
                break
            step = self._read_units(
                queue, result.next_begin_offset, left, count_max, size_max, message_filter
            )
            for record in step.buffers:
                if result.count == count_max or (result.count and result.size + len(record) > size_max):
                    _, _, result.next_begin_offset = _NAMES.unpack_from(record)
                    return result
                result.buffers.append(record)
                result.size += len(record)
                result.count += 1
            result.status = GetMessageStatus.FOUND if result.buffers else step.status
            result.next_begin_offset = step.next_begin_offset
            result.filter_cost += step.filter_cost
            result.suggest_pulling_from_slave = step.suggest_pulling_from_slave
        return result

    def _read_units(
        self,
        queue: UnitQueue,
        offset: int,
        units: bytes,
        count_max: int,
        size_max: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        phy_offset_min = self.min_phy_offset
        confirm_offset = self._reput.confirm_offset
        status = GetMessageStatus.NO_MATCHED_MESSAGE
        places: list[tuple[int, int]] = []  # phy_offset and size of each record
        offsets: list[tuple[int, int, int]] = []  # of each: reached by the pull, its own, behind it
        by_unit = message_filter.by_unit if message_filter is not None else None
        total = count = 0
        next_offset = offset
        for (phy_offset, size, tags_code), base, behind in queue.parse(units, offset):
            # Before the filter, as RocketMQ does: a pull that is full looks no further for the offset to go on from.
            if places and (total + size > size_max or count + behind - next_offset > count_max):
                break
            # Also of those that a filter passes over unread: zeros, and what does not lie behind the one before, must
            # hide none.
            if phy_offset < phy_offset_min or not RECORD_SIZE_MIN <= size < FILLER_SIZE:
                # Fillers too: their message is gone, or was never here.
                if size != FILLER_SIZE and not (size > 0 and self.is_gone(queue, base, phy_offset)):
                    raise self._damaged(queue, next_offset, phy_offset, size)
                if not places:
                    status = GetMessageStatus.MESSAGE_WAS_REMOVING
                next_offset = behind
                continue
            phy_offset_min = phy_offset
            if base > next_offset and queue.is_batch and not self._is_gap(queue, next_offset):
                raise self._damaged(queue, next_offset, phy_offset, size)
            if by_unit is not None and not by_unit(tags_code):
                next_offset = behind
                continue
            # What the log cannot hold is not read: of a damaged unit it could be gigabytes, or nothing.
            if size > confirm_offset - phy_offset:
                raise self._damaged(queue, next_offset, phy_offset, size)
            places.append((phy_offset, size))
            offsets.append((next_offset, base, behind))
            total += size
            count += behind - next_offset
            next_offset = behind
        buffers = self._read_records(places)
        for record, (phy_offset, size), (reached, base, behind) in zip(buffers, places, offsets, strict=True):
            if (
                len(record) != size
                or _NAMES.unpack_from(record) != (size, queue.queue_id, base)
                or (queue.is_batch and not _is_batch_of(record, behind - base))
            ):
                raise self._damaged(queue, reached, phy_offset, size)
        filter_cost = 0
        if message_filter is not None and message_filter.by_record is not None:
            filter_cost = total + len(buffers) * _FILTER_RECORD_COST
            wanted = list(filter(message_filter.by_record, buffers))
            if len(wanted) < len(buffers):
                buffers, total, count = wanted, sum(map(len, wanted)), len(wanted)
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
            confirm_offset - phy_offset > self._config.access_message_in_memory_max_size,
            filter_cost,
        )

    def leads_to_its_record(self, queue: UnitQueue, offset: int, unit: Unit) -> bool:
        """Whether the record where the unit points says that it is the queue's, at `offset`. Raises
        MessageDamagedError, DiskError.
        """
        phy_offset, size, _ = unit
        record = self.look_message_by_offset(phy_offset) if size >= RECORD_SIZE_MIN else None
        if record is None or len(record) != size:
            return False
        try:
            columns = scan_records(record, [0])
        except MessageDecodeError:
            return False
        says = columns.topics[0], columns.queue_ids[0], columns.queue_offsets[0]
        return says == (queue.topic, queue.queue_id, offset)

    def tags_code_of(self, record: bytes) -> int:
        """As its unit should have it: of a delayed message the time of its delivery, ms. Raises MessageDecodeError."""
        return scan_records(record, [0], delay_levels=self._config.delay_levels).tags_codes[0]

    def is_before_log(self, phy_offset: int) -> bool:
        """In what a plain broker of RocketMQ's has left."""
        return phy_offset < self._old.end_pos

    def is_gone(self, queue: UnitQueue, offset: int, phy_offset: int) -> bool:
        """Whether retention has taken the message, as its unit says. It takes none behind a message that is there: so
        a unit that says it between others is damaged.
        """
        if phy_offset >= self.min_phy_offset:
            return False
        before = queue.unit_at(queue.number_of(offset) - 1)
        if before is None or before[1][0] < self.min_phy_offset or before[1][1] == FILLER_SIZE:
            return True
        # Nor does one that is damaged say anything of this one.
        return not self.leads_to_its_record(queue, *before)

    def _is_gap(self, queue: UnitQueue, offset: int) -> bool:
        """Whether there is no batch with `offset`; else the search passed over a damaged unit."""
        before = queue.unit_at(queue.number_of(offset) - 1)
        return before is None or self.leads_to_its_record(queue, *before)

    def _damaged(self, queue: UnitQueue, offset: int, phy_offset: int, size: int) -> UnitDamagedError:
        return UnitDamagedError(
            f"{queue.files.directory}: unit {offset} says {size} bytes at {phy_offset}, where the log has no such "
            "record. It is being written anew",
            offset,
        )

    def _read(self, phy_offset: int, size: int) -> bytes:
        log = self._old if phy_offset < self._old.end_pos else self._ledger
        try:
            return log.read(phy_offset, size)
        except FaultyEntryError as error:
            raise MessageDamagedError(str(error)) from error

    def _read_records(self, places: list[tuple[int, int]]) -> list[bytes]:
        """Those at each phy_offset of this size, empty where there is none. The offsets ascend."""
        old_end_pos = self._old.end_pos
        records = [self._old.read(*place) for place in places if place[0] < old_end_pos]
        try:
            return records + self._ledger.read_bodies(places[len(records) :])
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
            if unit is not None and self._store_timestamp_of(queue, middle, unit) < timestamp:
                low = middle + 1
            else:
                high = middle
        return low

    def _store_timestamp_of(self, queue: UnitQueue, offset: int, unit: Unit) -> int:
        """ms; -1 where the message is gone: the log loses files before its queues know. Raises UnitDamagedError."""
        phy_offset, size, _ = unit
        if phy_offset < self.min_phy_offset and size > 0:
            return -1
        is_there = self.min_phy_offset <= phy_offset <= self._reput.confirm_offset - RECORD_SIZE_MIN
        head = self._read(phy_offset, RECORD_SIZE_MIN) if is_there else b""
        if len(head) < RECORD_SIZE_MIN or not is_head_of(head, queue, offset):
            raise UnitDamagedError(
                f"{queue.files.directory}: unit {offset} says that its record begins at {phy_offset}, where the log "
                "has no such record. It is being written anew",
                offset,
            )
        return store_timestamp_of(head)


def is_head_of(head: bytes, queue: UnitQueue, offset: int) -> bool:
    """Whether a record that begins so says that it is the queue's, at `offset`."""
    _, queue_id, base = _NAMES.unpack_from(head)
    is_its_offset: bool = base <= offset if queue.is_batch else base == offset
    return is_its_offset and queue_id == queue.queue_id


def _is_batch_of(record: bytes, count: int) -> bool:
    """A single message is a batch of one. Raises MessageDamagedError, of a log whose reads are not proved."""
    try:
        columns = scan_records(record, [0])
    except MessageDecodeError as error:
        raise MessageDamagedError(f"a batch cannot be read: {error}") from error
    return (inner_count(columns.sys_flags[0], columns.properties[0]) or 1) == count


def _nothing(status: GetMessageStatus, next_offset: int, low: int, high: int) -> GetMessageResult:
    return GetMessageResult(status, next_offset, low, high, [])
