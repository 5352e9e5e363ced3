"""Entries as Arrow batches: column by column over whole runs, no value per message.

What a sound entry is, entry_scan.py says; what is in its record, message_columns.py. A batch holds only the columns
that are asked for, and what they cost is paid only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import mmh3
import numpy as np
import pyarrow as pa

from dledger.entry import EntryKind
from message.record_arrays import gather
from pyspark_dledger.arrow_batches import BATCH_BODIES_SIZE, INFLATED_AT_ONCE, arrow_schema, as_column, pieces
from pyspark_dledger.message_columns import MessageColumns, read
from pyspark_dledger.schema import BODY, OF_MESSAGE
from verify.findings import Kind
from verify.log.entry_scan import Run

_CRCS_AT: Final = 36  # chain_crc and body_crc in an entry's header


@dataclass(frozen=True, slots=True)
class Place:
    """Where the entries of a unit come from: the same in every row."""

    replica: str
    group: str
    file: str
    deleted_topics: Mapping[str, int] = field(default_factory=dict)
    broker: str = ""  # over the wire, where the two others are empty


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries, and what of them. Bounds are inclusive; no entry of a plain CommitLog, which has no indexes, is
    between any."""

    columns: tuple[str, ...]
    topic: str | None = None
    index_from: int | None = None
    index_to: int | None = None
    inflate: bool = False  # bodies that were compressed by their clients

    @property
    def reads_records(self) -> bool:
        return self.topic is not None or "fault" in self.columns or not OF_MESSAGE.isdisjoint(self.columns)


