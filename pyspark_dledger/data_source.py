"""The format `dledger`, and `spark.read.format("dledger").load(directories)`: one row per log entry of every replica.

Columns are schema.py's; options are in docs/pipeline.md. Each partition is some ranges of data files, which a worker
reads alone, so the replicas' paths must mean the same on all workers. Nothing is judged across partitions but the link
of an entry to the one before it, for which a worker looks a little behind its range: rows are the same for any number
of partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from pyspark_dledger.entry_columns import Selection
from pyspark_dledger.entry_rows import unit_batches
from pyspark_dledger.index_bounds import units_between
from pyspark_dledger.option_values import OptionError, choice, listed, number
from pyspark_dledger.schema import (
    BODY,
    COLUMN_NAMES,
    WIRE_ENTRY_COLUMN_NAMES,
    check_names,
    ddl,
)
from pyspark_dledger.wire.common_options import view_of
from pyspark_dledger.wire.entry_options import entry_options
from pyspark_dledger.wire.entry_source import EntryReader as WireEntryReader
from pyspark_dledger.wire.entry_source import EntryStreamReader
from pyspark_dledger.wire.message_options import message_ddl, message_options
from pyspark_dledger.wire.message_sink import MessageStreamWriter, MessageWriter, sink_options
from pyspark_dledger.wire.message_source import MessageReader, MessageStreamReader
from verify.log.data_file import Layout
from verify.replica import open_replicas
from verify.work import UNIT_SIZE_MAX, DataRange, plan

FORMAT_NAME: Final = "dledger"
_OPTIONS: Final = frozenset(
    {
        "path",
        "paths",
        "view",
        "columns",
        "body",
        "topic",
        "index_from",
        "index_to",
        "until",
        "partitions",
        "pushdown",
    }
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    directories: tuple[str, ...]
    selection: Selection
    partitions: int | None = None  # about so many; None: of UNIT_SIZE_MAX bytes each
    pushdown: bool = False
    until_committed: bool = False


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Of the options as Spark hands them over. Raises OptionError and SchemaError."""
    given = {name.lower(): value for name, value in options.items()}
    if unknown := sorted(given.keys() - _OPTIONS):
        raise OptionError(f"unknown option {unknown[0]!r}: there are {', '.join(sorted(_OPTIONS))}")
    if choice(given, "view", ("entries", "messages")) == "messages":
        raise OptionError("view messages is read from a cluster: say namesrv=host:port; files have entries")
    body = choice(given, "body", ("none", "stored", "inflated"))
    columns = COLUMN_NAMES
    if "columns" in given:
        columns = check_names(listed(given["columns"]))
    if body != "none" and BODY.name not in columns:
        columns = (*columns, BODY.name)
    directories = (
        json.loads(given["paths"]) if "paths" in given else [given["path"]] if "path" in given else []
    )
    if not directories:
        raise OptionError("no directory is given: load() takes store directories, one per replica")
    return ReadOptions(
        tuple(directories),
        Selection(
            columns,
            topic=given.get("topic"),
            index_from=number(given, "index_from", at_least=0),
            index_to=number(given, "index_to", at_least=0),
            inflate=body == "inflated",
        ),
        number(given, "partitions", at_least=1),
        choice(given, "pushdown", ("false", "true")) == "true",
        choice(given, "until", ("end", "committed")) == "committed",
    )


