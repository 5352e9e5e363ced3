"""What is put, and how a put ends, as values."""

from enum import Enum

import msgspec

from dledger.entry import Index
from message.decoder import MessageExt
from message.message_id import pack_host
from message.properties import find_property
from message.sys_flag import STOREHOSTADDRESS_V6_FLAG
from message.tags import tags_code_of_bytes


class PutMessage(msgspec.Struct, gc=False):
    """One message to be stored, its parts encoded as they will lie in the record.

    `tags_code` must be what message.tags makes of `properties`: followers compute it from there.
    """

    topic: bytes  # in UTF-8
    queue_id: int
    body: bytes
    properties: bytes
    tags_code: int
    born_timestamp: int  # ms
    born_host: bytes  # packed: 8 bytes, 20 with BORNHOST_V6_FLAG
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    message_count: int = 0  # of an inner batch (store/inner_batch.py); 0: it is none


def put_again(
    message: MessageExt, topic: bytes, queue_id: int, properties: bytes, *, attempts: int = 0
) -> PutMessage:
    """A message that was read, as it is stored anew. `attempts`: at consuming it, beside those that it tells of."""
    return PutMessage(
        topic,
        queue_id,
        message.body,
        properties,
        tags_code_of_bytes(find_property(properties, b"TAGS") or b""),
        message.born_timestamp,
        pack_host(message.born_host),
        message.flag,
        message.sys_flag & ~STOREHOSTADDRESS_V6_FLAG,
        message.reconsume_times + attempts,
    )


class PutStatus(Enum):
    """Outcomes of a put. Names are RocketMQ's PutMessageStatus where it has one."""

    PUT_OK = "PUT_OK"
    # The leadership ended, or the disk failed, with the append under way: a later leader may still commit it.
    UNKNOWN = "UNKNOWN"
    # The rest are refusals: nothing was stored, and nothing will be.
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    SYSTEM_BUSY = "SYSTEM_BUSY"


class PutBatch(msgspec.Struct):
    """An append under way. `results`: (phy_offset, queue_offset) of each message, valid once it is PUT_OK."""

    results: list[tuple[int, int]]
    store_timestamp: int  # ms, of all of them
    first_index: Index
    last_index: Index


class PutRefusal(msgspec.Struct, frozen=True):
    """Nothing is in the log and no queue offset was used. `text` names cause, measured value and limit. UNKNOWN is for
    a write that failed on the disk: a crash may still bring the messages to light.
    """

    status: PutStatus
    text: str
