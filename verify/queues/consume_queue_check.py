"""ConsumeQueues against the log: each message has its unit, and the unit is the one that reput makes of it.

In pass 1 a ConsumeQueueCheck is fed what a data range holds, and compares the units of its messages with the files, in
bulk. What it cannot see alone, units that no message explains, is found afterwards (queue_extras.py): that takes all
that the log explains. Units are looked at where they must be in the files: up to the applied index of a member of ours,
everywhere in what Java stopped cleanly; where Java crashed, units newer than its checkpoint may be missing, because its
recovery dispatches them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from message.dispatch_columns import DispatchColumns, scan_records
from message.errors import MessageDecodeError
from message.names import SCHEDULE_TOPIC
from message.sys_flag import has_consume_queue_unit
from store.dispatch_request import DispatchRequest, QueueKey, dispatch_requests, unit_bytes
from store.layout.consume_queue_unit import CQ_UNIT, CQ_UNIT_SIZE
from store.store_config import DELAY_LEVELS
from verify.findings import Kind
from verify.log.entry_scan import Run
from verify.log.log_part import is_chained
from verify.log.message_at import is_message_at
from verify.queues.batch_queue_files import BatchQueueFiles, messages_of, units_of_one
from verify.queues.queue_files import QueueFiles, queue_directory
from verify.queues.queue_findings import QueueFault, QueuePart, RecordFault, join_faults
from verify.queues.units_bound import units_bound
from verify.replica import Replica

# Messages: their columns take some 10 MB, and a thousand queues are not read for each window.
_COMPARED_AT_ONCE: Final = 32768
_TAGS_CODE_AT: Final = 12  # in a unit
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()


class ConsumeQueueCheck:
    """A consumer of pass 1."""

    def __init__(self, replica: Replica) -> None:
        """Raises OSError."""
        self._replica = replica
        self._bound = units_bound(replica)
        self._deleted_topics = {
            topic.encode("utf-8", "surrogateescape"): pos for topic, pos in replica.deleted_topics
        }
        self._files: dict[tuple[bytes, int], QueueFiles] = {}
        self._batch_files: dict[tuple[bytes, int], BatchQueueFiles] = {}
        self._unreadable: dict[str, str] = {}
        self._parts: list[QueuePart] = []
        self._stretch = _Stretch(-1, -1, -1)
        self._waiting: list[_Batch] = []
        self._waiting_count = 0  # messages in them

    def feed(self, run: Run) -> None:
        stretch = self._stretch
        # A log may end within a unit: what lies behind it begins a stretch of its own, and is left out with it.
        if (run.first_pos, run.first_index) != (stretch.next_pos, stretch.next_index) or not (
            stretch.last_header is None or is_chained(stretch.last_header, run.first_header)
        ):
            self._end_stretch()
            self._stretch = _Stretch(run.first_pos, run.first_pos, run.first_index)
        has_indexes = run.first_index >= 0
        compared = (
            min(run.count, max(self._bound.index - run.first_index + 1, 0)) if has_indexes else run.count
        )
        if compared:
            self._take(run, 0, compared, compare=True)
        if compared < run.count:
            self._take(run, compared, run.count, compare=False)
        self._stretch.next_pos = run.next_pos
        self._stretch.next_index = run.last_index + 1 if has_indexes else -1
        self._stretch.last_header = run.last_header if has_indexes else None

    def finish(self) -> Iterator[QueuePart]:
        self._end_stretch()
        if self._unreadable:
            unreadable = sorted(self._unreadable.items())
            self._parts.append(QueuePart(self._replica.name, -1, -1, [], [], [], unreadable))
        yield from self._parts

    def _end_stretch(self) -> None:
        stretch = self._stretch
        self._compare()
        if stretch.next_pos > stretch.pos:
            explained = [
                (*key, first, end) for key, ranges in stretch.explained.items() for first, end in ranges
            ]
            self._parts.append(
                QueuePart(
                    self._replica.name,
                    stretch.pos,
                    stretch.next_pos,
                    explained,
                    stretch.faults,
                    stretch.record_faults,
                    [],
                )
            )

    def _take(self, run: Run, start: int, stop: int, *, compare: bool) -> None:
        whole = start == 0 and stop == len(run.offsets)
        offsets = run.offsets if whole else run.offsets[start:stop]
        numbers: Sequence[int] = range(start, stop)
        try:
            columns = _scan(run, offsets)
        except MessageDecodeError:
            numbers = self._decodable(run, start, stop)
            offsets = [run.offsets[number] for number in numbers]
            columns = _scan(run, offsets)
        shift = run.first_pos - run.offsets[0] + run.record_shift
        phy_offsets = [shift + offset for offset in offsets]
        if columns.phy_offsets != phy_offsets:
            for number, phy_offset, said in zip(numbers, phy_offsets, columns.phy_offsets, strict=True):
                if said != phy_offset:
                    reason = f"the record says that it is at physical offset {said}, it is at {phy_offset}"
                    self._stretch.add_record_fault(Kind.WRONG_POS, run, number, reason)
            columns.phy_offsets = phy_offsets  # one fault is not to be two
        requests = dispatch_requests(columns)
        for request in requests:
            key = request.topic, request.queue_id
            self._stretch.explain(key, request.queue_offset, request.next_offset)
        if compare:
            self._waiting.append(_Batch(run.first_index, numbers, columns, requests))
            self._waiting_count += len(columns)
            if self._waiting_count >= _COMPARED_AT_ONCE:
                self._compare()

    def _decodable(self, run: Run, start: int, stop: int) -> list[int]:
        """Numbers of the entries that hold a record."""
        numbers = []
        for number in range(start, stop):
            try:
                _scan(run, [run.offsets[number]])
                numbers.append(number)
            except MessageDecodeError as error:
                self._stretch.add_record_fault(Kind.UNDECODABLE_MESSAGE, run, number, _reason(error))
        return numbers

    def _compare(self) -> None:
        """The units of what waits, with what is in the files: one read per queue."""
        queues: dict[QueueKey, list[tuple[DispatchRequest, _Batch]]] = {}
        for batch in self._waiting:
            for request in batch.requests:
                if request.is_batch:
                    self._compare_batches(request, batch)
                else:
                    queues.setdefault((request.topic, request.queue_id), []).append((request, batch))
        self._waiting, self._waiting_count = [], 0
        for queue in queues.values():
            first, end = queue[0][0].queue_offset, queue[-1][0].next_offset
            expected = b"".join(unit_bytes(request) for request, _ in queue)
            # Offsets that do not follow each other are compared one request after the other.
            is_dense = len(expected) == (end - first) * CQ_UNIT_SIZE
            if is_dense and self._units(queue[0][0], end - first) == expected:
                continue
            for request, batch in queue:
                found = self._units(request, len(request.units))
                if found is not None and found != unit_bytes(request) and not self._are_units_of_one(request):
                    self._add_faults(batch, request, found)

    def _compare_batches(self, request: DispatchRequest, batch: _Batch) -> None:
        try:
            files = self._batch_files_of(request)
            if files.read(request.queue_offset, len(request.units)) != unit_bytes(request):
                found = [files.unit_of(messages_of(unit)[0]) for unit in request.units]
                self._add_faults(batch, request, b"".join(found))
        except OSError as error:
            self._unreadable[str(error.filename)] = error.strerror or str(error)

    def _are_units_of_one(self, request: DispatchRequest) -> bool:
        """Whether these are single messages of a topic with queue.type=BatchCQ, as RocketMQ's brokers store them."""
        try:
            units = self._batch_files_of(request).read(request.queue_offset, len(request.units))
        except OSError as error:
            self._unreadable[str(error.filename)] = error.strerror or str(error)
            return False
        return units_of_one(units, request.queue_offset) == unit_bytes(request)

    def _batch_files_of(self, request: DispatchRequest) -> BatchQueueFiles:
        """Raises OSError."""
        key = request.topic, request.queue_id
        files = self._batch_files.get(key)
        if files is None:
            files = BatchQueueFiles(queue_directory(self._replica, *key, is_batch=True))
            self._batch_files[key] = files
        return files

    def _units(self, request: DispatchRequest, count: int) -> bytes | None:
        """What the files have from the request's offset on; None where they cannot be read."""
        key = request.topic, request.queue_id
        files = self._files.get(key)
        try:
            if files is None:
                files = QueueFiles(queue_directory(self._replica, *key))
                self._files[key] = files
            return files.read(request.queue_offset * CQ_UNIT_SIZE, count * CQ_UNIT_SIZE)
        except OSError as error:
            self._unreadable[str(error.filename)] = error.strerror or str(error)
            return None

    def _add_faults(self, batch: _Batch, request: DispatchRequest, found: bytes) -> None:
        columns = batch.columns
        newest_on_disk = self._bound.store_timestamp
        if found.count(0) == len(found) and min(columns.store_timestamps) > newest_on_disk:
            return  # none of them needs to be there
        rows = batch.rows_of(request)
        size = request.unit_size
        for at, expected in enumerate(request.units):
            unit = found[at * size : (at + 1) * size]
            if request.is_batch:
                offset, end = messages_of(expected)
            else:
                offset = request.queue_offset + at
                end = offset + 1
            row = rows[offset]
            is_missing = not any(unit)
            store_timestamp = columns.store_timestamps[row]
            # A running Java broker may be in the middle of writing the newest ones.
            may_come = is_missing or self._replica.is_live
            if unit == expected or (may_come and store_timestamp > newest_on_disk):
                continue
            if int.from_bytes(expected[:8], "big") < self._deleted_topics.get(request.topic, 0):
                continue  # nobody reads it, and RocketMQ may have given its offset again
            if request.topic == _SCHEDULE_TOPIC and _is_other_delay(unit, expected, store_timestamp):
                continue
            index = batch.first_index + batch.numbers[row] if batch.first_index >= 0 else -1
            kind = Kind.CONSUME_QUEUE_MISSING if is_missing else Kind.CONSUME_QUEUE_WRONG
            if not is_missing and self._is_of_one_before(request, offset, unit, expected):
                kind = Kind.QUEUE_OFFSET_TWICE
            self._stretch.add_fault(
                QueueFault(
                    kind=kind,
                    topic=request.topic,
                    queue_id=request.queue_id,
                    first_offset=offset,
                    last_offset=end - 1,
                    first_index=index,
                    last_index=index,
                    count=1,
                    expected=expected,
                    found=unit,
                )
            )

    def _is_of_one_before(self, request: DispatchRequest, offset: int, unit: bytes, expected: bytes) -> bool:
        """Whether a unit that leads elsewhere leads to a message that has the offset as well: what lies before this one
        in the log is sound, or named by those who look at entries.
        """
        if request.is_batch:
            return False
        (phy_offset, size, _), (wanted_offset, _, _) = CQ_UNIT.unpack(unit), CQ_UNIT.unpack(expected)
        if phy_offset >= wanted_offset:
            return False
        try:
            return is_message_at(self._replica, phy_offset, size, request.topic, request.queue_id, offset)
        except OSError as error:
            self._unreadable[str(error.filename)] = error.strerror or str(error)
            return False