class DledgerDataSource(DataSource):
    """What Spark calls. Entries of files are EntryReader's work; what has `namesrv` is that of wire/."""

    @classmethod
    def name(cls) -> str:
        return FORMAT_NAME

    def schema(self) -> str:
        if "namesrv" in self.options:
            if view_of(self.options) == "messages":
                return message_ddl(self.options)
            named = self.options.get("columns")
            return ddl(
                WIRE_ENTRY_COLUMN_NAMES
                if named is None
                else check_names(listed(named), WIRE_ENTRY_COLUMN_NAMES)
            )
        return ddl(read_options(self.options).selection.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        # Whoever gave a schema of their own named the columns by it.
        if "namesrv" in self.options:
            return _wire_reader(self.options, schema)
        options = read_options(self.options)
        selection = replace(options.selection, columns=check_names(schema.fieldNames()))
        options = replace(options, selection=selection)
        return PushdownReader(options) if options.pushdown else EntryReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        if "namesrv" not in self.options:
            raise OptionError("a stream is read from a cluster: say namesrv=host:port, and which topics")
        names = schema.fieldNames()
        if view_of(self.options) == "messages":
            return MessageStreamReader(
                message_options(self.options, names, _body_type(schema), is_stream=True)
            )
        return EntryStreamReader(entry_options(self.options, names, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError("mode overwrite: messages of a topic cannot be replaced, say mode('append')")
        return MessageWriter(sink_options(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        return MessageStreamWriter(sink_options(self.options, schema))


def _wire_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    names = schema.fieldNames()
    if view_of(options) == "messages":
        return MessageReader(message_options(options, names, _body_type(schema), is_stream=False))
    return WireEntryReader(entry_options(options, names, is_stream=False))


def _body_type(schema: StructType) -> pa.DataType | None:
    if BODY.name not in schema.fieldNames():
        return None
    return to_arrow_type(schema[BODY.name].dataType, timezone="UTC")


class EntryReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Raises ReplicaError when a directory holds no replica."""
        options = self.options
        selection = options.selection
        replicas = open_replicas(options.directories)
        units = plan(replicas, unit_count=options.partitions)
        units = units_between(units, selection.index_from, selection.index_to)
        total = sum(unit.end - unit.start for unit in units)
        size = UNIT_SIZE_MAX if options.partitions is None else -(-total // options.partitions)
        return [InputPartition(group) for group in _grouped(units, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for unit in partition.value or ():
            selection = self.options.selection
            if self.options.until_committed and unit.replica.layout is Layout.DLEDGER:
                selection = up_to_index(selection, unit.replica.known_committed_index)
            yield from unit_batches(unit, selection)


class PushdownReader(EntryReader):
    """Takes comparisons of index and topic with a constant off Spark's hands.

    A class of its own, because Spark refuses any reader that knows pushFilters unless
    spark.sql.python.filterPushdown.enabled is true, which a data source cannot ask.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        for condition in filters:
            narrowed = _narrowed(self.options.selection, condition)
            if narrowed is not None:
                self.options = replace(self.options, selection=narrowed)
            # Entries that cannot be read come with any topic's; they are for Spark to leave out.
            if narrowed is None or condition.attribute == ("topic",):  # type: ignore[attr-defined]
                yield condition


def _narrowed(selection: Selection, condition: Filter) -> Selection | None:
    """The selection with one more condition; None where it cannot say this one."""
    if not isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    value = condition.value
    match condition.attribute, value:
        case ("topic",), str() if isinstance(condition, EqualTo) and selection.topic in (None, value):
            return replace(selection, topic=value)
        case ("index",), int():
            return _index_narrowed(selection, condition, value)
    return None


def up_to_index(selection: Selection, last_index: int) -> Selection:
    index_to = selection.index_to
    return replace(selection, index_to=last_index if index_to is None else min(index_to, last_index))


def _index_narrowed(selection: Selection, condition: Filter, value: int) -> Selection:
    lowest = highest = None
    match condition:
        case EqualTo():
            lowest = highest = value
        case GreaterThanOrEqual():
            lowest = value
        case GreaterThan():
            lowest = value + 1
        case LessThanOrEqual():
            highest = value
        case LessThan():
            highest = value - 1
    froms = [bound for bound in (selection.index_from, lowest) if bound is not None]
    tos = [bound for bound in (selection.index_to, highest) if bound is not None]
    return replace(selection, index_from=max(froms, default=None), index_to=min(tos, default=None))


def _grouped(units: Sequence[DataRange], size: int) -> list[tuple[DataRange, ...]]:
    """Ranges one behind the other, of about `size` bytes together: small files do not make a task each."""
    groups: list[list[DataRange]] = []
    held = 0
    for unit in units:
        unit_size = unit.end - unit.start
        if not groups or held + unit_size > size:
            groups.append([])
            held = 0
        groups[-1].append(unit)
        held += unit_size
    return [tuple(group) for group in groups]
