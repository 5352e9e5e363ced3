"""Whether the log of a replica has a queue's message at a physical offset, for who finds a unit that leads there."""

from __future__ import annotations

from bisect import bisect_right

from message.dispatch_columns import scan_records
from message.errors import MessageDecodeError
from verify.replica import Replica


def is_message_at(
    replica: Replica, phy_offset: int, size: int, topic: bytes, queue_id: int, queue_offset: int
) -> bool:
    """CRCs are not looked at. Raises OSError."""
    number = bisect_right(replica.data_files, phy_offset, key=lambda file: file.base) - 1
    if (
        number < 0
        or size <= 0
        or phy_offset + size > replica.data_files[number].base + replica.data_file_size
    ):
        return False
    file = replica.data_files[number]
    with open(file.path, "rb") as opened:
        opened.seek(phy_offset - file.base)
        record = opened.read(size)
    try:
        found = scan_records(record, [0])
    except MessageDecodeError:
        return False
    return (found.topics, found.queue_ids, found.queue_offsets, found.phy_offsets, found.sizes) == (
        [topic],
        [queue_id],
        [queue_offset],
        [phy_offset],
        [size],
    )
