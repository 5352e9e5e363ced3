"""Keys on their way into IndexFiles: as they wait in memory, and the job that writes them, in another thread.

The order of its steps is what a start after a crash relies on: entries are on disk before a slot points at them, and
both before the mark counts them. So slots can always be led back to where the mark was (roll_back).
"""

import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from disk.disk import Disk, File
from store.index.index_file import (
    PAGE_SIZE,
    SLOT_RUN_SIZE,
    IndexFile,
    delete_index_files,
    index_file_names,
    next_file_name,
    read_slots,
    roll_back,
    write_slots,
)
from store.index.index_file_mark import IndexFileMark, IndexFileMarkFile
from store.layout.index_file import (
    EMPTY_INDEX_HEADER,
    HASH_SLOT_SIZE,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    IndexFileShape,
    IndexHeader,
    entry_offset,
    time_diff,
)

# About 0.5 ms for which the event loop's thread does not get the interpreter. Under load this one waits up to 5 ms for
# it after each pause, read and write: how few they are decides how fast keys get to the files.
_ENTRIES_PER_PAUSE: Final = 2048
_ENTRIES_PER_WRITE: Final = 8192
_WORDS_PER_ENTRY: Final = INDEX_ENTRY_SIZE // HASH_SLOT_SIZE


# Called in the job's thread after each 0.5 ms of its computing, lest the event loop's thread wait 5 ms for the
# interpreter. A short system call does not let it have that: it wakes too late to take it.
Pause = Callable[[], None]


class PendingKeys:
    """Keys in log order, three columns: 20 bytes per key."""

    __slots__ = ("key_hashes", "phy_offsets", "store_timestamps")

    def __init__(self) -> None:
        self.key_hashes = array("i")
        self.phy_offsets = array("q")
        self.store_timestamps = array("q")  # ms

    def __len__(self) -> int:
        return len(self.key_hashes)

    def extend(
        self, key_hashes: Sequence[int], phy_offsets: Sequence[int], store_timestamps: Sequence[int]
    ) -> None:
        self.key_hashes.extend(key_hashes)
        self.phy_offsets.extend(phy_offsets)
        self.store_timestamps.extend(store_timestamps)

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets, newest first."""
        found: list[int] = []
        at = -1
        for _ in range(self.key_hashes.count(key_hash)):
            at = self.key_hashes.index(key_hash, at + 1)
            if begin_ms <= self.store_timestamps[at] <= end_ms:
                found.append(self.phy_offsets[at])
        found.reverse()
        return found


class IndexFileFlushJob:
    """Fulfils DiskJob. Nothing of it counts until the mark is written, which is its last step."""

    __slots__ = (
        "_covered_pos",
        "_directory",
        "_disk",
        "_first_new_name",
        "_keys",
        "_last_phy_offset",
        "_leftovers",
        "_mark_file",
        "_newest",
        "_newest_file",
        "_pause",
        "_shape",
        "mark",
        "written",
    )
    kind = "flush-index-file"

    def __init__(
        self,
        disk: Disk,
        directory: str,
        shape: IndexFileShape,
        mark_file: IndexFileMarkFile,
        mark: IndexFileMark,
        newest: IndexFile | None,
        keys: PendingKeys,
        covered_pos: int,
        last_phy_offset: int,
        *,
        first_new_name: str,
        leftovers: bool,
        pause: Pause,
    ) -> None:
        """`mark`: as it is. `leftovers`: of a flush that failed, or of an index that is built anew; they go first."""
        self.mark = mark  # the new one, once run() has ended
        self.written: dict[str, IndexHeader] = {}  # of files with new entries, oldest first
        self._disk = disk
        self._directory = directory
        self._shape = shape
        self._mark_file = mark_file
        self._newest = newest
        self._newest_file = newest.hold() if newest is not None else None
        self._keys = keys
        self._covered_pos = covered_pos
        self._last_phy_offset = last_phy_offset
        self._first_new_name = first_new_name
        self._leftovers = leftovers
        self._pause = pause

    def run(self) -> None:
        if self._leftovers:
            self._take_leftovers_away()
        name, header = self.mark.file_name, self.mark.header
        done = 0
        if self._newest_file is not None:
            done = self._write_part(self._newest_file, name, header, done)
        new_name = self._first_new_name
        while done < len(self._keys):
            done = self._write_new_file(new_name, done)
            new_name = next_file_name(new_name)
        if self.written:
            name, header = list(self.written.items())[-1]
        if name != self.mark.file_name:
            self._disk.sync_directory(self._directory)
        mark = IndexFileMark(name, header, self._covered_pos, self._last_phy_offset, self._shape)
        self._mark_file.write(mark)
        self.mark = mark

    def settle(self) -> None:
        """In the store's thread, once run() has ended: lets the file go."""
        if self._newest is not None:
            self._newest.mapped_file.release()

    def _take_leftovers_away(self) -> None:
        # The mark on disk may be of that flush, although writing it failed: it must not outlive what it speaks of.
        self._mark_file.write(self.mark)
        names = index_file_names(self._disk, self._directory)
        newer = [name for name in names if name > self.mark.file_name]
        delete_index_files(self._disk, self._directory, newer)
        if self._newest_file is not None:
            roll_back(self._newest_file, self._shape, self.mark.header)

    def _write_new_file(self, name: str, done: int) -> int:
        self._disk.make_directory(self._directory)
        file = self._disk.open(f"{self._directory}/{name}", create=True)
        try:
            # A file of that name is what a crash has left of another life of the index.
            file.truncate(0)
            file.truncate(self._shape.file_size)
            return self._write_part(file, name, EMPTY_INDEX_HEADER, done)
        finally:
            file.close()

    def _write_part(self, file: File, name: str, header: IndexHeader, start: int) -> int:
        """As many keys from `start` on as there is room for. Returns where it ended."""
        end = min(len(self._keys), start + self._shape.index_count_max - header.index_count)
        if end > start:
            self.written[name] = append_entries(
                file, self._shape, header, self._keys, start, end, self._pause
            )
        return end


