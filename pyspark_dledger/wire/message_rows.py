"""The rows of a range of a queue: messages as consumers get them, inner batches one by one, as Arrow batches.

Without a filter a range has one message for each offset. That is counted, for a row that is missing here is never
missed elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from zlib_ng.zlib_ng import crc32

from message.decoder import MessageExt
from message.errors import MessageDecodeError
from message.message_id import pack_host
from message.properties import encode_properties
from message.received_messages import received_messages
from message.record_layout import QUEUE_OFFSET_AT, RECORD_SIZE_MIN
from message.sys_flag import COMPRESSED_FLAG, INNER_BATCH_FLAG
from message.tags import EXPRESSION_TYPE_TAG, build_subscription
from pyspark_dledger.arrow_batches import INFLATED_AT_ONCE, arrow_schema, as_column, pieces
from pyspark_dledger.message_columns import MessageColumns, Records, read
from pyspark_dledger.schema import BODY, BROKER, CORRUPT
from pyspark_dledger.wire.body_format import BodyFormat
from pyspark_dledger.wire.pull_options import PullOptions
from pyspark_dledger.wire.queue_range import Queue, QueueRange
from pyspark_dledger.wire.queue_reader import QueueReader
from pyspark_dledger.wire.read_errors import CorruptBodyError, MissingMessagesError

_BATCH_SIZE = 1024 * 1024  # bytes of records
_BODY_CRC_MASK = 0x7FFFFFFF  # the highest bit is not stored


@dataclass(frozen=True, slots=True)
class MessageSelection:
    columns: tuple[str, ...]
    inflate: bool  # bodies that were compressed by their clients
    body: BodyFormat = field(default_factory=BodyFormat)


def range_batches(
    part: QueueRange, options: PullOptions, selection: MessageSelection
) -> Iterator[pa.RecordBatch]:
    """The rows of the range, in their order. Raises ReadError, MessageDecodeError."""
    last, count = part.start - 1, 0
    inflates = selection.inflate and BODY.name in selection.columns
    with closing(QueueReader(options, part)) as reader:
        for buffer in _gathered(reader.records()):
            for records in _records(buffer, last + 1, part.end, inflates=inflates):
                offsets = records.fixed("queue_offset").to_numpy(zero_copy_only=False)
                if np.diff(offsets, prepend=last).min() <= 0:
                    raise MissingMessagesError(
                        f"{part.queue}: the broker gave offsets {offsets[0]} to {offsets[-1]} where those after {last} "
                        "were asked for, in their order"
                    )
                last, count = int(offsets[-1]), count + len(offsets)
                yield from _batches(records, part, options, selection)
        missing = part.end - part.start - count - sum(lost.end - lost.start for lost in reader.lost)
    if missing and options.wants_all:
        raise MissingMessagesError(
            f"{part.queue}: {missing} messages of the offsets {part.start} to {part.end - 1} did not come"
        )


def _gathered(pieces_of_log: Iterable[bytes]) -> Iterator[bytes]:
    """Whole records, about _BATCH_SIZE of them at a time."""
    held: list[bytes] = []
    size = 0
    for piece in pieces_of_log:
        held.append(piece)
        size += len(piece)
        if size >= _BATCH_SIZE:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _records(buffer: bytes, begin: int, end: int, *, inflates: bool) -> Iterator[Records]:
    """The messages from queue offset `begin` to below `end`, so many at a time that their bodies have room. Raises
    MessageDecodeError."""
    offsets, stop = _record_offsets(buffer, end)
    if not offsets:
        return
    buffer = buffer[:stop]
    records = read(buffer, offsets, shift=0, topic=None)
    if records.faulty_rows:
        raise MessageDecodeError(
            f"record {records.faulty_rows[0]} of {len(offsets)} in an answer cannot be read"
        )
    flags = int(np.bitwise_or.reduce(records.fixed("sys_flag").to_numpy(zero_copy_only=False)))
    if flags & INNER_BATCH_FLAG:
        bounds = [*offsets[::INFLATED_AT_ONCE], len(buffer)]
        for start, stop in pairwise(bounds):
            messages = received_messages(buffer[start:stop], begin)
            if inside := [message for message in messages if message.queue_offset < end]:
                yield _MessageRecords(inside)
    elif inflates and flags & COMPRESSED_FLAG:
        for first in range(0, len(offsets), INFLATED_AT_ONCE):
            yield read(buffer, offsets[first : first + INFLATED_AT_ONCE], shift=0, topic=None)
    else:
        yield records


def _record_offsets(buffer: bytes, end: int) -> tuple[list[int], int]:
    """Where each record begins, and where the first one lies that is another task's: brokers look on behind `end` for
    what a filter wants. Raises MessageDecodeError.
    """
    offsets: list[int] = []
    at, stop = 0, len(buffer)
    while at < stop:
        size = int.from_bytes(buffer[at : at + 4])
        if size < RECORD_SIZE_MIN:
            raise MessageDecodeError(f"record of {size} bytes in an answer")
        if int.from_bytes(buffer[at + QUEUE_OFFSET_AT : at + QUEUE_OFFSET_AT + 8]) >= end:
            return offsets, at
        offsets.append(at)
        at += size
    if at != stop:
        raise MessageDecodeError(f"the last record of an answer lacks {at - stop} bytes")
    return offsets, stop


def _batches(
    records: Records, part: QueueRange, options: PullOptions, selection: MessageSelection
) -> Iterator[pa.RecordBatch]:
    columns = MessageColumns(records)
    arrays = {
        name: as_column(name, columns.column(name))
        for name in selection.columns
        if name not in (BODY.name, BROKER.name, CORRUPT.name)
    }
    count = len(records.numbers)
    if BROKER.name in selection.columns:
        arrays[BROKER.name] = pa.repeat(pa.scalar(part.queue.broker, pa.string()), count)
    wanted = _wanted(columns, options)
    schema = arrow_schema(selection.columns, selection.body.type)
    if BODY.name not in selection.columns:
        whole = pa.RecordBatch.from_arrays([arrays[name] for name in selection.columns], schema=schema)
        yield whole if wanted is None else whole.filter(wanted)
        return
    all_bodies = _bodies(columns, inflate=selection.inflate)
    for start, bodies in pieces(all_bodies, selection.body.at_once_size):
        piece = {name: array.slice(start, len(bodies)) for name, array in arrays.items()}
        piece[BODY.name], piece[CORRUPT.name] = selection.body.columns(bodies)
        chosen = None if wanted is None else wanted.slice(start, len(bodies))
        if CORRUPT.name not in selection.columns:
            offsets = columns.column("queue_offset").slice(start, len(bodies))
            found = pa.table([piece[CORRUPT.name], offsets], ["body", "offset"])
            _check_none_corrupt(found if chosen is None else found.filter(chosen), part.queue, selection.body)
        batch = pa.RecordBatch.from_arrays([piece[name] for name in selection.columns], schema=schema)
        yield batch if chosen is None else batch.filter(chosen)


def _check_none_corrupt(found: pa.Table, queue: Queue, body_format: BodyFormat) -> None:
    """`found`: bodies that are not of the format, else null, with their offsets. Raises CorruptBodyError."""
    bad = found.drop_null()
    if bad.num_rows:
        body, offset = (column[0].as_py() for column in bad.columns)
        raise CorruptBodyError(
            f"{queue}: the body at offset {offset} is not as bodyFormat={body_format.name} reads it: "
            f"{body_format.fault(body)}. With `{CORRUPT.name}` among the columns such bodies are kept there"
        )


def _wanted(columns: MessageColumns, options: PullOptions) -> pa.Array | None:
    """Which rows have one of the tags asked for; None: all. Brokers compare hashes of tags; two tags may share one."""
    if options.expression_type != EXPRESSION_TYPE_TAG:
        return None
    tags = build_subscription("", options.expression).tags_set
    return pc.is_in(columns.column("tags"), pa.array(sorted(tags), pa.string())) if tags else None


def _bodies(columns: MessageColumns, *, inflate: bool) -> list[bytes | None]:
    """A body whose compression cannot be undone stays as it is stored, as for consumers. Raises MessageDecodeError."""
    stored = columns.bodies(inflate=False)
    crcs = columns.column("message_body_crc").to_pylist()
    for number, (body, stored_crc) in enumerate(zip(stored, crcs, strict=True)):
        if body is not None and stored_crc is not None and crc32(body) & _BODY_CRC_MASK != stored_crc:
            offset = columns.column("queue_offset")[number].as_py()
            raise MessageDecodeError(
                f"the body of the message at queue offset {offset} does not match its CRC"
            )
    if not inflate:
        return stored
    inflated = columns.bodies(inflate=True)
    return [first if second is None else second for first, second in zip(stored, inflated, strict=True)]


class _MessageRecords:
    """Fulfils message_columns.Records by values: messages of inner batches have no record of their own."""

    faulty_rows: Sequence[int] = ()

    def __init__(self, messages: Sequence[MessageExt]) -> None:
        self.numbers: Sequence[int] = range(len(messages))
        self._messages = messages

    def fixed(self, name: str) -> pa.Array:
        values: list[int | None]
        match name:
            case "size":
                values = [message.store_size for message in self._messages]
            case "body_length":
                values = [len(message.body) for message in self._messages]
            case "body_crc":
                values = [None] * len(
                    self._messages
                )  # that of the batch, which was looked at when it was read
            case _:
                values = [getattr(message, name) for message in self._messages]
        return pa.array(values, pa.int64())

    def packed_hosts(self, name: str) -> list[bytes | None]:
        return [pack_host(getattr(message, name)) for message in self._messages]

    def topics(self) -> list[bytes | None]:
        return [message.topic.encode() for message in self._messages]

    def properties(self) -> list[bytes | None]:
        return [encode_properties(message.properties) for message in self._messages]

    def bodies(self) -> list[bytes | None]:
        return [message.body for message in self._messages]

    def msg_ids(self) -> pa.Array:
        return pa.array([message.msg_id for message in self._messages], pa.string())
