"""IndexFiles against the log: the entries of a file are the keys of the messages between its two offsets, in order.

One worker checks one file. It reads the log once, from the file's first message to the one that the next file begins
with, and lays the keys that it finds there beside the entries. Where they part, what has no counterpart on either side
up to the next place that fits counts as so many wrong places. Then the chains: what each entry and each slot should
hold follows from the keys alone.

Slots of a file that a broker is writing may point at entries that its mark does not count yet. Their chains lead back
to the newest entry that counts, which is what a start of the broker makes of them (led_back).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from disk.disk import File
from disk.real_disk import RealDisk
from message.decoder import decode_message
from message.errors import MessageDecodeError
from message.sys_flag import has_index_entry
from store.index.index_file import IndexFileDamagedError, led_back, read_slots
from store.layout.index_file import (
    HASH_SLOT_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    IndexEntry,
    entry_offset,
    index_key,
    index_key_hash,
    time_diff,
)
from verify.findings import Finding, Kind
from verify.index.index_file_plan import IndexFileOnDisk, IndexFilePlan, unreadable_index_file
from verify.log.entry_scan import Run, scan
from verify.replica import Replica
from verify.work import DataRange

_CHUNK_ENTRIES: Final = 65536
# Stands in front of the tags of a message, which Java 5.5 indexes behind its keys; 4.9 does not.
_TAG_TYPE: Final = "T#"
# How far apart entries and keys may be before they are taken for wrong: more than what a damaged block holds.
_WINDOW: Final = 4096


@dataclass(slots=True)
class _Key:
    """What the log says of one entry."""

    key_hash: int
    phy_offset: int
    store_timestamp: int  # ms
    time_diff: int  # as the entry should have it
    is_needed: bool  # False: a neighbouring file may have it
    is_tag: bool


@dataclass(slots=True)
class _Place:
    """An entry of the file with what it should be; `key` is None where the log has nothing for it."""

    number: int
    entry: IndexEntry
    key: _Key | None = None
    is_repeated: bool = False  # an entry before it has the key already, and the log has it once


def check_index_file(unit: IndexFilePlan) -> Iterator[Finding]:
    """At most one finding; it counts the wrong places."""
    count = 0
    first = ""
    try:
        for fault in _faults(unit):
            count += 1
            first = first or fault
    except FileNotFoundError:
        return  # retention of a running broker took the file, or one of the log's, while the validation ran
    except OSError as error:
        yield unreadable_index_file(unit.replica, unit.file.path, error)
        return
    if count:
        yield Finding(
            kind=Kind.KEY_INDEX_WRONG,
            replica=unit.replica.name,
            file=unit.replica.relative(unit.file.path),
            count=count,
            sentence=first if count == 1 else f"{count} places; the first: {first}",
        )


def _faults(unit: IndexFilePlan) -> Iterator[str]:
    header = unit.file.header
    if unit.header_fault is not None:
        yield unit.header_fault
    if not 1 <= header.index_count <= unit.file.shape.index_count_max:
        yield f"the header says {header.index_count} entries, there is room for {unit.file.shape.index_count_max}"
        return
    chains = _Chains(unit)
    first: _Key | None = None
    last: _Key | None = None
    for place, fault in _compared(unit):
        if place is not None:
            fault = fault or chains.fault_of(place)
            chains.add(place)
            first = place.key if place.number == 1 else first
            last = place.key
        if fault:
            yield fault
    if first is not None and _bounds(first) != (header.begin_phy_offset, header.begin_timestamp):
        said = f"{header.begin_phy_offset} and time {header.begin_timestamp}"
        yield f"the header begins at physical offset {said}, its first message with {_bounds(first)}"
    if unit.is_settled:
        yield from chains.faults_of_slots(may_go_on=unit.may_go_on)
        if last is not None and _bounds(last) != (header.end_phy_offset, header.end_timestamp):
            said = f"{header.end_phy_offset} and time {header.end_timestamp}"
            yield f"the header ends at physical offset {said}, its last message with {_bounds(last)}"


def _bounds(key: _Key) -> tuple[int, int]:
    return key.phy_offset, key.store_timestamp


def _compared(unit: IndexFilePlan) -> Iterator[tuple[_Place | None, str]]:
    """Each entry in order with what is wrong with it; and what the file does not have, with no entry."""
    keys = _KeysAhead(_keys_of_log(unit))
    entries = _entries(unit.file)
    first_entries = list(islice(entries, _WINDOW))
    # Java 5.x began to index tags at some version, perhaps in the middle of this file.
    has_tags = keys.have_tag_in(entry for _, entry in first_entries)
    waiting: list[_Place] = []  # entries since the last one that fitted
    fitted: set[tuple[int, int]] = set()  # of the last message with one that fits
    for number, entry in chain(first_entries, entries):
        place = _Place(number, entry)
        at = keys.find(entry)
        if at < 0:
            place.is_repeated = (entry.phy_offset, entry.key_hash) in fitted
            waiting.append(place)
            # What cannot be judged need not wait for its neighbours, and may be half of an old file.
            if len(waiting) == _WINDOW or not _is_judged(unit, waiting[0].entry):
                judged = sum(_takes_a_key(unit, other) for other in waiting)
                yield from _settled(unit, waiting, keys.take(judged), has_tags)
                waiting.clear()
            continue
        yield from _settled(unit, waiting, keys.take(at), has_tags)
        waiting.clear()
        [place.key] = keys.take(1)
        if all(phy_offset != entry.phy_offset for phy_offset, _ in fitted):
            fitted.clear()
        fitted.add((entry.phy_offset, entry.key_hash))
        has_tags = has_tags or place.key.is_tag
        yield place, _time_fault(place)
    yield from _settled(unit, waiting, keys.take_all(), has_tags)


class _KeysAhead:
    """The next keys of the log: as many as entries and keys may be apart."""

    def __init__(self, keys: Iterator[_Key]) -> None:
        self._keys = keys
        self._ahead: deque[_Key] = deque()
        self._counts: dict[tuple[int, int], int] = {}  # by place, so that what is not there costs no search
        self._fill()

    def find(self, entry: IndexEntry) -> int:
        """How many keys are before the one that fits; -1: none fits."""
        place = entry.phy_offset, entry.key_hash
        if place not in self._counts:
            return -1
        return next(at for at, key in enumerate(self._ahead) if _place_of(key) == place)

    def have_tag_in(self, entries: Iterable[IndexEntry]) -> bool:
        places = {(entry.phy_offset, entry.key_hash) for entry in entries}
        return any(key.is_tag and _place_of(key) in places for key in self._ahead)

    def take(self, count: int) -> list[_Key]:
        """The next `count`, or as many as there are."""
        taken = [self._ahead.popleft() for _ in range(min(count, len(self._ahead)))]
        for key in taken:
            place = _place_of(key)
            self._counts[place] -= 1
            if not self._counts[place]:
                del self._counts[place]
        self._fill()
        return taken

    def take_all(self) -> Iterator[_Key]:
        return chain(self._ahead, self._keys)

    def _fill(self) -> None:
        while len(self._ahead) < _WINDOW and (key := next(self._keys, None)) is not None:
            self._ahead.append(key)
            place = _place_of(key)
            self._counts[place] = self._counts.get(place, 0) + 1


def _settled(
    unit: IndexFilePlan, waiting: Sequence[_Place], keys: Iterable[_Key], has_tags: bool
) -> Iterator[tuple[_Place | None, str]]:
    """Entries and keys between two places that fit: each entry that does not belong there takes one key's place."""
    judged = sum(_takes_a_key(unit, place) for place in waiting)
    keys = iter(keys)
    near = list(islice(keys, 2 * _WINDOW))
    needed = [key for key in near if _is_needed(key, has_tags)]
    # Keys that a neighbouring file may have may still be what the entries were.
    possible = [key for key in near if has_tags or not key.is_tag]
    replaced = iter(needed if judged <= len(needed) else possible)
    for place in waiting:
        if not _is_judged(unit, place.entry):
            yield place, ""
            continue
        found = f"entry {place.number} has hash {place.entry.key_hash} and physical offset {place.entry.phy_offset}"
        if place.is_repeated:
            yield place, f"{found}, as an entry before it has, and the log has that key once"
            continue
        place.key = next(replaced, None)
        if place.key is None:
            yield place, f"{found}, and the log has no such key there"
        else:
            wanted = f"hash {place.key.key_hash} and physical offset {place.key.phy_offset}"
            yield place, f"{found}; the log has {wanted}"
    for key in chain(needed[judged:], (key for key in keys if _is_needed(key, has_tags))):
        yield (
            None,
            f"a key of the message at physical offset {key.phy_offset}, hash {key.key_hash}, has no entry",
        )


