"""The store's own entries as messages, because Java reads every entry of a DLedger store as one.

They are messages of system topics that carry TRANSACTION_ROLLBACK_TYPE: for such neither Java nor we make ConsumeQueue
units or index entries, so they need no queue offset. Java tests the first record of each data file, so theirs is in
order too: V1 magic, hosts as its flags say, a valid bodyCRC, a storeTimestamp, PHYSICALOFFSET = pos + 48.
"""

import struct
from typing import Final

from dledger.entry import EntryKind, Pos, Term
from message.decoder import decode_message
from message.encoder import encode_record, record_size
from message.errors import MessageDecodeError
from message.message_id import HOST_V6_SIZE
from message.record_layout import HOSTS_V6_MASK, SYS_FLAG_AT
from message.sys_flag import TRANSACTION_ROLLBACK_TYPE

NO_OP_TOPIC: Final = b"rmq_sys_pydledger_noop"
MEMBERSHIP_TOPIC: Final = b"rmq_sys_pydledger_membership"
STATE_TOPIC: Final = b"rmq_sys_pydledger_state"
_KINDS: Final = {
    NO_OP_TOPIC: EntryKind.NO_OP,
    MEMBERSHIP_TOPIC: EntryKind.MEMBERSHIP,
    STATE_TOPIC: EntryKind.STATE,
}
_NO_OP_BODY: Final = b"leader of term "
_SYS_FLAG: Final = struct.Struct(">i")


class SystemMessage:
    """A system entry still without its place. Fulfils dledger.replica.SystemEntry."""

    __slots__ = ("_body", "_head_size", "_host", "_store_timestamp_min", "_sys_flag", "_topic", "size")

    def __init__(
        self, topic: bytes, body: bytes, head_size: int, host: bytes, store_timestamp_min: int
    ) -> None:
        """`head_size`: of the entry in front of its body. `host`: packed. `store_timestamp_min` (ms): of the
        record before, below which it must not fall.
        """
        self._topic = topic
        self._body = body
        self._head_size = head_size
        self._host = host
        self._store_timestamp_min = store_timestamp_min
        is_v6 = len(host) == HOST_V6_SIZE
        self._sys_flag = TRANSACTION_ROLLBACK_TYPE | (HOSTS_V6_MASK if is_v6 else 0)
        self.size = record_size(len(topic), 0, len(body), born_v6=is_v6, store_v6=is_v6)

    def encode(self, pos: Pos, now_ms: int) -> bytes:
        """The record for an entry at `pos`."""
        store_timestamp = max(now_ms, self._store_timestamp_min)
        return encode_record(
            self._topic,
            0,
            0,
            0,
            pos + self._head_size,
            self._sys_flag,
            store_timestamp,
            self._host,
            store_timestamp,
            self._host,
            0,
            0,
            self._body,
            b"",
        )


def no_op_message(term: Term, head_size: int, host: bytes, store_timestamp_min: int) -> SystemMessage:
    # Not empty: RocketMQ knows no message without a body.
    return SystemMessage(NO_OP_TOPIC, b"%s%d" % (_NO_OP_BODY, term), head_size, host, store_timestamp_min)


def no_op_term(body: bytes) -> Term | None:
    """Of a no-op's record; None for a body that no no-op has."""
    number = body.removeprefix(_NO_OP_BODY)
    return Term(int(number)) if number != body and number.isdigit() else None


def state_message(record: bytes, head_size: int, host: bytes, store_timestamp_min: int) -> SystemMessage:
    return SystemMessage(STATE_TOPIC, record, head_size, host, store_timestamp_min)


def membership_message(
    payload: bytes, head_size: int, host: bytes, store_timestamp_min: int
) -> SystemMessage:
    return SystemMessage(MEMBERSHIP_TOPIC, payload, head_size, host, store_timestamp_min)


def kind_of_record(sys_flag: int, topic: bytes) -> EntryKind:
    """What a record is where no entry header says so. No client's message is one of ours: put_messages refuses it."""
    if sys_flag & TRANSACTION_ROLLBACK_TYPE == TRANSACTION_ROLLBACK_TYPE:
        return _KINDS.get(topic, EntryKind.MESSAGE)
    return EntryKind.MESSAGE


def is_system_record(record: bytes) -> bool:
    """Whether a whole record is one of ours."""
    (sys_flag,) = _SYS_FLAG.unpack_from(record, SYS_FLAG_AT)
    if sys_flag & TRANSACTION_ROLLBACK_TYPE != TRANSACTION_ROLLBACK_TYPE:
        return False
    try:
        message = decode_message(record, read_body=False)
    except MessageDecodeError:
        return False
    return kind_of_record(sys_flag, message.topic.encode(errors="surrogateescape")) is not EntryKind.MESSAGE
