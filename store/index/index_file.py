"""One IndexFile on disk: its chains for readers, and the way back to the last mark after a flush that was cut off."""

import errno
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from disk.disk import Disk, DiskError, File
from disk.mapped_file import DescriptorCache, MappedFile
from store.layout.index_file import (
    HASH_SLOT,
    HASH_SLOT_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    IndexEntry,
    IndexFileShape,
    IndexHeader,
    entry_offset,
    parse_index_header,
    slot_offset,
)

# Of the slot table, read and written in one go: large enough that calls cost nothing, small enough for the memory that
# the IndexFiles may take (twice that, for a moment).
SLOT_RUN_SIZE: Final = 512 * 1024
PAGE_SIZE: Final = 4096
_NAME_DIGITS: Final = 17  # yyyyMMddHHmmssSSS


class IndexFileDamagedError(DiskError):
    """Slots and entries contradict each other, or the file is gone. The index is built anew from the log."""


def index_file_names(disk: Disk, directory: str) -> list[str]:
    """Oldest first. Other names are not ours and are left alone."""
    names = disk.list_directory(directory)
    return [name for name in names if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()]


def delete_index_files(disk: Disk, directory: str, names: Sequence[str]) -> None:
    """Durably, those too that an attempt before this one unlinked and no more; blocks on a sync. A power loss meanwhile
    may bring any of them back: no mark speaks of one any more. Raises DiskError.
    """
    for name in names:
        disk.unlink(f"{directory}/{name}")
    if disk.is_directory(directory):
        disk.sync_directory(directory)


def utc_file_name(now_ms: int) -> str:
    """yyyyMMddHHmmssSSS. RocketMQ takes the local time; nobody reads it but to sort."""
    return f"{datetime.fromtimestamp(now_ms // 1000, UTC):%Y%m%d%H%M%S}{now_ms % 1000:03d}"


def next_file_name(name: str) -> str:
    """One that sorts behind `name`, however the clock may have been set back."""
    return f"{int(name) + 1:0{_NAME_DIGITS}d}"


