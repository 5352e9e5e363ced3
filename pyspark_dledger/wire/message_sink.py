"""`df.write` and `df.writeStream` of format `dledger`: rows become messages, at least once.

Each task sends its rows and ends when all are acknowledged. A task or batch that is repeated sends them again, with the
same ids if the plan is deterministic (docs/adr/0018 says how once is to be had).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from message.names import group_fault, topic_fault
from pyspark_dledger.option_values import OptionError, number
from pyspark_dledger.wire.common_options import ACCESS_OPTIONS, POLL_TIMEOUT_MS, cluster_access, known_options
from pyspark_dledger.wire.message_sender import MessageSender, SendOptions, SinkMessage
from pyspark_dledger.wire.row_messages import TaskId, check_sink_columns, row_messages

SINK_OPTIONS: Final = (*ACCESS_OPTIONS, "topic", "producerGroup", "sendTimeoutMs")
# Not Spark's: options of the query itself, which come along.
_OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname"})
_PRODUCER_GROUP: Final = "pyspark_dledger"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    send: SendOptions
    topic: str  # empty: the column has it


def sink_options(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Raises OptionError."""
    own = {name: value for name, value in options.items() if name.lower() not in _OF_SPARK}
    given = known_options(own, SINK_OPTIONS, (), is_stream=False)
    topic = given.get("topic", "")
    if "topic" in given and (fault := topic_fault(topic)):
        raise OptionError(f"option topic={topic!r}: {fault}")
    group = given.get("producerGroup", _PRODUCER_GROUP)
    if fault := group_fault(group):
        raise OptionError(f"option producerGroup={group!r}: {fault}")
    check_sink_columns({field.name: field.dataType.simpleString() for field in schema.fields}, topic)
    timeout_ms = number(given, "sendTimeoutMs", at_least=1) or POLL_TIMEOUT_MS
    return SinkOptions(SendOptions(cluster_access(given), group, timeout_ms), topic)


@dataclass
class SentRows(WriterCommitMessage):
    count: int


class MessageWriter(DataSourceArrowWriter):
    """Of a batch."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self._job = uuid4().hex  # the same in all tasks of the job, which have this object

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        return _sent(self.options, TaskId(self._job, _task().partitionId()), iterator)


class MessageStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        task = _task()
        query, batch = (task.getLocalProperty(f) for f in ("sql.streaming.queryId", "streaming.sql.batchId"))
        return _sent(self.options, TaskId(f"{query}/{batch}", task.partitionId()), iterator)


def _sent(options: SinkOptions, task: TaskId, batches: Iterator[pa.RecordBatch]) -> SentRows:
    """Raises RowError, ReadTimeoutError, SendRefusedError."""

    def messages() -> Iterator[SinkMessage]:
        first = 0
        for batch in batches:
            yield from row_messages(batch, options.topic, task, first)
            first += batch.num_rows

    with closing(MessageSender(options.send)) as sender:
        return SentRows(sender.send(messages()))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark writes in tasks"
    return task