@dataclass(slots=True)
class _Batch:
    """Messages of a Run whose units are still to be compared. One row per message."""

    first_index: int  # of the Run
    numbers: Sequence[int]  # of the entries in the Run
    columns: DispatchColumns
    requests: list[DispatchRequest]
    rows: dict[QueueKey, dict[int, int]] = field(
        default_factory=dict
    )  # by queue offset; made when it is needed

    def rows_of(self, request: DispatchRequest) -> dict[int, int]:
        if not self.rows:
            columns = self.columns
            for row, (topic, queue_id, offset, sys_flag) in enumerate(
                zip(columns.topics, columns.queue_ids, columns.queue_offsets, columns.sys_flags, strict=True)
            ):
                if has_consume_queue_unit(sys_flag):
                    self.rows.setdefault((topic, queue_id), {})[offset] = row
        return self.rows[request.topic, request.queue_id]


@dataclass(slots=True)
class _Stretch:
    """Entries one behind the other, as far as they have been fed."""

    pos: int
    next_pos: int
    next_index: int
    last_header: bytes | None = None  # None: of none, or of a record, which has none
    explained: dict[tuple[bytes, int], list[tuple[int, int]]] = field(default_factory=dict)
    faults: list[QueueFault] = field(default_factory=list)
    record_faults: list[RecordFault] = field(default_factory=list)

    def explain(self, key: tuple[bytes, int], first: int, end: int) -> None:
        ranges = self.explained.setdefault(key, [])
        if ranges and ranges[-1][1] == first:
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((first, end))

    def add_fault(self, fault: QueueFault) -> None:
        joined = join_faults(self.faults[-1], fault) if self.faults else None
        if joined is not None:
            self.faults[-1] = joined
        else:
            self.faults.append(fault)

    def add_record_fault(self, kind: Kind, run: Run, number: int, reason: str) -> None:
        next_pos = _pos_of(run, number + 1) if number + 1 < len(run.offsets) else run.next_pos
        index = run.first_index + number if run.first_index >= 0 else -1
        fault = RecordFault(
            kind=kind,
            pos=_pos_of(run, number),
            next_pos=next_pos,
            first_index=index,
            last_index=index,
            count=1,
            reason=reason,
        )
        self.record_faults.append(fault)


def _is_other_delay(unit: bytes, expected: bytes, store_timestamp: int) -> bool:
    """Whether the units differ in the time of delivery alone, and by another messageDelayLevel than the usual one: no
    file tells which the broker had, but each is whole seconds."""
    delay_ms = int.from_bytes(unit[_TAGS_CODE_AT:], "big", signed=True) - store_timestamp
    return unit[:_TAGS_CODE_AT] == expected[:_TAGS_CODE_AT] and delay_ms >= 0 and delay_ms % 1000 == 0


def _scan(run: Run, offsets: Sequence[int]) -> DispatchColumns:
    return scan_records(run.buffer, offsets, shift=run.record_shift, delay_levels=DELAY_LEVELS)


def _pos_of(run: Run, number: int) -> int:
    return run.first_pos - run.offsets[0] + run.offsets[number]


def _reason(error: MessageDecodeError) -> str:
    """Without the offset in a buffer, which says nothing to a reader."""
    return str(error).partition(": ")[2] or str(error)
