"""What reput needs of stored records, read in one pass and kept as columns.

A leader has these values from its own appends and never reads them back; a follower reads them here,
right after it verified the entries.
"""

import struct
from collections.abc import Mapping, Sequence

import msgspec

from message.errors import MessageDecodeError
from message.names import SCHEDULE_TOPIC
from message.properties import find_property
from message.record_layout import HOSTS_V6_MASK, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from message.sys_flag import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG
from message.tags import tags_code_of_bytes

# Of a record with IPv4 hosts: size, magic, queueId, queueOffset, physicalOffset, sysFlag, storeTimestamp, bodyLength.
_HEAD = struct.Struct(">iI4xi4xqqi16xq20xi")
_STORE_TIMESTAMP = struct.Struct(">q")
_BODY_LENGTH = struct.Struct(">i")
_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()
_NO_LEVELS: Mapping[int, int] = {}


class DispatchColumns(msgspec.Struct):
    """One row per record, in log order. The columns have one length."""

    topics: list[bytes] = msgspec.field(default_factory=list)
    queue_ids: list[int] = msgspec.field(default_factory=list)
    queue_offsets: list[int] = msgspec.field(default_factory=list)
    phy_offsets: list[int] = msgspec.field(default_factory=list)
    sizes: list[int] = msgspec.field(default_factory=list)  # of the record, in bytes
    tags_codes: list[int] = msgspec.field(default_factory=list)
    store_timestamps: list[int] = msgspec.field(default_factory=list)  # ms
    sys_flags: list[int] = msgspec.field(default_factory=list)
    properties: list[bytes] = msgspec.field(default_factory=list)  # encoded

    def __len__(self) -> int:
        return len(self.topics)


def scan_records(
    buffer: bytes | bytearray | memoryview,
    offsets: Sequence[int],
    *,
    shift: int = 0,
    delay_levels: Mapping[int, int] = _NO_LEVELS,
) -> DispatchColumns:
    """The columns of the records at `offsets` + `shift` bytes in `buffer` (shift: the header in front of
    each).

    `delay_levels` (level -> ms) makes tagsCode of a message of the delay topic its delivery time, as the
    ConsumeQueue has it. CRCs are not looked at. Raises MessageDecodeError for a record whose lengths do
    not add up.
    """
    data = buffer if isinstance(buffer, bytes) else bytes(buffer)
    end = len(data)
    columns = DispatchColumns()
    # Column by column: rows that become columns in the end take half as long again.
    add_topic, add_queue_id, add_queue_offset = (
        columns.topics.append,
        columns.queue_ids.append,
        columns.queue_offsets.append,
    )
    add_phy_offset, add_size, add_tags_code = (
        columns.phy_offsets.append,
        columns.sizes.append,
        columns.tags_codes.append,
    )
    add_store_timestamp, add_sys_flag, add_properties = (
        columns.store_timestamps.append,
        columns.sys_flags.append,
        columns.properties.append,
    )
    read_head, hash_tags = _HEAD.unpack_from, tags_code_of_bytes
    for entry_offset in offsets:
        offset = entry_offset + shift
        if end - offset < 91:
            raise MessageDecodeError(f"record at {offset}: {end - offset} bytes left")
        size, magic, queue_id, queue_offset, phy_offset, sys_flag, store_timestamp, body_length = read_head(
            data, offset
        )
        body_start = offset + 88
        if sys_flag & HOSTS_V6_MASK:
            body_start, store_timestamp, body_length = _behind_v6_hosts(data, offset, sys_flag)
        topic_start = body_start + body_length + 1
        record_end = offset + size
        if body_length < 0 or size < 91 or record_end > end or topic_start + 2 > record_end:
            raise MessageDecodeError(f"record at {offset}: size {size}, body length {body_length}")
        topic_length = data[topic_start - 1]
        if magic != MESSAGE_MAGIC_V1:
            if magic != MESSAGE_MAGIC_V2:
                raise MessageDecodeError(f"record at {offset}: magic {magic:#010x}")
            topic_length = topic_length << 8 | data[topic_start]
            topic_start += 1
        topic_end = topic_start + topic_length
        start = topic_end + 2
        if start > record_end or start + (data[topic_end] << 8 | data[topic_end + 1]) != record_end:
            raise MessageDecodeError(f"record at {offset}: topic and properties do not fill size {size}")
        topic = data[topic_start:topic_end]
        properties = data[start:record_end]
        # As find_property finds it; bytes.find with bounds would cost twice as much.
        _, found, value = properties.rpartition(b"\x02TAGS\x01")
        if found or properties.startswith(b"TAGS\x01"):
            tags = (value if found else value[5:]).partition(b"\x02")[0]
            code = hash_tags(tags or find_property(properties, b"TAGS") or b"")
        else:
            code = 0
        if topic == _SCHEDULE_TOPIC and delay_levels:
            code = _delivery_time(properties, store_timestamp, delay_levels, code)
        add_topic(topic)
        add_queue_id(queue_id)
        add_queue_offset(queue_offset)
        add_phy_offset(phy_offset)
        add_size(size)
        add_tags_code(code)
        add_store_timestamp(store_timestamp)
        add_sys_flag(sys_flag)
        add_properties(properties)
    return columns


def _behind_v6_hosts(data: bytes, offset: int, sys_flag: int) -> tuple[int, int, int]:
    """Where the body starts, storeTimestamp, bodyLength."""
    born_shift = 12 if sys_flag & BORNHOST_V6_FLAG else 0
    store_shift = 12 if sys_flag & STOREHOSTADDRESS_V6_FLAG else 0
    body_start = offset + 88 + born_shift + store_shift
    if body_start > len(data):
        raise MessageDecodeError(f"record at {offset}: {len(data) - offset} bytes do not hold its hosts")
    store_timestamp = _STORE_TIMESTAMP.unpack_from(data, offset + 56 + born_shift)[0]
    return body_start, store_timestamp, _BODY_LENGTH.unpack_from(data, body_start - 4)[0]


def _delivery_time(
    properties: bytes, store_timestamp: int, delay_levels: Mapping[int, int], code: int
) -> int:
    """tagsCode of a record of the delay topic; `code` where it names no level."""
    try:
        level = int(find_property(properties, b"DELAY") or b"0")
    except ValueError:
        return code
    if level <= 0:
        return code
    # 1 s for a level that the table leaves out is Java's.
    return store_timestamp + delay_levels.get(min(level, max(delay_levels)), 1000)
