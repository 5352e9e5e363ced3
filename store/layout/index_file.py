"""An IndexFile: a hash table from `topic#key` to physical offsets. Layout only: header, slots, entries,
hash.

A slot holds the number of its newest entry; entries of a slot are chained back to older ones. Numbers start
at 1, so that 0 is the end of a chain.
"""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from message.tags import java_hash
from store.errors import StoreConfigError

INDEX_HEADER: Final = struct.Struct(">qqqqii")
INDEX_HEADER_SIZE: Final = INDEX_HEADER.size
HASH_SLOT: Final = struct.Struct(">i")
HASH_SLOT_SIZE: Final = HASH_SLOT.size
INDEX_ENTRY: Final = struct.Struct(
    ">iqii"
)  # key hash, phy_offset, seconds after begin_timestamp, entry before
INDEX_ENTRY_SIZE: Final = INDEX_ENTRY.size
HASH_SLOT_COUNT: Final = 5_000_000  # of a file, unless the conf says otherwise
_FILE_SIZE_MAX: Final = 2**31 - 1
INDEX_COUNT_MAX: Final = 20_000_000  # likewise; a file is full when index_count reaches it


class IndexHeader(msgspec.Struct, frozen=True):
    begin_timestamp: int  # store time of the first message, ms
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int  # slots in use
    index_count: int  # number of the next entry; 1 in an empty file

    def pack(self) -> bytes:
        return INDEX_HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.hash_slot_count,
            self.index_count,
        )


EMPTY_INDEX_HEADER: Final = IndexHeader(0, 0, 0, 0, 0, 1)


class IndexFileShape(msgspec.Struct, frozen=True):
    """RocketMQ's maxHashSlotNum and maxIndexNum: the same for all files of a store, which do not say it themselves."""

    slot_count: int = HASH_SLOT_COUNT
    index_count_max: int = INDEX_COUNT_MAX  # one more than entries, for there is no entry 0

    def __post_init__(self) -> None:
        """Raises StoreConfigError."""
        said = f"maxHashSlotNum={self.slot_count}, maxIndexNum={self.index_count_max}"
        if self.slot_count < 1 or self.index_count_max < 2:
            raise StoreConfigError(
                f"{said}: at least 1 slot and 2 numbers are needed, of which the first is never used"
            )
        if self.file_size > _FILE_SIZE_MAX:
            raise StoreConfigError(
                f"{said} makes IndexFiles of {self.file_size} bytes; allowed are {_FILE_SIZE_MAX}, which Java can count"
            )

    @property
    def file_size(self) -> int:
        return index_file_size(self.slot_count, self.index_count_max)

    @property
    def slots_end(self) -> int:
        """Byte offset behind the last slot."""
        return INDEX_HEADER_SIZE + HASH_SLOT_SIZE * self.slot_count


class IndexEntry(msgspec.Struct, frozen=True):
    key_hash: int
    phy_offset: int
    time_diff: int  # seconds after the file's begin_timestamp
    previous: int  # number of the entry that the slot held before; 0: none


def parse_index_header(buffer: bytes | bytearray | memoryview) -> IndexHeader:
    """Raises struct.error when less than a header is there."""
    return IndexHeader(*INDEX_HEADER.unpack_from(buffer))


def index_key(topic: str, key: str) -> str:
    return f"{topic}#{key}"


def index_key_hash(key: str) -> int:
    """Of `topic#key`: 0..INT_MAX. The one hash that has no absolute value counts as 0."""
    value = abs(java_hash(key))
    return 0 if value == 0x8000_0000 else value


def index_file_size(slot_count: int = HASH_SLOT_COUNT, index_count_max: int = INDEX_COUNT_MAX) -> int:
    """Bytes of a file."""
    return INDEX_HEADER_SIZE + HASH_SLOT_SIZE * slot_count + INDEX_ENTRY_SIZE * index_count_max


def slot_offset(key_hash: int, slot_count: int) -> int:
    """Byte offset of a key's slot in the file."""
    return INDEX_HEADER_SIZE + HASH_SLOT_SIZE * (key_hash % slot_count)


def entry_offset(number: int, slot_count: int) -> int:
    """Byte offset of an entry in the file."""
    return INDEX_HEADER_SIZE + HASH_SLOT_SIZE * slot_count + INDEX_ENTRY_SIZE * number


def walk_chain(file: bytes | bytearray | memoryview, key_hash: int, slot_count: int) -> Iterator[IndexEntry]:
    """Entries with this hash, newest first. Different keys can have one hash: look at the message too.

    A chain that leads nowhere (number out of range, or not falling) ends there: the file may be damaged.
    """
    index_count = parse_index_header(file).index_count
    number: int = HASH_SLOT.unpack_from(file, slot_offset(key_hash, slot_count))[0]
    below = index_count
    while 0 < number < below:
        entry = IndexEntry(*INDEX_ENTRY.unpack_from(file, entry_offset(number, slot_count)))
        if entry.key_hash == key_hash:
            yield entry
        below, number = number, entry.previous


def time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """The seconds of an entry, for times in ms."""
    if begin_timestamp <= 0:
        return 0
    return min(max((store_timestamp - begin_timestamp) // 1000, 0), 0x7FFFFFFF)
