"""Entries as Arrow batches: column by column over whole runs, no value per message.

What a sound entry is, entry_scan.py says; what a record says, message.record_columns. A batch holds only the columns
that are asked for, and what they cost is paid only then.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import mmh3
import pyarrow as pa
import pyarrow.compute as pc

from dledger.entry import EntryKind
from message import const
from message.compression import decompress
from message.errors import MessageDecodeError
from message.message_id import offset_message_id, unpack_host
from message.properties import decode_properties
from message.record_columns import RecordColumns, read_records
from message.sys_flag import COMPRESSED_FLAG
from pyspark_dledger.entry_scan import Run
from pyspark_dledger.findings import Kind
from pyspark_dledger.schema import OF_MESSAGE, SQL_TYPES

ARROW_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
# A message of a few KiB may inflate to 64 MiB; an Arrow column ends at 2 GiB, and a worker's memory before.
_INFLATED_BATCH_SIZE: Final = 64 * 1024 * 1024
_CRCS: Final = struct.Struct(">ii")
_CRCS_AT: Final = 36
_MS_MIN: Final = -62_135_596_800_000  # 0001-01-01, where Spark's and Python's calendars begin
_MS_MAX: Final = 253_402_300_799_999  # 9999-12-31


@dataclass(frozen=True, slots=True)
class Place:
    """Where the entries of a unit come from: the same in every row."""

    replica: str
    group: str
    file: str


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


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, ARROW_TYPES[SQL_TYPES[name]]) for name in columns])


def run_batches(
    run: Run, place: Place, selection: Selection, faults: dict[int, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one run; none where no entry of it is selected.

    `faults`: by the entry's number in the run, what is said against it.
    """
    first, end = _selected(run, selection)
    if first >= end:
        return
    offsets = run.offsets[first:end]
    records = None
    numbers: Sequence[int] = range(len(offsets))
    if selection.reads_records:
        topic = None if selection.topic is None else selection.topic.encode()
        records = read_records(run.buffer, offsets, shift=run.record_shift, topic=topic)
        numbers = records.numbers
        if not numbers:
            return
    rows = _Rows(run, place, [first + number for number in numbers], records, faults or {})
    arrays = {
        name: pa.array(values, ARROW_TYPES[SQL_TYPES[name]]) if isinstance(values, list) else values
        for name in selection.columns
        if name != "body"
        for values in (_BUILDERS[name](rows),)
    }
    if "body" not in selection.columns:
        yield pa.RecordBatch.from_arrays(list(arrays.values()), schema=arrow_schema(selection.columns))
        return
    for start, bodies in _bodies(rows, inflate=selection.inflate):
        arrays_here = {name: array.slice(start, len(bodies)) for name, array in arrays.items()}
        arrays_here["body"] = pa.array(bodies, pa.binary())
        yield pa.RecordBatch.from_arrays(
            [arrays_here[name] for name in selection.columns], schema=arrow_schema(selection.columns)
        )


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


class _Rows:
    """The selected entries of a run, and what several columns need."""

    def __init__(
        self,
        run: Run,
        place: Place,
        numbers: Sequence[int],
        records: RecordColumns | None,
        faults: dict[int, str],
    ) -> None:
        self.run = run
        self.place = place
        self.numbers = numbers
        self.faults = faults
        self._records = records
        self._properties: list[dict[str, str] | None] | None = None

    @property
    def records(self) -> RecordColumns:
        assert self._records is not None, "Selection.reads_records is true for every column of a message"
        return self._records

    @property
    def offsets(self) -> list[int]:
        offsets = self.run.offsets
        if len(self.numbers) == len(offsets):
            return offsets
        return [offsets[number] for number in self.numbers]

    @property
    def ends(self) -> list[int]:
        ends = self.run.ends
        if len(self.numbers) == len(ends):
            return ends
        return [ends[number] for number in self.numbers]

    @property
    def properties(self) -> list[dict[str, str] | None]:
        if self._properties is None:
            self._properties = [
                None if encoded is None else decode_properties(encoded) for encoded in self.records.properties
            ]
        return self._properties

    def same(self, value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), len(self.numbers))

    def of_entries(self, values: list[int]) -> list[int] | list[None]:
        """Of one value per entry of the run those selected; None where entries have no headers."""
        if not values:
            return [None] * len(self.numbers)
        return [values[number] for number in self.numbers]

    def of_properties(self, name: str) -> list[str | None]:
        return [None if pairs is None else pairs.get(name) for pairs in self.properties]


def _pos(rows: _Rows) -> list[int]:
    shift = rows.run.first_pos - rows.run.offsets[0]
    return [offset + shift for offset in rows.offsets]


def _index(rows: _Rows) -> list[int] | list[None]:
    first_index = rows.run.first_index
    if first_index < 0:
        return [None] * len(rows.numbers)
    return [first_index + number for number in rows.numbers]


def _size(rows: _Rows) -> list[int]:
    return [end - start for start, end in zip(rows.offsets, rows.ends, strict=True)]


def _kind(rows: _Rows) -> list[str] | list[None]:
    kinds = rows.run.kinds
    if not kinds:
        return [None] * len(rows.numbers)
    return [_kind_name(kinds[number]) for number in rows.numbers]