def _is_needed(key: _Key, has_tags: bool) -> bool:
    return key.is_needed and (has_tags or not key.is_tag)


class _Chains:
    """What previous entries and slots must be, given the keys of all entries before."""

    def __init__(self, unit: IndexFilePlan) -> None:
        self._file = unit.file
        self._newest = array("I", bytes(HASH_SLOT_SIZE * unit.file.shape.slot_count))  # entry by slot

    def fault_of(self, place: _Place) -> str:
        expected = self._newest[self._slot(place)]
        if place.entry.previous == expected:
            return ""
        return f"entry {place.number} is chained to entry {place.entry.previous}, its slot held {expected} before"

    def add(self, place: _Place) -> None:
        self._newest[self._slot(place)] = place.number

    def faults_of_slots(self, *, may_go_on: bool) -> Iterator[str]:
        file = RealDisk().open(self._file.path, read_only=True)
        try:
            slots = read_slots(file, INDEX_HEADER_SIZE, self._file.shape.slots_end)
            if slots != self._newest:
                for slot, (found, expected) in enumerate(zip(slots, self._newest, strict=True)):
                    if found != expected and not (may_go_on and self._leads_to(file, slot, found, expected)):
                        yield f"slot {slot} says entry {found}, its newest one is {expected}"
        finally:
            file.close()
        used = len(self._newest) - self._newest.count(0)
        if used != self._file.header.hash_slot_count:
            yield f"the header says {self._file.header.hash_slot_count} slots are in use, there are {used}"

    def _leads_to(self, file: File, slot: int, number: int, expected: int) -> bool:
        """Whether entries that came later lead back from `number` to the expected one."""
        try:
            return led_back(file, self._file.shape, self._file.header, slot, number) == expected
        except IndexFileDamagedError:
            return False

    def _slot(self, place: _Place) -> int:
        key_hash = place.key.key_hash if place.key is not None else place.entry.key_hash
        return key_hash % self._file.shape.slot_count


