"""What reput hands to ConsumeQueues and to those who wait for messages: one request per queue and batch."""

from __future__ import annotations

from typing import Final

from message.dispatch_columns import DispatchColumns
from message.sys_flag import INNER_BATCH_FLAG, TRANSACTION_PREPARED_TYPE
from store.inner_batch import inner_count
from store.layout.batch_unit import BATCH_UNIT_SIZE, pack_batch_unit
from store.layout.consume_queue_unit import CQ_UNIT, CQ_UNIT_SIZE

QueueKey = tuple[bytes, int]  # topic in UTF-8, queue id

_UNUSUAL_FLAGS: Final = TRANSACTION_PREPARED_TYPE | INNER_BATCH_FLAG


class DispatchRequest:
    """Messages of one queue with consecutive queue offsets, as ConsumeQueue units."""

    is_batch = False
    unit_size = CQ_UNIT_SIZE
    __slots__ = ("_source", "queue_id", "queue_offset", "tags_codes", "topic", "units")

    def __init__(self, topic: bytes, queue_id: int, queue_offset: int, source: DispatchColumns | int) -> None:
        """`source`: what it is read from, or the store timestamp (ms) of all its messages."""
        self._source = source
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset  # of the first message
        self.units: list[bytes] = []
        self.tags_codes: list[int] = []  # none where units do not tell the tags of single messages

    @property
    def next_offset(self) -> int:
        """Queue offset behind the last message."""
        return self.queue_offset + len(self.units)

    def as_batches(self) -> BatchDispatchRequest:
        """The same messages, as RocketMQ has them in a BatchConsumeQueue: each is a batch of one."""
        source = self._source
        units = [CQ_UNIT.unpack(unit) for unit in self.units]
        if isinstance(source, int):
            timestamps = dict.fromkeys((phy_offset for phy_offset, _, _ in units), source)
        else:
            timestamps = dict(zip(source.phy_offsets, source.store_timestamps, strict=True))
        batches = BatchDispatchRequest(self.topic, self.queue_id, self.queue_offset)
        for phy_offset, size, tags_code in units:
            batches.add(phy_offset, size, tags_code, timestamps[phy_offset], 1)
        return batches


class BatchDispatchRequest(DispatchRequest):
    """Inner batches of one queue with consecutive queue offsets, as units of a BatchConsumeQueue."""

    is_batch = True
    unit_size = BATCH_UNIT_SIZE
    __slots__ = ("_next_offset",)

    def __init__(self, topic: bytes, queue_id: int, queue_offset: int) -> None:
        super().__init__(topic, queue_id, queue_offset, 0)
        self._next_offset = queue_offset

    @property
    def next_offset(self) -> int:
        return self._next_offset

    def add(self, phy_offset: int, size: int, tags_code: int, store_timestamp: int, count: int) -> None:
        """A batch of `count` messages, behind those that are in it."""
        self.units.append(
            pack_batch_unit(phy_offset, size, tags_code, store_timestamp, self._next_offset, count)
        )
        self._next_offset += count


def dispatch_requests(columns: DispatchColumns) -> list[DispatchRequest]:
    """Requests of a follower, which reads its columns from the log; a leader makes its own while it appends.

    Messages without a unit (prepared and rolled back ones) are left out. A queue whose offsets do not follow each
    other, as a store of other hands may have it, gets several requests.
    """
    requests: list[DispatchRequest] = []
    current: dict[QueueKey, DispatchRequest] = {}
    find, pack = current.get, CQ_UNIT.pack
    for row, (topic, queue_id, queue_offset, phy_offset, size, tags_code, sys_flag) in enumerate(
        zip(
            columns.topics,
            columns.queue_ids,
            columns.queue_offsets,
            columns.phy_offsets,
            columns.sizes,
            columns.tags_codes,
            columns.sys_flags,
            strict=True,
        )
    ):
        key = (topic, queue_id)
        request = find(key)
        if sys_flag & _UNUSUAL_FLAGS:
            if sys_flag & TRANSACTION_PREPARED_TYPE:
                continue
            count = inner_count(sys_flag, columns.properties[row])
            if count:
                if not isinstance(request, BatchDispatchRequest) or queue_offset != request.next_offset:
                    request = current[key] = BatchDispatchRequest(topic, queue_id, queue_offset)
                    requests.append(request)
                request.add(phy_offset, size, tags_code, columns.store_timestamps[row], count)
                continue
        if request is None or request.is_batch or queue_offset != request.queue_offset + len(request.units):
            request = current[key] = DispatchRequest(topic, queue_id, queue_offset, columns)
            requests.append(request)
        request.units.append(pack(phy_offset, size, tags_code))
        request.tags_codes.append(tags_code)
    return requests


def unit_bytes(request: DispatchRequest) -> bytes:
    """The units one behind the other."""
    return b"".join(request.units)
