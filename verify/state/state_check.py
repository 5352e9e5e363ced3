"""State records: replayed in order, each full state must be what all changes before it add up to.

Pass 1 notes where state entries and no-ops lie (StatePlaces), so that their bodies stay with the workers; then one
worker replays one log. A record that cannot be read, or entries lost to damage, leave the tables unknown until the next
full state, so one fault is one finding. A full state that was taken over from Java's broker is taken as it is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final
from zlib import crc32

import msgpack

from dledger.entry import ENTRY_HEADER_SIZE, EntryHeader, EntryKind, Index, parse_header
from message.decoder import decode_message
from message.errors import MessageDecodeError
from store.errors import StateRecordError
from store.state.state_record import FullStatePart, unpack_record
from store.state.state_tables import StateTables
from store.state.table import StateChange
from store.state.table_configs import DataVersion
from store.state.tables.consumer_offset_table import CommitOffset
from verify.findings import Finding, Kind
from verify.log.data_file import DataFile
from verify.log.entry_scan import Run
from verify.replica import Replica
from verify.state.group_offsets import QueueEnds, delay_offset_findings, group_offset_findings

# What moves the tables: records, and the no-op of a term, which ends the delivery of delayed messages under way.
_KINDS: Final = (EntryKind.STATE, EntryKind.NO_OP)


@dataclass(frozen=True, slots=True)
class StatePlaces:
    """Where state entries and no-ops lie in a unit of pass 1."""

    replica: str
    positions: bytes  # array("q"), ascending
    frozen: tuple[int, ...]  # applied indexes that full states in them speak of


class StateEntries:
    """A consumer of pass 1."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._positions = array("q")
        self._frozen: set[int] = set()

    def feed(self, run: Run) -> None:
        if not any(kind in run.kinds for kind in _KINDS):
            return
        shift = run.first_pos - run.offsets[0]
        for offset, end, kind in zip(run.offsets, run.ends, run.kinds, strict=True):
            if kind not in _KINDS:
                continue
            self._positions.append(shift + offset)
            try:
                body = decode_message(run.buffer[offset + run.record_shift : end]).body
                record = unpack_record(body)
            except (MessageDecodeError, StateRecordError):
                continue  # the replay says so
            if isinstance(record, FullStatePart) and isinstance(record.applied_index, int):
                self._frozen.add(record.applied_index)

    def finish(self) -> Iterator[StatePlaces]:
        if self._positions:
            yield StatePlaces(self._replica.name, self._positions.tobytes(), tuple(sorted(self._frozen)))


@dataclass(frozen=True, slots=True)
class StateReplay:
    """A unit of work: the state entries of one replica, up to an index."""

    replica: Replica
    positions: bytes
    frozen: frozenset[int]
    begins_whole: bool  # the log begins with its first entry
    up_to: int
    damaged: tuple[
        tuple[int, int], ...
    ]  # positions of the log that were entries and are not any more; sorted
    queue_ends: QueueEnds


def plan_replay(
    replica: Replica,
    places: Iterable[StatePlaces],
    *,
    begins_whole: bool,
    up_to: int,
    end_pos: int,
    damaged: Iterable[tuple[int, int]],
    queue_ends: QueueEnds,
) -> StateReplay:
    """`places` of this replica, in any order; what lies behind `end_pos` is no part of its log."""
    positions = array("q")
    frozen: set[int] = set()
    for place in places:
        positions.frombytes(place.positions)
        frozen.update(place.frozen)
    ranges = sorted(damaged)
    ordered = array("q", sorted(pos for pos in positions if pos < end_pos and not _is_in(pos, ranges)))
    return StateReplay(
        replica,
        ordered.tobytes(),
        frozenset(frozen),
        begins_whole,
        up_to,
        tuple(ranges),
        queue_ends,
    )


