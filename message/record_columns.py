"""All that stored records say, read in one pass and kept as columns: for those who turn a log into tables.

A reader of many records must not end at a bad one: a record whose lengths do not add up is a row without values, and
`faults` says why. `decode_message` reads one record as a value, `scan_records` the few columns that reput needs.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from message.record_layout import (
    HOSTS_V6_MASK,
    HOSTS_V6_SHIFT,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    RECORD_HEAD_V4,
    RECORD_HEADS,
    RECORD_SIZE_MIN,
)


class RecordColumns(msgspec.Struct):
    """One row per record. The columns have one length; hosts, topics and properties are as they are stored.

    A row that `faults` names by its number has None in all columns, but `numbers`.
    """

    sizes: list[int | None] = msgspec.field(default_factory=list)  # of the record, in bytes
    magics: list[int | None] = msgspec.field(default_factory=list)
    body_crcs: list[int | None] = msgspec.field(default_factory=list)
    queue_ids: list[int | None] = msgspec.field(default_factory=list)
    flags: list[int | None] = msgspec.field(default_factory=list)
    queue_offsets: list[int | None] = msgspec.field(default_factory=list)
    phy_offsets: list[int | None] = msgspec.field(default_factory=list)
    sys_flags: list[int | None] = msgspec.field(default_factory=list)
    born_timestamps: list[int | None] = msgspec.field(default_factory=list)  # ms
    born_hosts: list[bytes | None] = msgspec.field(default_factory=list)
    store_timestamps: list[int | None] = msgspec.field(default_factory=list)  # ms
    store_hosts: list[bytes | None] = msgspec.field(default_factory=list)
    reconsume_times: list[int | None] = msgspec.field(default_factory=list)
    prepared_transaction_offsets: list[int | None] = msgspec.field(default_factory=list)
    body_lengths: list[int | None] = msgspec.field(default_factory=list)
    body_starts: list[int | None] = msgspec.field(default_factory=list)  # in the buffer
    topics: list[bytes | None] = msgspec.field(default_factory=list)
    properties: list[bytes | None] = msgspec.field(default_factory=list)
    numbers: list[int] = msgspec.field(default_factory=list)  # which of the given offsets the row belongs to
    faults: dict[int, str] = msgspec.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)


HEAD_COLUMNS: Final = {
    "size": "sizes",
    "magic": "magics",
    "body_crc": "body_crcs",
    "queue_id": "queue_ids",
    "flag": "flags",
    "queue_offset": "queue_offsets",
    "phy_offset": "phy_offsets",
    "sys_flag": "sys_flags",
    "born_timestamp": "born_timestamps",
    "born_host": "born_hosts",
    "store_timestamp": "store_timestamps",
    "store_host": "store_hosts",
    "reconsume_times": "reconsume_times",
    "prepared_transaction_offset": "prepared_transaction_offsets",
    "body_length": "body_lengths",
}
"""Field of a record's head, as record_arrays names it, to its column."""

_NO_HEAD = (None,) * len(HEAD_COLUMNS)


def read_records(
    buffer: bytes, offsets: Sequence[int], *, shift: int = 0, topic: bytes | None = None
) -> RecordColumns:
    """The records at `offsets` + `shift` bytes in `buffer` (shift: the header in front of each).

    `topic`: only records of this topic, and those that cannot be read. CRCs are not looked at.
    """
    end = len(buffer)
    heads: list[tuple[int | bytes | None, ...]] = []
    body_starts: list[int | None] = []
    topics: list[bytes | None] = []
    properties: list[bytes | None] = []
    numbers: list[int] = []
    faults: dict[int, str] = {}
    read_head = RECORD_HEAD_V4.unpack_from
    for number, entry_offset in enumerate(offsets):
        offset = entry_offset + shift
        if end - offset < RECORD_SIZE_MIN:
            fault = f"{end - offset} bytes left"
        else:
            head = read_head(buffer, offset)
            body_start = offset + 88
            if head[7] & HOSTS_V6_MASK:
                layout = RECORD_HEADS[(head[7] & HOSTS_V6_MASK) >> HOSTS_V6_SHIFT]
                body_start = offset + layout.size
                # A head that does not fit fails below, at the lengths of the other form.
                head = layout.unpack_from(buffer, offset) if body_start <= end else head
            record_end = offset + head[0]
            topic_start = body_start + head[14] + 1
            magic = head[1]
            if head[14] < 0 or record_end > end or topic_start + 2 > record_end:
                fault = f"size {head[0]}, body length {head[14]}"
            elif magic != MESSAGE_MAGIC_V1 and magic != MESSAGE_MAGIC_V2:
                fault = f"magic {magic:#010x}"
            else:
                topic_length = buffer[topic_start - 1]
                if magic == MESSAGE_MAGIC_V2:
                    topic_length = topic_length << 8 | buffer[topic_start]
                    topic_start += 1
                topic_end = topic_start + topic_length
                start = topic_end + 2
                if (
                    start <= record_end
                    and start + (buffer[topic_end] << 8 | buffer[topic_end + 1]) == record_end
                ):
                    name = buffer[topic_start:topic_end]
                    if topic is None or name == topic:
                        heads.append(head)
                        body_starts.append(body_start)
                        topics.append(name)
                        properties.append(buffer[start:record_end])
                        numbers.append(number)
                    continue
                fault = f"topic and properties do not fill size {head[0]}"
        faults[len(numbers)] = fault
        heads.append(_NO_HEAD)
        body_starts.append(None)
        topics.append(None)
        properties.append(None)
        numbers.append(number)
    if not numbers:
        return RecordColumns()
    columns = map(list, zip(*heads, strict=True))
    return RecordColumns(*columns, body_starts, topics, properties, numbers, faults)  # type: ignore[arg-type, call-arg]
