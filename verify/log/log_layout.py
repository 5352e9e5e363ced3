"""A replica's log as a line: segments of sound entries, and the holes between them, file by file.

Puts the parts of all units together. What it gives does not depend on how many there were.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from verify.log.data_file import DataFile
from verify.log.entry_faults import Region
from verify.log.entry_scan import Rest
from verify.log.log_part import LogPart, Segment, is_chained
from verify.replica import Replica
from verify.work import DataRange


@dataclass(slots=True)
class Hole:
    """Bytes pos .. end_pos that are no sound entry. `nonzero_end`: pos if all of them are zero.

    `file` is None where no file is: one is missing, or was cut short and ends at `pos`.
    """

    pos: int
    end_pos: int
    nonzero_end: int
    file: DataFile | None
    short_file: DataFile | None = None

    @property
    def is_zero(self) -> bool:
        return self.nonzero_end <= self.pos

    @property
    def may_be_blank(self) -> bool:
        """As far as can be told without its bytes: it ends with its file and has at most a header that is not 0."""
        return (
            self.file is not None
            and not self.is_zero
            and self.end_pos == self.file.base + self.file.size
            and self.nonzero_end <= self.pos + 8
        )


@dataclass(slots=True)
class LogLine:
    """In order of position; segments that go on with each other are one."""

    replica: Replica
    items: list[Segment | Hole]
    bytes_read: int

    @property
    def segments(self) -> list[Segment]:
        return [item for item in self.items if isinstance(item, Segment)]


def units_to_repeat(units: Sequence[DataRange], parts: Sequence[LogPart]) -> list[tuple[int, DataRange]]:
    """Units that took bytes inside an entry of the unit before for entries, and from where they are to be read.

    A body may hold the copy of an entry that would be sound just there; only who reads the entry around it knows.
    `units` are of one replica and in order, `parts` theirs.
    """
    repeated: list[tuple[int, DataRange]] = []
    covered = -1
    for number, (unit, part) in enumerate(zip(units, parts, strict=True)):
        base = unit.file.base
        if part.segments and base + unit.start < covered and part.segments[0].first_pos < covered:
            start = min(covered - base, unit.end)
            if start > unit.start:
                repeated.append((number, DataRange(unit.replica, unit.file, start, unit.end)))
        if part.segments:
            covered = max(covered, part.segments[-1].next_pos)
    return repeated


def lay_out(replica: Replica, parts: Sequence[LogPart]) -> LogLine:
    """`parts` in order of position."""
    file_count = len(replica.data_files)
    replica = _without_expired(replica, {part.file_base for part in parts if part.is_gone})
    items: list[Segment | Hole] = []
    size = replica.data_file_size
    by_file: dict[int, list[LogPart]] = {}
    for part in parts:
        by_file.setdefault(part.file_base, []).append(part)
    expected_base = replica.begin_pos
    is_expired = len(replica.data_files) < file_count
    if not is_expired and _lacks_its_begin(replica, parts):
        start = 0 if _begin_index(replica) == 0 else max(expected_base - size, 0)
        items.append(Hole(start, expected_base, start, None))
    for file in replica.data_files:
        if file.base > expected_base:
            items.append(Hole(expected_base, file.base, expected_base, None))
        _lay_out_file(items, file, by_file.get(file.base, []))
        expected_base = file.base + size
        if file.size < size:
            end = file.base + file.size
            items.append(Hole(end, expected_base, end, None, short_file=file))
    _right_indexes(items)
    return LogLine(replica, items, sum(part.bytes_read for part in parts))


def _right_indexes(items: Sequence[Segment | Hole]) -> None:
    """A single entry behind a hole whose index does not fit to the one behind it: only that one can say how many are
    missing."""
    before = -1
    for number, item in enumerate(items):
        if not isinstance(item, Segment) or not item.first_header:
            continue
        following = items[number + 1] if number + 1 < len(items) else None
        if (
            item.count == 1
            and number > 0
            and isinstance(items[number - 1], Hole)
            and isinstance(following, Segment)
            and following.first_index - 1 != item.first_index
            and following.first_index - 1 > before
            and is_chained(item.last_header, following.first_header)
        ):
            item.right_index(following.first_index - 1)
        before = item.last_index


def _without_expired(replica: Replica, gone: Set[int]) -> Replica:
    """A running replica's retention deletes whole files from the front."""
    files = replica.data_files
    while replica.is_live and files and files[0].base in gone:
        files = files[1:]
    return replica if len(files) == len(replica.data_files) else replace(replica, data_files=files)


