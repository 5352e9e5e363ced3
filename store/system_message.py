"""The store's own entries as messages, because Java reads every entry of a DLedger store as one.

They are messages of system topics that carry TRANSACTION_ROLLBACK_TYPE: for such neither Java nor we make ConsumeQueue
units or index entries, so they need no queue offset. Java tests the first record of each data file, so theirs is in
order too: V1 magic, IPv4 hosts, a valid bodyCRC, a storeTimestamp, PHYSICALOFFSET = pos + 48.
"""

from typing import Final

from dledger.entry import ENTRY_HEADER_SIZE, Pos, Term
from message.encoder import encode_record, record_size
from message.sys_flag import TRANSACTION_ROLLBACK_TYPE

NO_OP_TOPIC: Final = b"rmq_sys_pydledger_noop"
STATE_TOPIC: Final = b"rmq_sys_pydledger_state"


class SystemMessage:
    """A system entry still without its place. Fulfils dledger.replica.SystemEntry."""

    __slots__ = ("_body", "_host", "_store_timestamp_min", "_topic", "size")

    def __init__(self, topic: bytes, body: bytes, host: bytes, store_timestamp_min: int) -> None:
        """`host` packed (8 bytes); `store_timestamp_min` (ms): of the record before, below which it must not fall."""
        self._topic = topic
        self._body = body
        self._host = host
        self._store_timestamp_min = store_timestamp_min
        self.size = record_size(len(topic), 0, len(body))

    def encode(self, pos: Pos, now_ms: int) -> bytes:
        """The record for an entry whose header lies at `pos`."""
        store_timestamp = max(now_ms, self._store_timestamp_min)
        return encode_record(
            self._topic,
            0,
            0,
            0,
            pos + ENTRY_HEADER_SIZE,
            TRANSACTION_ROLLBACK_TYPE,
            store_timestamp,
            self._host,
            store_timestamp,
            self._host,
            0,
            0,
            self._body,
            b"",
        )


def no_op_message(term: Term, host: bytes, store_timestamp_min: int) -> SystemMessage:
    # Not empty: RocketMQ knows no message without a body.
    return SystemMessage(NO_OP_TOPIC, b"leader of term %d" % term, host, store_timestamp_min)


def state_message(record: bytes, host: bytes, store_timestamp_min: int) -> SystemMessage:
    return SystemMessage(STATE_TOPIC, record, host, store_timestamp_min)
