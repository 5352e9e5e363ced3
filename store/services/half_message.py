"""A prepared message: how it waits in the half topic, and what it becomes when its transaction ends.

It is an ordinary message of RMQ_SYS_TRANS_HALF_TOPIC, queue 0, with its own topic and queue as properties: byte by byte
what RocketMQ writes, so that each can go on with what the other has left.
"""

from typing import Final

import msgspec

from message import const
from message.decoder import MessageExt, decode_message, raw_properties
from message.errors import MessageDecodeError
from message.message_id import HOST_V6_SIZE
from message.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from message.properties import (
    delete_property,
    encode_properties,
    find_property,
    join_properties,
    number_of,
    with_properties,
)
from message.sys_flag import BORNHOST_V6_FLAG, TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from message.tags import tags_code
from store.put_message import PutMessage, put_again

HALF_TOPIC_BYTES: Final = TRANS_HALF_TOPIC.encode()
OP_TOPIC_BYTES: Final = TRANS_OP_HALF_TOPIC.encode()
_CHECK_MAX_TOPIC_BYTES: Final = TRANS_CHECK_MAX_TIME_TOPIC.encode()
_REAL_TOPIC: Final = const.REAL_TOPIC.encode()
_REAL_QUEUE_ID: Final = const.REAL_QUEUE_ID.encode()
_TRANSACTION_ID: Final = const.TRANSACTION_ID.encode()
_UNIQ_KEY: Final = const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode()
_CHECK_TIMES: Final = const.TRANSACTION_CHECK_TIMES.encode()
_OP_TAG: Final = "d"
_OP_PROPERTIES: Final = encode_properties({const.WAIT_STORE_MSG_OK: "true", const.TAGS: _OP_TAG})
_QUEUE_ID_MAX: Final = 2**31 - 1


class HalfMessage(msgspec.Struct, gc=False):
    """A record of the half topic."""

    message: MessageExt
    record: bytes
    real_topic: str
    real_queue_id: int

    @property
    def group(self) -> str | None:
        """Of the producers."""
        return self.message.properties.get(const.PRODUCER_GROUP)

    @property
    def queue_offset(self) -> int:
        return self.message.queue_offset


def half_message(record: bytes | None) -> HalfMessage | None:
    """None for a record of another topic, or one that cannot be read or does not say where it belongs."""
    if record is None:
        return None
    try:
        message = decode_message(record)
    except MessageDecodeError:
        return None
    topic = message.properties.get(const.REAL_TOPIC)
    queue_id = number_of(message.properties, const.REAL_QUEUE_ID)
    if (
        message.topic != TRANS_HALF_TOPIC
        or message.queue_id != 0
        or topic in (None, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)
        or queue_id is None
        or queue_id > _QUEUE_ID_MAX
    ):
        return None
    assert topic is not None, "looked at above"
    return HalfMessage(message, record, topic, queue_id)


def stands_for(half: HalfMessage) -> int | None:
    """RocketMQ may have put a half again while nobody was to be asked about it: the queue offset that it had before."""
    return number_of(half.message.properties, const.TRANSACTION_PREPARED_QUEUE_OFFSET)


def immunity_ms(half: HalfMessage, timeout_ms: int) -> int:
    """How long after its birth nobody is asked about it: `timeout_ms`, unless it says otherwise."""
    seconds = number_of(half.message.properties, const.CHECK_IMMUNITY_TIME_IN_SECONDS)
    return seconds * 1000 if seconds is not None else timeout_ms


def prepared(message: PutMessage) -> PutMessage:
    """The message as it waits in the half topic."""
    properties = delete_property(message.properties, _TRANSACTION_ID)
    uniq_key = find_property(properties, _UNIQ_KEY)
    if uniq_key is not None:
        properties = join_properties(properties, b"%b\x01%b\x02" % (_TRANSACTION_ID, uniq_key))
    belongs_to = {const.REAL_TOPIC: message.topic.decode(), const.REAL_QUEUE_ID: str(message.queue_id)}
    return msgspec.structs.replace(
        message,
        topic=HALF_TOPIC_BYTES,
        queue_id=0,
        properties=with_properties(properties, belongs_to),
        sys_flag=message.sys_flag & ~TRANSACTION_ROLLBACK_TYPE,
    )


def committed(half: HalfMessage) -> PutMessage:
    """The message that its consumers get."""
    properties = delete_property(delete_property(raw_properties(half.record), _REAL_TOPIC), _REAL_QUEUE_ID)
    return _copied(
        half.message,
        half.real_topic.encode(),
        half.real_queue_id,
        properties,
        sys_flag=TRANSACTION_COMMIT_TYPE,
        prepared_transaction_offset=half.message.phy_offset,
    )


def given_up(half: HalfMessage) -> PutMessage:
    """What is kept of a message whose producers never said how its transaction ends. prepared_again() takes it back."""
    return _copied(half.message, _CHECK_MAX_TOPIC_BYTES, 0, raw_properties(half.record))


def prepared_again(record: bytes) -> tuple[MessageExt, PutMessage] | None:
    """A message that was given up, and as the half that it becomes, to be asked about from the beginning; None if it
    is not one. Raises MessageDecodeError.
    """
    message = decode_message(record)
    # What has such properties elsewhere is a half that may have ended, or a timer message.
    if (
        message.topic != TRANS_CHECK_MAX_TIME_TOPIC
        or message.queue_id != 0
        or const.REAL_TOPIC not in message.properties
    ):
        return None
    properties = delete_property(raw_properties(record), _CHECK_TIMES)
    return message, _copied(message, HALF_TOPIC_BYTES, 0, properties)


def op_offsets(record: bytes) -> list[int]:
    """The halves that an op record says have ended. Raises MessageDecodeError."""
    message = decode_message(record)
    if message.tags != _OP_TAG:
        return []
    return [int(word) for word in message.body.split(b",") if word.isdigit() and len(word) <= 18]


def op_message(offsets: list[int], store_host: bytes, now_ms: int) -> PutMessage:
    """What tells RocketMQ that the halves at these queue offsets have ended."""
    return PutMessage(
        OP_TOPIC_BYTES,
        0,
        b"".join([b"%d," % offset for offset in offsets]),
        _OP_PROPERTIES,
        tags_code(_OP_TAG),
        now_ms,
        store_host,
        sys_flag=BORNHOST_V6_FLAG if len(store_host) == HOST_V6_SIZE else 0,
    )


def _copied(
    message: MessageExt,
    topic: bytes,
    queue_id: int,
    properties: bytes,
    *,
    sys_flag: int = 0,
    prepared_transaction_offset: int = 0,
) -> PutMessage:
    """The properties go on byte by byte, as with delayed messages."""
    put = put_again(message, topic, queue_id, properties)
    put.sys_flag = put.sys_flag & ~TRANSACTION_ROLLBACK_TYPE | sys_flag
    put.prepared_transaction_offset = prepared_transaction_offset
    return put
