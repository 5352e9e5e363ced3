"""Columns of the messages in entries, as Arrow arrays.

Records of the usual form are read as arrays, others one by one; both say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from message import const
from message.compression import decompress
from message.errors import MessageDecodeError
from message.message_id import offset_message_id, unpack_host
from message.record_arrays import RecordArrays, read_arrays
from message.record_columns import HEAD_COLUMNS, RecordColumns, read_records
from message.sys_flag import COMPRESSED_FLAG
from pyspark_dledger.property_columns import PropertyColumns, texts

_MS_MIN: Final = -62_135_596_800_000  # 0001-01-01, where Spark's and Python's calendars begin
_MS_MAX: Final = 253_402_300_799_999  # 9999-12-31
_HEX: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint8).reshape(256, 2)
# store_host and physicalOffset, in a record of the usual form
_STORE_HOST: Final = slice(64, 72)
_PHY_OFFSET: Final = slice(28, 36)


class Records(Protocol):
    """Records of some entries of a run, one row each. `numbers`: which of the entries given."""

    numbers: Sequence[int]
    faulty_rows: Sequence[int]  # their values are all null

    def fixed(self, name: str) -> pa.Array:
        """Of a field of the record's head with a fixed size, hosts apart."""
        ...

    def packed_hosts(self, name: str) -> list[bytes | None]: ...

    def topics(self) -> list[bytes | None]: ...

    def properties(self) -> list[bytes | None]: ...

    def bodies(self) -> list[bytes | None]: ...

    def msg_ids(self) -> pa.Array: ...


def read(buffer: bytes, offsets: Sequence[int], *, shift: int, topic: str | None) -> Records:
    """Only records of `topic`, if one is given, and those that cannot be read."""
    wanted = None if topic is None else topic.encode()
    arrays = read_arrays(buffer, offsets, shift=shift)
    if arrays is not None:
        return _UsualRecords(buffer, arrays, wanted)
    return _AnyRecords(buffer, read_records(buffer, offsets, shift=shift, topic=wanted))


class _UsualRecords:
    def __init__(self, buffer: bytes, arrays: RecordArrays, topic: bytes | None) -> None:
        self.numbers: Sequence[int] = range(len(arrays))
        self.faulty_rows: Sequence[int] = ()
        if topic is not None:
            numbers = arrays.of_topic(buffer, topic)
            self.numbers = numbers.tolist()
            arrays = arrays.rows(numbers)
        self._buffer = buffer
        self._arrays = arrays

    def fixed(self, name: str) -> pa.Array:
        field = self._arrays.heads[name]
        return pa.array(field.astype(field.dtype.newbyteorder("=")))

    def packed_hosts(self, name: str) -> list[bytes | None]:
        hosts: list[bytes | None] = self._arrays.heads[name].tolist()
        return hosts

    def topics(self) -> list[bytes | None]:
        return [*self._arrays.topics(self._buffer)]

    def properties(self) -> list[bytes | None]:
        return [*self._arrays.properties(self._buffer)]

    def bodies(self) -> list[bytes | None]:
        return [*self._arrays.bodies(self._buffer)]

    def msg_ids(self) -> pa.Array:
        heads = self._arrays.head_bytes
        text = _HEX[np.hstack((heads[:, _STORE_HOST], heads[:, _PHY_OFFSET]))]
        offsets = np.arange(0, text.size + 1, 32, dtype=np.int32)
        return pa.StringArray.from_buffers(len(heads), pa.py_buffer(offsets), pa.py_buffer(text.tobytes()))


class _AnyRecords:
    def __init__(self, buffer: bytes, columns: RecordColumns) -> None:
        self.numbers: Sequence[int] = columns.numbers
        self.faulty_rows: Sequence[int] = list(columns.faults)
        self._buffer = buffer
        self._columns = columns

    def fixed(self, name: str) -> pa.Array:
        return pa.array(getattr(self._columns, HEAD_COLUMNS[name]), pa.int64())

    def packed_hosts(self, name: str) -> list[bytes | None]:
        hosts: list[bytes | None] = getattr(self._columns, HEAD_COLUMNS[name])
        return hosts

    def topics(self) -> list[bytes | None]:
        return self._columns.topics

    def properties(self) -> list[bytes | None]:
        return self._columns.properties

    def bodies(self) -> list[bytes | None]:
        return [
            None if start is None or length is None else self._buffer[start : start + length]
            for start, length in zip(self._columns.body_starts, self._columns.body_lengths, strict=True)
        ]

    def msg_ids(self) -> pa.Array:
        ids = [
            None if host is None or phy_offset is None else offset_message_id(host, phy_offset)
            for host, phy_offset in zip(self._columns.store_hosts, self._columns.phy_offsets, strict=True)
        ]
        return pa.array(ids, pa.string())