def run_batches(
    run: Run, place: Place, selection: Selection, faults: dict[int, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one run; none where no entry of it is selected.

    `faults`: by the entry's number in the run, what is said against it.
    """
    first, end = _selected(run, selection)
    if BODY.name in selection.columns and selection.inflate:
        starts = range(first, end, INFLATED_AT_ONCE)
    else:
        starts = range(first, end, max(end - first, 1))
    for start in starts:
        rows = _Rows(run, place, range(start, min(start + starts.step, end)), selection, faults or {})
        if rows.numbers:
            yield from _batches(rows, selection)


def _selected(run: Run, selection: Selection) -> tuple[int, int]:
    """The numbers in the run of the entries between the bounds."""
    first, end = 0, run.count
    if run.first_index < 0 and (selection.index_from, selection.index_to) != (None, None):
        return 0, 0
    if selection.index_from is not None:
        first = max(first, selection.index_from - run.first_index)
    if selection.index_to is not None:
        end = min(end, selection.index_to + 1 - run.first_index)
    return first, end


def _batches(rows: _Rows, selection: Selection) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(selection.columns)
    arrays = {name: _column(rows, name) for name in selection.columns if name != BODY.name}
    if BODY.name not in selection.columns:
        yield pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)
        return
    for start, bodies in pieces(rows.messages.bodies(inflate=selection.inflate), BATCH_BODIES_SIZE):
        piece = {name: array.slice(start, len(bodies)) for name, array in arrays.items()}
        piece[BODY.name] = pa.array(bodies, pa.binary())
        yield pa.RecordBatch.from_arrays([piece[name] for name in selection.columns], schema=schema)


def _column(rows: _Rows, name: str) -> pa.Array:
    build = _BUILDERS.get(name)
    column = build(rows) if build is not None else rows.messages.column(name)
    return as_column(name, column)


class _Rows:
    """The selected entries of a run, by their numbers in it, and what several columns need."""

    def __init__(
        self, run: Run, place: Place, numbers: range, selection: Selection, faults: dict[int, str]
    ) -> None:
        self.run = run
        self.place = place
        self.faults = faults
        self.numbers: Sequence[int] = numbers
        self._messages: MessageColumns | None = None
        if selection.reads_records:
            offsets = run.offsets[numbers.start : numbers.stop]
            records = read(run.buffer, offsets, shift=run.record_shift, topic=selection.topic)
            self._messages = MessageColumns(records)
            if len(records.numbers) < len(numbers):
                self.numbers = [numbers.start + number for number in records.numbers]

    @property
    def messages(self) -> MessageColumns:
        assert self._messages is not None, "Selection.reads_records is true for every column of a message"
        return self._messages

    def of(self, values: list[int]) -> list[int]:
        """Of one value per entry of the run those selected."""
        if isinstance(self.numbers, range):
            return values[self.numbers.start : self.numbers.stop]
        return [values[number] for number in self.numbers]

    def same(self, value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), len(self.numbers))

    def of_entries(self, values: list[int]) -> list[int] | list[None]:
        """None where the run has no entries, only records."""
        return self.of(values) if values else [None] * len(self.numbers)


def _pos(rows: _Rows) -> Any:
    return np.asarray(rows.of(rows.run.offsets), np.int64) + (rows.run.first_pos - rows.run.offsets[0])


def _index(rows: _Rows) -> Any:
    if rows.run.first_index < 0:
        return [None] * len(rows.numbers)
    return np.asarray(rows.numbers, np.int64) + rows.run.first_index


def _size(rows: _Rows) -> Any:
    return np.asarray(rows.of(rows.run.ends), np.int32) - np.asarray(rows.of(rows.run.offsets), np.int32)


def _kind(rows: _Rows) -> list[str] | list[None]:
    if not rows.run.kinds:
        return [None] * len(rows.numbers)
    return [_kind_name(kind) for kind in rows.of(rows.run.kinds)]


def _crcs(rows: _Rows, which: int) -> Any:
    if not rows.run.terms:
        return [None] * len(rows.numbers)
    offsets = np.asarray(rows.of(rows.run.offsets), np.int64)
    return gather(rows.run.buffer, offsets + _CRCS_AT, 8).view(">i4")[:, which].astype(np.int32)


def _fault(rows: _Rows) -> list[str | None]:
    said: list[str | None] = [None] * len(rows.numbers)
    if rows.faults:
        said = [rows.faults.get(number) for number in rows.numbers]
    for row in rows.messages.faulty_rows:
        earlier = said[row]
        said[row] = Kind.UNDECODABLE_MESSAGE if earlier is None else f"{earlier}, {Kind.UNDECODABLE_MESSAGE}"
    return said


def _digest(rows: _Rows) -> list[bytes]:
    view, digest = memoryview(rows.run.buffer), mmh3.mmh3_x64_128_digest
    starts, ends = rows.of(rows.run.offsets), rows.of(rows.run.ends)
    return [digest(view[start:end]) for start, end in zip(starts, ends, strict=True)]


def _of_deleted_topic(rows: _Rows) -> list[bool | None]:
    deleted = rows.place.deleted_topics
    said: list[bool | None] = [False] * len(rows.numbers)
    if deleted:
        topics = _column(rows, "topic").to_pylist()
        said = [pos < deleted.get(topic, 0) for topic, pos in zip(topics, _pos(rows).tolist(), strict=True)]
    for row in rows.messages.faulty_rows:
        said[row] = None
    return said


@lru_cache(maxsize=64)
def _kind_name(kind: int) -> str:
    try:
        return EntryKind(kind).name.lower()
    except ValueError:
        return str(kind)


_BUILDERS: Final[dict[str, Callable[[_Rows], Any]]] = {
    "replica": lambda rows: rows.same(rows.place.replica),
    "broker": lambda rows: rows.same(rows.place.broker),
    "group": lambda rows: rows.same(rows.place.group),
    "file": lambda rows: rows.same(rows.place.file),
    "pos": _pos,
    "index": _index,
    "term": lambda rows: rows.of_entries(rows.run.terms),
    "size": _size,
    "kind": _kind,
    "chain_crc": lambda rows: _crcs(rows, 0),
    "body_crc": lambda rows: _crcs(rows, 1),
    "fault": _fault,
    "digest": _digest,
    "of_deleted_topic": _of_deleted_topic,
}