def _is_in(pos: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Such an entry can be read, and is not to be believed: its header was changed."""
    number = bisect_right(ranges, pos, key=lambda one: one[0]) - 1
    return number >= 0 and pos < ranges[number][1]


def replay(unit: StateReplay) -> Iterator[Finding]:
    """Raises OSError."""
    machine = _Replay(unit)
    damaged = list(unit.damaged)
    for entry in _entries(unit):
        if entry is None:
            machine.lose_track()
            continue
        header, body = entry
        if header.index > unit.up_to:
            break
        while damaged and damaged[0][0] < header.pos:
            damaged.pop(0)
            machine.lose_track()
        yield from machine.take(header, body)
    if machine.is_whole and not damaged:
        tables = machine.tables
        tables.settle(Index(unit.up_to))
        name, ends = unit.replica.name, unit.queue_ends
        yield from group_offset_findings(name, "", tables.consumer_offset_table.offsets, ends)
        yield from delay_offset_findings(name, "", tables.delay_offset_table.offsets, ends)


class _Replay:
    """Invariant: if `is_whole`, the tables are what all changes up to the last entry taken add up to."""

    def __init__(self, unit: StateReplay) -> None:
        self.tables = StateTables()
        self.is_whole = unit.begins_whole
        self._unit = unit
        self._to_freeze = sorted(unit.frozen, reverse=True)
        self._frozen: dict[int, _Snapshot] = {}  # applied index -> what the tables were
        # While not whole: index, timestamp, changes; None for changes: a no-op.
        self._kept: list[tuple[int, int, list[StateChange] | None]] = []
        self._term = -1
        self._current: FullStatePart | None = None  # the part last seen of the record in progress
        self._parts: list[bytes] = []
        # The first parts of the record in progress may be gone, or are known to be out of order.
        self._begins_unseen = not unit.begins_whole

    def lose_track(self) -> None:
        """Entries are missing here."""
        self.is_whole = False
        self._kept.clear()
        self._frozen.clear()
        self._void()
        self._begins_unseen = True

    def take(self, header: EntryHeader, body: bytes) -> Iterator[Finding]:
        while self._to_freeze and self._to_freeze[-1] < header.index:
            index = self._to_freeze.pop()
            if self.is_whole:
                self.tables.settle(Index(index))
                self._frozen[index] = _snapshot(self.tables)
        if header.kind == EntryKind.NO_OP:
            self._apply(header.index, 0, None)
            return
        try:
            message = decode_message(body, check_crc=False)
        except MessageDecodeError:
            self.lose_track()  # an undecodable message, and found as one in pass 1
            return
        try:
            if crc32(message.body) & 0x7FFFFFFF != message.body_crc:
                raise StateRecordError("the message's body does not have its CRC")
            record = unpack_record(message.body)
            if isinstance(record, FullStatePart):
                yield from self._take_part(header, record)
            else:
                self._apply(header.index, message.store_timestamp, record)
        except StateRecordError as error:
            yield self._finding(header, str(error))
            self.lose_track()

    def _apply(self, index: int, timestamp: int, changes: list[StateChange] | None) -> None:
        """Raises StateRecordError."""
        for change in changes or ():
            if isinstance(change, CommitOffset) and not (_is_int(change.queue_id) and _is_int(change.offset)):
                raise StateRecordError(f"a state change of odd values: {change!r:.80}")
        if not self.is_whole:
            self._kept.append((index, timestamp, changes))
            return
        try:
            if changes is None:
                self.tables.term_began(Index(index))
            else:
                self.tables.settle(Index(index - 1))  # as members do, however many entries they apply at once
                self.tables.apply(changes, timestamp)
        except (TypeError, ValueError, AttributeError) as error:
            raise StateRecordError(f"a state change of odd values: {error}") from error

    def _take_part(self, header: EntryHeader, part: FullStatePart) -> Iterator[Finding]:
        """Raises StateRecordError."""
        numbers = (part.term, part.applied_index, part.number, part.count)
        if not all(map(_is_int, numbers)) or not isinstance(part.data, bytes):
            raise StateRecordError("a full-state part of odd values")
        if (
            part.term != header.term
            or not 0 <= part.number < part.count
            or part.applied_index >= header.index
        ):
            raise StateRecordError(
                f"{_described(part)} cannot stand in entry {header.index} of term {header.term}"
            )
        if part.term != self._term:
            self._void()  # another leader does not complete what one before has begun
            self._term = part.term
        before = self._current
        if part.number == 0:
            self._void()
            if before is not None and not self._begins_unseen:
                self._begins_unseen = True  # one fault is not to be two when the next record begins
                yield self._finding(header, f"{_described(part)} follows {_described(before)}: out of order")
            else:
                self._begins_unseen = False
        elif before is None or not _follows(part, before):
            self._void()
            if before is not None or not self._begins_unseen:
                place = f"follows {_described(before)}" if before is not None else "has no part before it"
                yield self._finding(header, f"{_described(part)} {place}: out of order")
            self._begins_unseen = True
            return
        self._current = part
        self._parts.append(part.data)
        if part.number + 1 == part.count:
            data = b"".join(self._parts)
            self._void()
            if part.is_imported:
                self.is_whole = False  # what the changes before it add up to is not what Java's broker left
                self._frozen.pop(part.applied_index, None)
            yield from self._completed(header, part.applied_index, data)

    def _completed(self, header: EntryHeader, applied_index: int, data: bytes) -> Iterator[Finding]:
        """Raises StateRecordError."""
        try:
            values, rows = msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogateescape")
            ends = [(topic.decode("utf-8", "replace"), int(queue), int(end)) for topic, queue, _, end in rows]
        except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
            raise StateRecordError(f"a full state that cannot be read: {error!r:.80}") from error
        tables = StateTables()
        tables.unpack(values)
        found = _snapshot(tables)
        expected = self._frozen.pop(applied_index, None)
        for index in [index for index in self._frozen if index < applied_index]:
            del self._frozen[index]  # of a record that was never completed
        if expected is not None:
            difference = _difference(found, expected)
        else:
            difference = ""
            self._take_over(applied_index, tables)
        difference = difference or self._row_fault(ends)
        if difference:
            yield self._finding(header, f"the full state as of entry {applied_index} {difference}")
            self.lose_track()  # which of the two is right is not known; the next full state is taken as it is

    def _take_over(self, applied_index: int, tables: StateTables) -> None:
        if self.is_whole:
            return
        self.tables = tables
        self.is_whole = True
        for index, timestamp, changes in self._kept:
            if index > applied_index:
                self._apply(index, timestamp, changes)
        self._kept.clear()

    def _row_fault(self, ends: list[tuple[str, int, int]]) -> str:
        for topic, queue_id, said in ends:
            end = self._unit.queue_ends.end_of(topic, queue_id)
            if end is not None and said > end:
                return f"says that queue {topic}/{queue_id} ends at {said}, its messages end at {end}"
        return ""

    def _void(self) -> None:
        self._current = None
        self._parts = []

    def _finding(self, header: EntryHeader, sentence: str) -> Finding:
        replica = self._unit.replica
        file = _file_of(replica, header.pos)
        return Finding(
            kind=Kind.STATE_RECORD,
            replica=replica.name,
            file=replica.relative(file.path),
            first_index=header.index,
            last_index=header.index,
            sentence=sentence,
        )


# What two states are compared by, by name of a table: its rows and its data version.
_Snapshot = dict[str, tuple[Mapping[Any, Any], DataVersion]]


def _snapshot(tables: StateTables) -> _Snapshot:
    return {table.name: (table.rows(), table.data_version) for table in tables.all}


def _difference(found: _Snapshot, expected: _Snapshot) -> str:
    """In words; "" for equal states."""
    for name, (rows, _) in found.items():
        other = expected[name][0]
        for key in sorted(set(rows) | set(other), key=str):
            if rows.get(key) != other.get(key):
                return f"is not what the changes before it add up to: its {name} differ, first in {key}"
    for name, (_, version) in found.items():
        if version != expected[name][1]:
            return f"has {name} of version {version}, the changes before it lead to {expected[name][1]}"
    return ""


def _follows(part: FullStatePart, before: FullStatePart) -> bool:
    return (part.applied_index, part.count, part.number) == (
        before.applied_index,
        before.count,
        before.number + 1,
    )


def _described(part: FullStatePart) -> str:
    return f"part {part.number + 1} of {part.count} of the full state as of entry {part.applied_index}"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _entries(unit: StateReplay) -> Iterator[tuple[EntryHeader, bytes] | None]:
    """Header and body of each state entry and no-op, in order; None for those of a file that retention took since."""
    positions = array("q")
    positions.frombytes(unit.positions)
    for file, group in groupby(positions, key=lambda pos: _file_of(unit.replica, pos)):
        try:
            with open(file.path, "rb") as opened:
                for pos in group:
                    opened.seek(pos - file.base)
                    header = parse_header(opened.read(ENTRY_HEADER_SIZE))
                    yield header, opened.read(header.body_length)
        except FileNotFoundError:
            yield None


def _file_of(replica: Replica, pos: int) -> DataFile:
    return replica.data_files[bisect_right(replica.data_files, pos, key=lambda file: file.base) - 1]
