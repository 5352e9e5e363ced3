"""What reput hands to ConsumeQueues and to those who wait for messages: one request per queue and batch."""

from message.dispatch_columns import DispatchColumns
from message.sys_flag import TRANSACTION_PREPARED_TYPE
from store.layout.consume_queue_unit import CQ_UNIT, CQ_UNIT_SIZE

QueueKey = tuple[bytes, int]  # topic in UTF-8, queue id


class DispatchRequest:
    """Messages of one queue with consecutive queue offsets, as ConsumeQueue units."""

    __slots__ = ("queue_id", "queue_offset", "tags_codes", "topic", "units")

    def __init__(self, topic: bytes, queue_id: int, queue_offset: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset  # of the first message
        self.units: list[bytes] = []
        self.tags_codes: list[int] = []

    @property
    def next_offset(self) -> int:
        """Queue offset behind the last message."""
        return self.queue_offset + len(self.units)


def dispatch_requests(columns: DispatchColumns) -> list[DispatchRequest]:
    """Requests of a follower, which reads its columns from the log; a leader makes its own while it appends.

    Messages without a unit (prepared and rolled back ones) are left out. A queue whose offsets do not follow each
    other, as a store of other hands may have it, gets several requests.
    """
    requests: list[DispatchRequest] = []
    current: dict[QueueKey, DispatchRequest] = {}
    find, pack = current.get, CQ_UNIT.pack
    for topic, queue_id, queue_offset, phy_offset, size, tags_code, sys_flag in zip(
        columns.topics,
        columns.queue_ids,
        columns.queue_offsets,
        columns.phy_offsets,
        columns.sizes,
        columns.tags_codes,
        columns.sys_flags,
        strict=True,
    ):
        if sys_flag & TRANSACTION_PREPARED_TYPE:
            continue
        key = (topic, queue_id)
        request = find(key)
        if request is None or queue_offset != request.queue_offset + len(request.units):
            request = current[key] = DispatchRequest(topic, queue_id, queue_offset)
            requests.append(request)
        request.units.append(pack(phy_offset, size, tags_code))
        request.tags_codes.append(tags_code)
    return requests


def unit_bytes(request: DispatchRequest, skip: int = 0) -> bytes:
    """The units one behind the other, without the first `skip`."""
    data = b"".join(request.units)
    return data[skip * CQ_UNIT_SIZE :] if skip else data
