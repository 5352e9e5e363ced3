"""Rows that Spark hands to the sink, as messages: checked, and with an id that a repetition of the task gives again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import mmh3
import pyarrow as pa

from message import const
from message.errors import MessageEncodeError
from message.names import topic_fault
from message.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, encode_properties
from pyspark_dledger.option_values import OptionError
from pyspark_dledger.wire.message_sender import SinkMessage
from pyspark_dledger.wire.read_errors import RowError

# Column, the types that it may have, what it means.
SINK_COLUMNS: Final = {
    "body": (("binary", "string"), "needed, and not empty; a string as UTF-8"),
    "topic": (("string",), "needed unless option `topic` is given, which comes before it"),
    "tags": (("string",), ""),
    "keys": (("string",), "blank separated"),
    "sharding_key": (("string",), "rows with one key go to one queue, in the order of their task"),
    "properties": (("map<string,string>",), "names that the protocol keeps for itself are refused"),
}
_OF_COLUMNS: Final = {"tags": const.TAGS, "keys": const.KEYS, "sharding_key": const.SHARDING_KEY}
_RESERVED: Final = frozenset(
    {
        *_OF_COLUMNS.values(),
        const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
        const.WAIT_STORE_MSG_OK,
        const.DELAY_TIME_LEVEL,
        const.TRANSACTION_PREPARED,
    }
)


@dataclass(frozen=True, slots=True)
class TaskId:
    """Which rows these are. A repeated task has the same rows under the same id, if the plan is deterministic."""

    job: str  # of a stream its query and batch
    partition: int

    def uniq_key(self, number: int) -> str:
        """Of the row with this number in the partition. In the form of clients' ids, whose ms since the month began are
        0 here: tools that look for an id begin at that time.
        """
        digest = mmh3.mmh3_x64_128_digest(f"{self.job}/{self.partition}/{number}".encode())
        return (digest[:10] + bytes(4) + digest[10:12]).hex().upper()


def check_sink_columns(columns: dict[str, str], topic: str) -> None:
    """`columns`: names with their types as Spark SQL writes them. Raises OptionError."""
    known = ", ".join(SINK_COLUMNS)
    for name, sql_type in columns.items():
        if name not in SINK_COLUMNS:
            raise OptionError(f"column {name} is none of the sink's: it takes {known}")
        types = SINK_COLUMNS[name][0]
        if sql_type not in types:
            raise OptionError(
                f"column {name} is {sql_type}, and the sink takes {' or '.join(types)}: cast it"
            )
    if "body" not in columns:
        raise OptionError(f"there is no column body: the sink takes {known}")
    if not topic and "topic" not in columns:
        raise OptionError("which topic? Give option topic, or a column of this name")


def row_messages(batch: pa.RecordBatch, topic: str, task: TaskId, first_number: int) -> Iterator[SinkMessage]:
    """`first_number`: of the batch's first row in its partition. Raises RowError."""
    values: dict[str, Sequence[Any]] = {
        name: batch.column(number).to_pylist() for number, name in enumerate(batch.schema.names)
    }
    for row in range(batch.num_rows):
        number = first_number + row
        try:
            yield _message({name: column[row] for name, column in values.items()}, topic, task, number)
        except (MessageEncodeError, ValueError) as error:
            raise RowError(f"row {number} of partition {task.partition} is no message: {error}") from None


def _message(row: dict[str, Any], topic: str, task: TaskId, number: int) -> SinkMessage:
    """Raises ValueError, MessageEncodeError."""
    body = row["body"]
    if isinstance(body, str):
        body = body.encode()
    if not body:
        raise ValueError("its body is null or empty")
    to = topic or row["topic"]
    if fault := "its topic is null" if to is None else topic_fault(to):
        raise ValueError(fault)
    properties = {const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX: task.uniq_key(number), const.WAIT_STORE_MSG_OK: "true"}
    properties |= {name: row[column] for column, name in _OF_COLUMNS.items() if row.get(column)}
    for name, value in row.get("properties") or ():
        if name in _RESERVED:
            raise ValueError(f"property {name} is the protocol's own: use a column, or another name")
        if value:
            properties[name] = value
    for name, value in properties.items():
        if any(sign in text for sign in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR) for text in (name, value)):
            raise ValueError(f"property {name!r} holds a sign that separates properties")
    return SinkMessage(to, row.get("sharding_key") or "", encode_properties(properties).decode(), bytes(body))