def _begin_index(replica: Replica) -> int:
    """Of the log's first entry, as the synced mark says it; -1: nothing says it."""
    return replica.mark.before_begin_index + 1 if replica.mark is not None else -1


def _lacks_its_begin(replica: Replica, parts: Sequence[LogPart]) -> bool:
    """Files in front of the first one are missing. Retention moves the mark before it deletes, so the mark tells.

    A first file that does not begin with a sound entry does not say which index it begins with.
    """
    begin_index = _begin_index(replica)
    if begin_index < 0 or replica.begin_pos == 0:
        return False
    segments = parts[0].segments if parts else []
    is_sound = bool(segments) and segments[0].first_pos == replica.begin_pos
    if begin_index == 0:
        # Not at position 0 where a plain commit log came before it.
        return replica.mark is not None and replica.begin_pos > replica.mark.begin_pos
    return is_sound and segments[0].first_index > begin_index


def _lay_out_file(items: list[Segment | Hole], file: DataFile, parts: Sequence[LogPart]) -> None:
    rests = [rest for part in parts for rest in part.rests]
    starts = [rest.pos for rest in rests]
    at = file.base
    for segment in (segment for part in parts for segment in part.segments):
        if segment.first_pos > at:
            items.append(_hole(at, segment.first_pos, file, rests, starts))
        last = items[-1] if items else None
        if isinstance(last, Segment) and last.goes_on_with(segment):
            last.take(segment)
        else:
            items.append(segment)
        at = segment.next_pos
    if at < file.base + file.size:
        items.append(_hole(at, file.base + file.size, file, rests, starts))


def _hole(pos: int, end_pos: int, file: DataFile, rests: Sequence[Rest], starts: Sequence[int]) -> Hole:
    nonzero_end = pos
    # The first rest may begin before the hole, inside the entry that ends where the hole begins.
    for number in range(max(bisect_left(starts, pos + 1) - 1, 0), bisect_left(starts, end_pos)):
        if rests[number].nonzero_end > rests[number].pos:
            nonzero_end = max(nonzero_end, min(rests[number].nonzero_end, end_pos))
    return Hole(pos, end_pos, nonzero_end, file)


def regions(line: LogLine) -> Iterator[Region]:
    """The holes that must be looked at, each with what is known of its neighbours."""
    before: Segment | None = None
    is_known = line.replica.begin_pos == 0
    last_number = max(
        (number for number, item in enumerate(line.items) if isinstance(item, Segment)), default=-1
    )
    for number, item in enumerate(line.items):
        if isinstance(item, Segment):
            # A single entry whose index does not fit may have a damaged one.
            is_odd = item.count == 1 and before is not None and item.first_index != before.last_index + 1
            before, is_known = item, not is_odd
            continue
        if item.file is not None and not item.is_zero:
            following = line.items[number + 1] if number + 1 < len(line.items) else None
            yield Region(
                replica=line.replica,
                file=item.file,
                pos=item.pos,
                end_pos=item.end_pos,
                nonzero_end=item.nonzero_end,
                is_tail=number > last_number,
                expected_index=_index_behind(before) if is_known else -1,
                next_index=following.first_index if isinstance(following, Segment) else -1,
            )
        # Behind a blank the same entry is expected as before it.
        is_known = is_known and item.may_be_blank


def _index_behind(segment: Segment | None) -> int:
    if segment is None:
        return 0
    return segment.last_index + 1 if segment.last_index >= 0 else -1


def neighbours(line: LogLine) -> Iterator[tuple[Segment | None, list[Hole], Segment | None]]:
    """Each pair of segments with the holes between them; None before the first one and behind the last."""
    before: Segment | None = None
    holes: list[Hole] = []
    for item in line.items:
        if isinstance(item, Hole):
            holes.append(item)
        else:
            yield before, holes, item
            before, holes = item, []
    yield before, holes, None
