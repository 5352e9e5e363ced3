"""A CommitLog record as a value. Pull responses hold records one behind the other, exactly as they are
stored."""

from collections.abc import Iterator
from dataclasses import dataclass

from zlib_ng.zlib_ng import crc32

from message import const
from message.errors import MessageDecodeError
from message.message_id import offset_message_id, pack_host, unpack_host
from message.properties import decode_properties
from message.record_layout import (
    BLANK_MAGIC,
    HOSTS_V6_MASK,
    HOSTS_V6_SHIFT,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    RECORD_HEAD_V4,
    RECORD_HEADS,
    RECORD_SIZE_MIN,
    SYS_FLAG_AT,
)


@dataclass(slots=True)
class MessageExt:
    """A stored message. Timestamps in ms, hosts as "ip:port", sizes and offsets in bytes but queue_offset."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    body_crc: int  # of the body as it is stored
    properties: dict[str, str]
    store_size: int

    @property
    def msg_id(self) -> str:
        """The offset message id: where the message lies."""
        return offset_message_id(pack_host(self.store_host), self.phy_offset)

    @property
    def uniq_key(self) -> str | None:
        """The id that the sending client gave it."""
        return self.properties.get(const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)

    @property
    def tags(self) -> str | None:
        return self.properties.get(const.TAGS)

    @property
    def keys(self) -> str | None:
        """Blank separated."""
        return self.properties.get(const.KEYS)


def decode_message(
    buffer: bytes | bytearray | memoryview,
    offset: int = 0,
    *,
    read_body: bool = True,
    check_crc: bool = True,
) -> MessageExt:
    """The record at `offset`. Without `read_body` the body is left empty, and its CRC unchecked.

    Raises MessageDecodeError.
    """
    view = memoryview(buffer)
    size = _check_frame(view, offset)
    end = offset + size
    head = RECORD_HEAD_V4
    values = head.unpack_from(view, offset)
    if values[7] & HOSTS_V6_MASK:
        head = RECORD_HEADS[(values[7] & HOSTS_V6_MASK) >> HOSTS_V6_SHIFT]
        if size < head.size:
            raise MessageDecodeError(f"record at {offset}: {size} bytes do not hold its hosts")
        values = head.unpack_from(view, offset)
    (
        _,
        magic,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        phy_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_length,
    ) = values
    body_start = offset + head.size
    topic_start = body_start + body_length + (1 if magic == MESSAGE_MAGIC_V1 else 2)
    if body_length < 0 or topic_start > end:
        raise MessageDecodeError(f"record at {offset}: body length {body_length}, size {size}")
    topic_end = topic_start + int.from_bytes(view[body_start + body_length : topic_start], "big")
    properties_start = topic_end + 2
    properties_length = int.from_bytes(view[topic_end:properties_start], "big")
    if properties_start + properties_length != end:
        raise MessageDecodeError(f"record at {offset}: topic and properties do not fill size {size}")
    body = b""
    if read_body and body_length:
        body = bytes(view[body_start : body_start + body_length])
        if check_crc and (crc := crc32(body) & 0x7FFFFFFF) != body_crc:
            raise MessageDecodeError(f"record at {offset}: body CRC {crc}, stored {body_crc}")
    return MessageExt(
        str(view[topic_start:topic_end], "utf-8", "replace"),
        queue_id,
        queue_offset,
        phy_offset,
        flag,
        sys_flag,
        born_timestamp,
        unpack_host(born_host),
        store_timestamp,
        unpack_host(store_host),
        reconsume_times,
        prepared_transaction_offset,
        body,
        body_crc,
        decode_properties(view[properties_start:end]),
        size,
    )


def decode_messages(
    buffer: bytes | bytearray | memoryview,
    *,
    read_body: bool = True,
    check_crc: bool = True,
) -> list[MessageExt]:
    """Records one behind the other up to the end of the buffer. Raises MessageDecodeError at the first
    bad one."""
    view = memoryview(buffer)
    messages: list[MessageExt] = []
    offset = 0
    while offset < len(view):
        message = decode_message(view, offset, read_body=read_body, check_crc=check_crc)
        messages.append(message)
        offset += message.store_size
    return messages


def raw_properties(record: bytes) -> bytes:
    """The properties of a record that decode_message() can read, as they are stored. Decoded and encoded again they
    may be others, and too long for their field."""
    sys_flag = int.from_bytes(record[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    head = RECORD_HEADS[(sys_flag & HOSTS_V6_MASK) >> HOSTS_V6_SHIFT]
    topic_at = head.size + int.from_bytes(record[head.size - 4 : head.size], "big")
    topic_start = topic_at + (1 if int.from_bytes(record[4:8], "big") == MESSAGE_MAGIC_V1 else 2)
    return record[topic_start + int.from_bytes(record[topic_at:topic_start], "big") + 2 :]


def walk_records(buffer: bytes | bytearray | memoryview, offset: int = 0) -> Iterator[tuple[int, int]]:
    """Offset and size of each record of a plain CommitLog file.

    Ends at a blank, at zeros (nothing written yet) and where less than a record is left. Raises
    MessageDecodeError at bytes that are none of these.
    """
    view = memoryview(buffer)
    while len(view) - offset >= 8:
        size = int.from_bytes(view[offset : offset + 4], "big", signed=True)
        magic = int.from_bytes(view[offset + 4 : offset + 8], "big")
        if magic == BLANK_MAGIC or (size == 0 and magic == 0):
            return
        if size > len(view) - offset and magic in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2):
            return
        _check_frame(view, offset)
        yield offset, size
        offset += size


def _check_frame(view: memoryview, offset: int) -> int:
    """The size of the record at `offset`, which has a record's magic and lies in the buffer as a whole."""
    left = len(view) - offset
    if left < RECORD_SIZE_MIN:
        raise MessageDecodeError(f"record at {offset}: {left} bytes left")
    size = int.from_bytes(view[offset : offset + 4], "big", signed=True)
    magic = int.from_bytes(view[offset + 4 : offset + 8], "big")
    if magic not in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2):
        raise MessageDecodeError(f"record at {offset}: magic {magic:#010x}")
    if not RECORD_SIZE_MIN <= size <= left:
        raise MessageDecodeError(f"record at {offset}: size {size}, {left} bytes left")
    return size