def append_entries(
    file: File,
    shape: IndexFileShape,
    header: IndexHeader,
    keys: PendingKeys,
    start: int,
    end: int,
    pause: Pause,
) -> IndexHeader:
    """Writes keys [start, end), for which there must be room, and syncs them. Returns the new header."""
    first_number, last = header.index_count, end - 1
    if first_number <= 1:
        header = IndexHeader(keys.store_timestamps[start], 0, keys.phy_offsets[start], 0, 0, 1)

    slots = _WantedSlots(shape, keys.key_hashes, start, end, pause)
    previous = slots.previous(file, first_number)
    for at in range(start, end, _ENTRIES_PER_WRITE):
        part = slice(at, min(at + _ENTRIES_PER_WRITE, end))
        entries = _packed(
            keys, part, header.begin_timestamp, previous[part.start - start : part.stop - start]
        )
        file.pwrite(entries, entry_offset(first_number + at - start, shape.slot_count))
        pause()
    file.fdatasync()

    slots.write(file, first_number)
    header = IndexHeader(
        header.begin_timestamp,
        keys.store_timestamps[last],
        header.begin_phy_offset,
        keys.phy_offsets[last],
        header.hash_slot_count + previous.count(0),
        first_number + end - start,
    )
    # In one sync with the slots: a start after a crash believes the mark and not the header.
    file.pwrite(header.pack(), 0)
    file.fdatasync()
    return header


def _packed(keys: PendingKeys, part: slice, begin_timestamp: int, previous: "array[int]") -> bytes:
    """INDEX_ENTRY of each key, made column by column: of big-endian words of four bytes."""
    timestamps = keys.store_timestamps[part]
    diffs = {timestamp: time_diff(timestamp, begin_timestamp) for timestamp in set(timestamps)}
    offsets = _words(keys.phy_offsets[part])
    words = array("I", bytes(INDEX_ENTRY_SIZE * len(previous)))
    words[0::_WORDS_PER_ENTRY] = _words(keys.key_hashes[part])
    words[1::_WORDS_PER_ENTRY] = offsets[0::2]
    words[2::_WORDS_PER_ENTRY] = offsets[1::2]
    words[3::_WORDS_PER_ENTRY] = _words(array("i", map(diffs.__getitem__, timestamps)))
    words[4::_WORDS_PER_ENTRY] = _words(previous)
    return words.tobytes()


def _words(column: "array[int]") -> "array[int]":
    """The column's bytes as they are in the file. Spoils `column`."""
    if sys.byteorder == "little":
        column.byteswap()
    return array("I", column.tobytes())


class _WantedSlots:
    """The slots of some hashes, by runs of the slot table that are read and written as a whole.

    Hashes are spread evenly. With fewer of them than pages a run is one page, lest unchanged pages are written; with
    more, each page is written anyhow.
    """

    def __init__(
        self, shape: IndexFileShape, key_hashes: "array[int]", start: int, end: int, pause: Pause
    ) -> None:
        """Of the hashes [start, end)."""
        self._slots_end = shape.slots_end
        self._pause = pause
        self._run_size = PAGE_SIZE if end - start < shape.slots_end // PAGE_SIZE else SLOT_RUN_SIZE
        # Counted in slots from the begin of the file, as runs are, which begin where pages do.
        self._wanted = array("i")
        # Number of the run -> places among the hashes, in order.
        self._runs: defaultdict[int, array[int]] = defaultdict(lambda: array("i"))
        slot_count, first_slot = shape.slot_count, INDEX_HEADER_SIZE // HASH_SLOT_SIZE
        slots_per_run = self._run_size // HASH_SLOT_SIZE
        runs = self._runs
        for at in range(start, end, _ENTRIES_PER_PAUSE):
            hashes = key_hashes[at : min(at + _ENTRIES_PER_PAUSE, end)]
            wanted = [key_hash % slot_count + first_slot for key_hash in hashes]
            for place, slot in enumerate(wanted, at - start):
                runs[slot // slots_per_run].append(place)
            self._wanted.extend(wanted)
            pause()

    def previous(self, file: File, first_number: int) -> "array[int]":
        """What the slots hold as each of the entries from `first_number` on comes."""
        wanted = self._wanted
        previous = array("i", bytes(wanted.itemsize * len(wanted)))
        for start, slots, places in self._sweep(file):
            first_slot = start // HASH_SLOT_SIZE
            for place in places:
                at = wanted[place] - first_slot
                number = slots[at]
                # What points ahead is damage; Java takes that for an empty slot, too.
                previous[place] = number if number < first_number + place else 0
                slots[at] = first_number + place
        return previous

    def write(self, file: File, first_number: int) -> None:
        wanted = self._wanted
        for start, slots, places in self._sweep(file):
            first_slot = start // HASH_SLOT_SIZE
            for place in places:
                slots[wanted[place] - first_slot] = first_number + place
            write_slots(file, start, slots)

    def _sweep(self, file: File) -> "Iterator[tuple[int, array[int], array[int]]]":
        """Each run's byte offset in the file, its slots, and the places of the hashes that want them."""
        count = 0
        for run_number in sorted(self._runs):
            start = max(run_number * self._run_size, INDEX_HEADER_SIZE)
            end = min((run_number + 1) * self._run_size, self._slots_end)
            places = self._runs[run_number]
            yield start, read_slots(file, start, end), places
            count += len(places)
            if count >= _ENTRIES_PER_PAUSE:
                count = 0
                self._pause()