def _crcs(rows: _Rows, which: int) -> list[int] | list[None]:
    if not rows.run.terms:
        return [None] * len(rows.numbers)
    read, buffer = _CRCS.unpack_from, rows.run.buffer
    return [read(buffer, offset + _CRCS_AT)[which] for offset in rows.offsets]


def _fault(rows: _Rows) -> list[str | None]:
    said: list[str | None] = [rows.faults.get(number) for number in rows.numbers]
    for row in rows.records.faults:
        earlier = said[row]
        said[row] = Kind.UNDECODABLE_MESSAGE if earlier is None else f"{earlier}, {Kind.UNDECODABLE_MESSAGE}"
    return said


def _digest(rows: _Rows) -> list[bytes]:
    view, digest = memoryview(rows.run.buffer), mmh3.mmh3_x64_128_digest
    return [digest(view[start:end]) for start, end in zip(rows.offsets, rows.ends, strict=True)]


def _msg_id(rows: _Rows) -> list[str | None]:
    return [
        None if host is None or phy_offset is None else offset_message_id(host, phy_offset)
        for host, phy_offset in zip(rows.records.store_hosts, rows.records.phy_offsets, strict=True)
    ]


def _properties(rows: _Rows) -> pa.Array:
    names: list[str] = []
    values: list[str] = []
    offsets: list[int | None] = []
    for pairs in rows.properties:
        # A row is null where its offset is.
        offsets.append(None if pairs is None else len(names))
        if pairs:
            names += pairs
            values += pairs.values()
    return pa.MapArray.from_arrays(
        pa.array([*offsets, len(names)], pa.int32()),
        pa.array(names, pa.string()),
        pa.array(values, pa.string()),
    )


def _timestamps(milliseconds: list[int | None]) -> pa.Array:
    array = pa.array(milliseconds, pa.int64())
    bounds = pc.min_max(array).as_py()
    if bounds["min"] is not None and not _MS_MIN <= bounds["min"] <= bounds["max"] <= _MS_MAX:
        # Whatever a client says is stored, and there are numbers that no calendar has.
        inside = pc.and_(pc.greater_equal(array, _MS_MIN), pc.less_equal(array, _MS_MAX))
        array = pc.if_else(inside, array, pa.scalar(None, pa.int64()))
    return pc.multiply(array, 1000).view(pa.timestamp("us", "UTC"))


def _bodies(rows: _Rows, *, inflate: bool) -> Iterator[tuple[int, list[bytes | None]]]:
    """Bodies of consecutive rows and the number of the first of them: as many as fit into a batch."""
    bodies: list[bytes | None] = []
    start, size = 0, 0
    records, buffer = rows.records, rows.run.buffer
    for row, (body_start, length) in enumerate(zip(records.body_starts, records.body_lengths, strict=True)):
        body: bytes | None = None
        if body_start is not None and length is not None:
            body = buffer[body_start : body_start + length]
            sys_flag = records.sys_flags[row]
            if inflate and sys_flag is not None and sys_flag & COMPRESSED_FLAG:
                body = _inflated(body, sys_flag)
        if body is not None:
            if bodies and size + len(body) > _INFLATED_BATCH_SIZE:
                yield start, bodies
                bodies, start, size = [], row, 0
            size += len(body)
        bodies.append(body)
    if bodies:
        yield start, bodies


def _inflated(body: bytes, sys_flag: int) -> bytes | None:
    try:
        return decompress(body, sys_flag)
    except MessageDecodeError:
        return None


@lru_cache(maxsize=4096)
def _text(encoded: bytes | None) -> str | None:
    return None if encoded is None else str(encoded, "utf-8", "replace")


@lru_cache(maxsize=64)
def _kind_name(kind: int) -> str:
    try:
        return EntryKind(kind).name.lower()
    except ValueError:
        return str(kind)


_BUILDERS: Final[dict[str, Callable[[_Rows], Any]]] = {
    "replica": lambda rows: rows.same(rows.place.replica),
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
    "topic": lambda rows: [_text(topic) for topic in rows.records.topics],
    "queue_id": lambda rows: rows.records.queue_ids,
    "queue_offset": lambda rows: rows.records.queue_offsets,
    "phy_offset": lambda rows: rows.records.phy_offsets,
    "msg_id": _msg_id,
    "uniq_key": lambda rows: rows.of_properties(const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
    "keys": lambda rows: rows.of_properties(const.KEYS),
    "tags": lambda rows: rows.of_properties(const.TAGS),
    "properties": _properties,
    "born_timestamp": lambda rows: _timestamps(rows.records.born_timestamps),
    "born_host": lambda rows: [_host(host) for host in rows.records.born_hosts],
    "store_timestamp": lambda rows: _timestamps(rows.records.store_timestamps),
    "store_host": lambda rows: [_host(host) for host in rows.records.store_hosts],
    "sys_flag": lambda rows: rows.records.sys_flags,
    "flag": lambda rows: rows.records.flags,
    "reconsume_times": lambda rows: rows.records.reconsume_times,
    "prepared_transaction_offset": lambda rows: rows.records.prepared_transaction_offsets,
    "message_size": lambda rows: rows.records.sizes,
    "message_body_crc": lambda rows: rows.records.body_crcs,
    "body_size": lambda rows: rows.records.body_lengths,
}


def _host(packed: bytes | None) -> str | None:
    return None if packed is None else unpack_host(packed)
