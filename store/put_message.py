"""What is put, and how a put ends, as values."""

from dataclasses import dataclass
from enum import Enum

from dledger.entry import Index


class PutMessage:
    """One message to be stored, its parts encoded as they will lie in the record.

    `tags_code` must be what message.tags makes of `properties`: followers compute it from there.
    """

    __slots__ = (
        "body",
        "born_host",
        "born_timestamp",
        "flag",
        "prepared_transaction_offset",
        "properties",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "tags_code",
        "topic",
    )

    def __init__(
        self,
        topic: bytes,
        queue_id: int,
        body: bytes,
        properties: bytes,
        tags_code: int,
        born_timestamp: int,
        born_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> None:
        """`topic` in UTF-8; `born_timestamp` in ms; `born_host` packed, 8 bytes (20 with BORNHOST_V6_FLAG)."""
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.tags_code = tags_code
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.flag = flag
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset


class PutStatus(Enum):
    """Outcomes of a put. Names are RocketMQ's PutMessageStatus where it has one."""

    PUT_OK = "PUT_OK"
    # The leadership ended, or the disk failed, with the append under way: a later leader may still commit it.
    UNKNOWN = "UNKNOWN"
    # The rest are refusals: nothing was stored, and nothing will be.
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    SYSTEM_BUSY = "SYSTEM_BUSY"


@dataclass(slots=True)
class PutBatch:
    """An append under way. `results`: (phy_offset, queue_offset) of each message, valid once it is PUT_OK."""

    results: list[tuple[int, int]]
    store_timestamp: int  # ms, of all of them
    first_index: Index
    last_index: Index


@dataclass(frozen=True, slots=True)
class PutRefusal:
    """Nothing is in the log and no queue offset was used. `text` names cause, measured value and limit. UNKNOWN is for
    a write that failed on the disk: a crash may still bring the messages to light.
    """

    status: PutStatus
    text: str
