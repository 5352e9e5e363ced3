"""What one pop has found in the queues that it looked into, before that is popped."""

from __future__ import annotations

from struct import Struct

import msgspec

from message import const
from message.decoder import decode_message, raw_properties
from message.encoder import encode_again
from message.pop_handle import PopHandle, retry_mark
from message.properties import PROPERTIES_LENGTH_MAX, with_properties
from store.state.tables.pop_table import PoppedQueue

_QUEUE_OFFSET = Struct(">20xq")  # of a record


def queue_offset_of(record: bytes) -> int:
    offset: int = _QUEUE_OFFSET.unpack_from(record)[0]
    return offset


class QueueLook(msgspec.Struct, frozen=True):
    """What was found in one queue."""

    popped: PoppedQueue
    records: list[bytes]
    offsets: list[int]  # of the records


class PopLook(msgspec.Struct):
    """What was found in all queues."""

    queues: list[QueueLook] = msgspec.field(default_factory=list)  # whose offset moves
    count: int = 0  # of messages
    size: int = 0  # of their records, bytes
    rest: int = 0  # messages behind them
    blocked_until_ms: int | None = None  # when a queue of FIFO consumers gives messages again

    def block(self, until_ms: int) -> None:
        self.blocked_until_ms = min(self.blocked_until_ms or until_ms, until_ms)

    def add(self, queue: QueueLook) -> None:
        self.queues.append(queue)
        self.count += len(queue.records)
        self.size += sum(map(len, queue.records))


def under_own_topic(
    record: bytes, topic: str, start: int, pop_time: int, invisible_ms: int, broker_name: str
) -> bytes:
    """Make of a retry topic's message one of `topic`, with its handle, since consumers know no retry topics.

    A record whose properties leave no room for the handle is returned as it is stored.
    """
    message = decode_message(record)
    handle = PopHandle(
        start,
        pop_time,
        invisible_ms,
        0,
        retry_mark(message.topic),
        broker_name,
        message.queue_id,
        message.queue_offset,
    )
    properties = with_properties(raw_properties(record), {const.POP_CK: handle.encode()})
    if len(properties) > PROPERTIES_LENGTH_MAX:
        return record
    return encode_again(message, topic.encode(), message.queue_id, properties)
