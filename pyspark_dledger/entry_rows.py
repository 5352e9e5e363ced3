"""The rows of one unit of work: sound entries, what is said against some of them, and damaged ones with an index.

A validation judges with all runs of a replica in hand; here a worker has its own range and what lies just before it,
which is enough to say of each entry whether it follows the one in front. An entry behind a faulty one is not judged by
it: the fault is told once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from dledger.entry import (
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    ENTRY_SIZE_MAX,
    EntryHeader,
    chain_after,
    parse_header,
)
from pyspark_dledger.entry_columns import Place, Selection, run_batches
from verify.findings import Kind
from verify.log.data_file import DataFile, Layout
from verify.log.entry_scan import Rest, Run, is_javas, scan
from verify.replica import Replica
from verify.work import DataRange

# How far behind a range the entry in front of it is looked for: nearly always it is near.
_LOOK_BACK: Final = (256 * 1024, 4 * 1024 * 1024, ENTRY_SIZE_MAX)
_MAGIC_BYTES: Final = ENTRY_MAGIC.to_bytes(4, "big")
_DAMAGE_WINDOW: Final = 16 * 1024 * 1024


def unit_batches(unit: DataRange, selection: Selection) -> Iterator[pa.RecordBatch]:
    """Raises OSError."""
    replica = unit.replica
    place = Place(replica.name, replica.group, replica.relative(unit.file.path), dict(replica.deleted_topics))
    for run, faults in judged_runs(unit):
        yield from run_batches(run, place, selection, faults)


def judged_runs(unit: DataRange) -> Iterator[tuple[Run, dict[int, str]]]:
    """The unit's entries in order, and by their numbers in the run what is wrong. Raises OSError."""
    before = _before(unit)
    if before is not None and before.next_pos > unit.file.base + unit.start:
        # The unit begins inside of an entry. What its body holds is not looked at: it might be a copy of a log.
        unit = replace(unit, start=before.next_pos - unit.file.base)
    if unit.start < unit.end:
        yield from _judged(unit, before)


def _judged(unit: DataRange, before: _End | None) -> Iterator[tuple[Run, dict[int, str]]]:
    has_entries = unit.replica.layout is Layout.DLEDGER
    for part in scan(unit):
        if isinstance(part, Run):
            runs, damage = [part], ""
        else:
            runs, damage = list(_damaged(unit, part)) if has_entries else [], str(Kind.BODY_CRC)
        for run in runs:
            said = [damage] if damage else []
            if has_entries:
                said += _link_faults(before, parse_header(run.first_header), run.first_header)
            yield run, {0: ", ".join(said)} if said else {}
            before = _end_of(run, said)


@dataclass(frozen=True, slots=True)
class _End:
    """The entry in front of another."""

    header: EntryHeader  # means nothing in a plain CommitLog
    next_pos: int  # where the other must be
    is_faulty: bool


def _link_faults(before: _End | None, header: EntryHeader, raw: bytes) -> list[str]:
    if before is None or before.is_faulty or before.next_pos != header.pos:
        return []
    said: list[str] = []
    if header.index != before.header.index + 1:
        if header.index > before.header.index:
            said.append(Kind.GAP)
        else:
            said.append(Kind.DUPLICATE_INDEX if header.index == before.header.index else Kind.ORDER)
    if header.term < before.header.term:
        said.append(Kind.NON_MONOTONIC_TERM)
    # Java's entries have no chain to go on from.
    if (
        not is_javas(header)
        and not is_javas(before.header)
        and chain_after(raw, before.header.chain_crc) != header.chain_crc
    ):
        said.append(Kind.CHAIN_CRC)
    return said


def _end_of(run: Run, said: Collection[object]) -> _End:
    """`said`: against the run's first entry."""
    return _End(parse_header(run.last_header), run.next_pos, bool(said) and run.count == 1)


def _before(unit: DataRange) -> _End | None:
    """The last entry in front of the unit; None where none is found."""
    earlier = _earlier(unit)
    if earlier is None:
        return None
    for size in _LOOK_BACK:
        found: _End | None = None
        start = max(0, earlier.end - size)
        for run, faults in _judged(replace(earlier, start=start), None):
            found = _end_of(run, faults)
        if found is not None:
            # Between the last entry of a file and the next file is a blank.
            return replace(found, next_pos=unit.file.base) if earlier.file is not unit.file else found
        if start == 0:
            break
    return None


def _earlier(unit: DataRange) -> DataRange | None:
    """All of the log in front of the unit that is in one file."""
    if unit.start > 0:
        return replace(unit, start=0, end=unit.start)
    before = _file_before(unit.replica, unit.file)
    return None if before is None else DataRange(unit.replica, before, 0, before.size)


def _file_before(replica: Replica, file: DataFile) -> DataFile | None:
    for candidate in replica.data_files:
        if candidate.base + candidate.size == file.base:
            return candidate
    return None


def _damaged(unit: DataRange, rest: Rest) -> Iterator[Run]:
    """Entries whose headers say that they are there, and whose bodies are not what they were: each a run of its own."""
    base = unit.file.base
    at, end = rest.pos - base, rest.nonzero_end - base
    if at >= end:
        return
    with open(unit.file.path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        while at < end:
            window = os.pread(descriptor, min(end - at, _DAMAGE_WINDOW) + ENTRY_HEADER_SIZE, at)
            place = 0
            while 0 <= (found := window.find(_MAGIC_BYTES, place)) < min(end - at, _DAMAGE_WINDOW):
                header = _header_at(window, found, base + at + found, unit.file.size - at - found)
                if header is None:
                    place = found + 1
                    continue
                entry = os.pread(descriptor, header.size, at + found)
                if len(entry) == header.size:
                    yield _run_of(header, entry)
                place = found + header.size  # perhaps behind the window: its body is not looked at
            at += max(_DAMAGE_WINDOW, place)


def _header_at(window: bytes, place: int, pos: int, bytes_left: int) -> EntryHeader | None:
    if len(window) - place < ENTRY_HEADER_SIZE:
        return None
    header = parse_header(window, place)
    believable = header.pos == pos and header.index >= 0 and 0 <= header.body_length <= bytes_left
    return (
        header if believable and header.size == header.body_length + ENTRY_HEADER_SIZE <= bytes_left else None
    )


def _run_of(header: EntryHeader, entry: bytes) -> Run:
    return Run(
        first_index=header.index,
        last_index=header.index,
        first_pos=header.pos,
        next_pos=header.pos + header.size,
        offsets=[0],
        record_shift=ENTRY_HEADER_SIZE,
        terms=[header.term],
        kinds=[header.kind],
        buffer=entry,
        has_crcs=not is_javas(header),
    )