def _place_of(key: _Key) -> tuple[int, int]:
    return key.phy_offset, key.key_hash


def _time_fault(place: _Place) -> str:
    key, entry = place.key, place.entry
    if key is None or entry.time_diff == key.time_diff:
        return ""
    return f"entry {place.number} was stored {entry.time_diff} s after the file began, the message {key.time_diff} s"


def _takes_a_key(unit: IndexFilePlan, place: _Place) -> bool:
    """Of an entry that does not fit: whether it stands where one should that does."""
    return not place.is_repeated and _is_judged(unit, place.entry)


def _is_judged(unit: IndexFilePlan, entry: IndexEntry) -> bool:
    """Not if it points at what has expired, was damaged or was lost."""
    if entry.phy_offset < unit.begin_phy_offset and (entry.phy_offset or entry.key_hash):
        return False
    if entry.phy_offset >= unit.lost_from:
        return False
    return not any(start <= entry.phy_offset < end for start, end in unit.damaged)


def _entries(file: IndexFileOnDisk) -> Iterator[tuple[int, IndexEntry]]:
    with open(file.path, "rb") as opened:
        opened.seek(entry_offset(1, file.shape.slot_count))
        for first in range(1, file.header.index_count, _CHUNK_ENTRIES):
            count = min(_CHUNK_ENTRIES, file.header.index_count - first)
            data = opened.read(count * INDEX_ENTRY_SIZE)
            for number, values in enumerate(INDEX_ENTRY.iter_unpack(data), first):
                yield number, IndexEntry(*values)


def _keys_of_log(unit: IndexFilePlan) -> Iterator[_Key]:
    """In the order in which Java puts them into the file."""
    header = unit.file.header
    begin, end = header.begin_phy_offset, unit.end_phy_offset
    begin_timestamp = header.begin_timestamp
    # What a clean stop leaves behind the committed index was not dispatched.
    last_index = unit.replica.java_committed_index
    for run in _runs(unit.replica, begin, end):
        shift = run.first_pos - run.offsets[0] + run.record_shift
        for number, (offset, entry_end) in enumerate(zip(run.offsets, run.ends, strict=True)):
            phy_offset = shift + offset
            if not begin <= phy_offset < end or 0 <= last_index < run.first_index + number:
                continue
            try:
                message = decode_message(run.buffer[offset + run.record_shift : entry_end], read_body=False)
            except MessageDecodeError:
                continue  # pass 1 says so
            if not has_index_entry(message.sys_flag):
                continue
            stored = message.store_timestamp
            if phy_offset == begin:
                begin_timestamp = stored  # so that a wrong header is one fault
            seconds = time_diff(stored, begin_timestamp)
            is_needed = phy_offset not in (unit.previous_end, unit.next_begin) and (
                unit.is_settled or phy_offset < header.end_phy_offset
            )
            for key in filter(None, (message.uniq_key, *(message.keys or "").split(" "))):
                key_hash = index_key_hash(index_key(message.topic, key))
                yield _Key(key_hash, phy_offset, stored, seconds, is_needed, is_tag=False)
            if message.tags:
                key_hash = index_key_hash(index_key(message.topic, _TAG_TYPE + message.tags))
                yield _Key(key_hash, phy_offset, stored, seconds, is_needed, is_tag=True)


def _runs(replica: Replica, begin: int, end: int) -> Iterator[Run]:
    """Sound entries from the one whose record is at `begin` on, to the end of the file that `end` is in."""
    for file in replica.data_files:
        if file.base < end and begin < file.base + file.size:
            start = max(begin - replica.layout.record_shift - file.base, 0)
            for found in scan(DataRange(replica, file, start, min(end - file.base, file.size))):
                if isinstance(found, Run):
                    yield found