class IndexFile:
    """Invariant: the file holds the entries that `header` counts, synced. What lies behind them was left by a flush
    under way, or by one that failed: keys that are in memory, too. Slots may point at it already, and from there the
    chain goes back to what counts.
    """

    __slots__ = ("header", "is_deleted", "mapped_file", "name", "shape", "sum")

    def __init__(
        self,
        descriptors: DescriptorCache,
        directory: str,
        name: str,
        shape: IndexFileShape,
        header: IndexHeader,
    ) -> None:
        self.name = name
        self.shape = shape
        self.header = header
        self.is_deleted = False
        self.sum: int | None = None  # CRC-32 of all that counts, once it is full and somebody has taken it
        self.mapped_file = MappedFile(descriptors, f"{directory}/{name}", 0, shape.file_size)

    def chain(self, key_hash: int) -> Iterator[IndexEntry]:
        """Entries of the hash's slot, newest first: those of other hashes too, so that each step costs one read.

        A chain that leads nowhere (number out of range, or not falling) ends there, as does one whose file is deleted
        between two steps. Raises DiskError.
        """
        slot_count = self.shape.slot_count
        data = self._file().pread(HASH_SLOT_SIZE, slot_offset(key_hash, slot_count))
        number: int = HASH_SLOT.unpack(data)[0] if len(data) == HASH_SLOT_SIZE else 0
        below = self.shape.index_count_max
        while 0 < number < below and not self.is_deleted:
            entry = read_entry(self._file(), number, slot_count)
            if entry is None:
                return
            yield entry
            below, number = number, entry.previous

    def hold(self) -> File:
        """Until as many calls of mapped_file.release(). Raises DiskError."""
        with self._there():
            return self.mapped_file.hold()

    def _file(self) -> File:
        with self._there():
            return self.mapped_file.file()

    @contextmanager
    def _there(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise IndexFileDamagedError(
                errno.ENOENT, "the file was taken away", self.mapped_file.path
            ) from error

    def delete(self) -> None:
        """The name is somebody else's to take away; the descriptor goes when nobody holds it."""
        self.is_deleted = True
        self.mapped_file.retire()


def read_entry(file: File, number: int, slot_count: int) -> IndexEntry | None:
    """None behind the end of the file."""
    data = file.pread(INDEX_ENTRY_SIZE, entry_offset(number, slot_count))
    return IndexEntry(*INDEX_ENTRY.unpack(data)) if len(data) == INDEX_ENTRY_SIZE else None


def read_slots(file: File, start: int, end: int) -> "array[int]":
    """Slots of bytes [start, end) of the file. Raises IndexFileDamagedError when the file ends before."""
    data = file.pread(end - start, start)
    if len(data) != end - start:
        raise IndexFileDamagedError(
            errno.EIO, f"the file ends within its slots, before byte {end}", file.path
        )
    return slots_of(data)


def slots_of(data: bytes) -> "array[int]":
    """As numbers of this machine."""
    slots = array("I", data)
    if sys.byteorder == "little":
        slots.byteswap()
    return slots


def write_slots(file: File, start: int, slots: "array[int]") -> None:
    """Spoils `slots`: their bytes are turned round in place."""
    if sys.byteorder == "little":
        slots.byteswap()
    file.pwrite(memoryview(slots).cast("B"), start)


def roll_back(file: File, shape: IndexFileShape, header: IndexHeader) -> None:
    """Makes the file what `header` says, which was true of it once: slots that point behind it are led back along their
    chains. Blocks. Raises IndexFileDamagedError when a chain does not lead back.
    """
    if _is_untouched(file, shape, header):
        return
    count = header.index_count
    for start in range(0, shape.slots_end, SLOT_RUN_SIZE):
        start = max(start, INDEX_HEADER_SIZE)
        end = min(start - start % SLOT_RUN_SIZE + SLOT_RUN_SIZE, shape.slots_end)
        slots = read_slots(file, start, end)
        if max(slots) < count:
            continue
        first_slot = (start - INDEX_HEADER_SIZE) // HASH_SLOT_SIZE
        ahead = [at for at, number in enumerate(slots) if number >= count]
        for at in ahead:
            slots[at] = led_back(file, shape, header, first_slot + at, slots[at])
        _write_changed(file, start, slots, ahead)
    file.pwrite(header.pack(), 0)
    # New entries go where the chains went that have just been left.
    file.fdatasync()


def _write_changed(file: File, start: int, slots: "array[int]", changed: Sequence[int]) -> None:
    """Page by page: a page of none but empty slots takes no room on the disk until it is written."""
    for _, places in groupby(changed, lambda at: (start + HASH_SLOT_SIZE * at) // PAGE_SIZE):
        first, *more = places
        end = (more[-1] if more else first) + 1
        write_slots(file, start + HASH_SLOT_SIZE * first, slots[first:end])


def fault_of_file(file: File, shape: IndexFileShape, header: IndexHeader) -> str | None:
    """Why the file cannot be what `header` says, by a few reads; None if it can."""
    size = file.size()
    if size != shape.file_size:
        return (
            f"it is {size} bytes long, expected {shape.file_size} for maxHashSlotNum={shape.slot_count} and "
            f"maxIndexNum={shape.index_count_max}: were others configured before?"
        )
    if not 1 < header.index_count <= shape.index_count_max:
        return (
            f"its header counts {header.index_count - 1} entries, expected 1 to {shape.index_count_max - 1}"
        )
    if not 0 < header.hash_slot_count <= min(shape.slot_count, header.index_count - 1):
        return (
            f"its header says {header.hash_slot_count} slots are in use by {header.index_count - 1} entries"
        )
    for number, phy_offset in ((1, header.begin_phy_offset), (header.index_count - 1, header.end_phy_offset)):
        entry = read_entry(file, number, shape.slot_count)
        if entry is None or entry.phy_offset != phy_offset:
            found = None if entry is None else entry.phy_offset
            return f"entry {number} points at physical offset {found}, its header says {phy_offset}"
    if header.begin_phy_offset > header.end_phy_offset:
        return f"its header goes from physical offset {header.begin_phy_offset} to {header.end_phy_offset}"
    return None


def _is_untouched(file: File, shape: IndexFileShape, header: IndexHeader) -> bool:
    """Whether no flush since has come to the slots: each one's entries are synced before them."""
    data = file.pread(INDEX_ENTRY_SIZE, entry_offset(header.index_count, shape.slot_count))
    return not any(data) and parse_index_header(file.pread(INDEX_HEADER_SIZE, 0)) == header


def led_back(file: File, shape: IndexFileShape, header: IndexHeader, slot: int, number: int) -> int:
    """Follows a slot's chain from entry `number` to the newest entry that `header` counts; 0 for none. Raises
    IndexFileDamagedError when it does not lead there.
    """
    below = shape.index_count_max
    while header.index_count <= number < below:
        entry = read_entry(file, number, shape.slot_count)
        if (
            entry is None
            or entry.key_hash % shape.slot_count != slot
            or entry.phy_offset < header.end_phy_offset
        ):
            break
        below, number = number, entry.previous
    if not 0 <= number < header.index_count:
        raise IndexFileDamagedError(
            errno.EIO, f"the chain of slot {slot} does not lead back from entry {number}", file.path
        )
    return number
