"""What IndexFiles need of stored records: a hash for the unique key and for each of the words in KEYS."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from message.dispatch_columns import DispatchColumns
from message.properties import find_property
from message.sys_flag import TRANSACTION_ROLLBACK_TYPE
from message.tags import java_hash

_MASK: Final = 0xFFFF_FFFF
# A client's unique key is 20 digits that name its process, 44 with IPv6, and 12 that change from message to message.
_UNIQUE_KEY_LENGTH_MIN: Final = 32
_CHANGING_DIGITS: Final = 12


class KeyColumns(msgspec.Struct):
    """One row per key, in log order; a message has as many rows as it has keys. The columns have one length."""

    key_hashes: list[int] = msgspec.field(default_factory=list)  # 0..INT_MAX
    phy_offsets: list[int] = msgspec.field(default_factory=list)
    store_timestamps: list[int] = msgspec.field(default_factory=list)  # ms

    def __len__(self) -> int:
        return len(self.key_hashes)


def key_hash(topic: bytes, key: bytes) -> int:
    """Where RocketMQ's IndexFile has a key of a topic: abs(Java's hashCode of `topic#key`); the one hash that has no
    absolute value counts as 0.
    """
    if not key.isascii():
        value = java_hash(f"{topic.decode('utf-8', 'replace')}#{key.decode('utf-8', 'replace')}")
    else:
        if len(key) >= _UNIQUE_KEY_LENGTH_MIN:
            value = _begin_hash(topic, key[:-_CHANGING_DIGITS])
            key = key[-_CHANGING_DIGITS:]
        else:
            value = _begin_hash(topic, b"")
        for unit in key:
            value = value * 31 + unit  # cut to 32 bits only below: a larger number costs less than a cut
    value &= _MASK
    if value & 0x8000_0000:
        return 0x1_0000_0000 - value & 0x7FFF_FFFF
    return value


@lru_cache(maxsize=4096)
def _begin_hash(topic: bytes, begin: bytes) -> int:
    """Java's hashCode of `topic#begin`, unsigned."""
    return java_hash(f"{topic.decode('utf-8', 'replace')}#{begin.decode('ascii')}") & _MASK


def scan_keys(columns: DispatchColumns) -> KeyColumns:
    """The rows of records in the order in which RocketMQ indexes them: the unique key, then the words of KEYS. Records
    of a transaction that was rolled back have none.
    """
    keys = KeyColumns()
    add_hash, add_offset, add_time = (
        keys.key_hashes.append,
        keys.phy_offsets.append,
        keys.store_timestamps.append,
    )
    for topic, properties, phy_offset, store_timestamp, sys_flag in zip(
        columns.topics,
        columns.properties,
        columns.phy_offsets,
        columns.store_timestamps,
        columns.sys_flags,
        strict=True,
    ):
        if sys_flag & TRANSACTION_ROLLBACK_TYPE == TRANSACTION_ROLLBACK_TYPE:
            continue
        for key in keys_of(properties):
            add_hash(key_hash(topic, key))
            add_offset(phy_offset)
            add_time(store_timestamp)
    return keys


def keys_of(properties: bytes) -> Sequence[bytes]:
    """The unique key and the words of KEYS of encoded properties."""
    unique_key = _value_of(properties, b"\x02UNIQ_KEY\x01")
    words = _value_of(properties, b"\x02KEYS\x01")
    keys = [word for word in words.split(b" ") if word] if words else []
    return [unique_key, *keys] if unique_key else keys


def _value_of(properties: bytes, begin: bytes) -> bytes | None:
    """As find_property() finds it, in a third of the time where there is one pair at most."""
    _, found, value = (b"\x02" + properties).rpartition(begin)
    if not found:
        return None
    return value.partition(b"\x02")[0] or find_property(properties, begin[1:-1])