class MessageColumns:
    """What several columns need is made once."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._properties: PropertyColumns | None = None

    @property
    def faulty_rows(self) -> Sequence[int]:
        return self._records.faulty_rows

    def column(self, name: str) -> pa.Array:
        """Any column of a message but `body`."""
        return _BUILDERS[name](self)

    def bodies(self, *, inflate: bool) -> list[bytes | None]:
        """As they are stored, or inflated where a client compressed them: None for one that cannot be."""
        bodies = self._records.bodies()
        if not inflate:
            return bodies
        flags = self._records.fixed("sys_flag").to_pylist()
        return [
            _inflated(body, flag) if body is not None and flag & COMPRESSED_FLAG else body
            for body, flag in zip(bodies, flags, strict=True)
        ]

    def fixed(self, name: str) -> pa.Array:
        return self._records.fixed(name)

    def hosts(self, name: str) -> pa.Array:
        packed = pa.array(self._records.packed_hosts(name), pa.binary()).dictionary_encode()
        # There are few hosts and many messages.
        known = pa.array([unpack_host(host) for host in packed.dictionary.to_pylist()], pa.string())
        return pc.take(known, packed.indices)

    def topics(self) -> pa.Array:
        return texts(self._records.topics())

    def msg_ids(self) -> pa.Array:
        return self._records.msg_ids()

    def properties(self) -> PropertyColumns:
        if self._properties is None:
            self._properties = PropertyColumns(self._records.properties())
        return self._properties

    def timestamps(self, name: str) -> pa.Array:
        milliseconds = self._records.fixed(name)
        bounds = pc.min_max(milliseconds).as_py()
        if bounds["min"] is not None and not _MS_MIN <= bounds["min"] <= bounds["max"] <= _MS_MAX:
            # Whatever a client says is stored, and there are numbers that no calendar has.
            inside = pc.and_(pc.greater_equal(milliseconds, _MS_MIN), pc.less_equal(milliseconds, _MS_MAX))
            milliseconds = pc.if_else(inside, milliseconds, pa.scalar(None, pa.int64()))
        return pc.multiply(milliseconds, 1000).view(pa.timestamp("us", "UTC"))


def _inflated(body: bytes, sys_flag: int) -> bytes | None:
    try:
        return decompress(body, sys_flag)
    except MessageDecodeError:
        return None


def _fixed(name: str) -> Callable[[MessageColumns], Any]:
    return lambda columns: columns.fixed(name)


def _property(name: str) -> Callable[[MessageColumns], Any]:
    return lambda columns: columns.properties().values_of(name)


_BUILDERS: Final[dict[str, Callable[[MessageColumns], Any]]] = {
    "topic": MessageColumns.topics,
    "queue_id": _fixed("queue_id"),
    "queue_offset": _fixed("queue_offset"),
    "phy_offset": _fixed("phy_offset"),
    "msg_id": MessageColumns.msg_ids,
    "uniq_key": _property(const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
    "keys": _property(const.KEYS),
    "tags": _property(const.TAGS),
    "properties": lambda columns: columns.properties().maps(),
    "born_timestamp": lambda columns: columns.timestamps("born_timestamp"),
    "born_host": lambda columns: columns.hosts("born_host"),
    "store_timestamp": lambda columns: columns.timestamps("store_timestamp"),
    "store_host": lambda columns: columns.hosts("store_host"),
    "sys_flag": _fixed("sys_flag"),
    "flag": _fixed("flag"),
    "reconsume_times": _fixed("reconsume_times"),
    "prepared_transaction_offset": _fixed("prepared_transaction_offset"),
    "message_size": _fixed("size"),
    "message_body_crc": _fixed("body_crc"),
    "body_size": _fixed("body_length"),
}
