"""What all tables have in common as Arrow: the types of columns, and how large a batch may become."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from pyspark_dledger.schema import BODY, SQL_TYPES

ARROW_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
# A message of a few KiB may inflate to 64 MiB; an Arrow column ends at 2 GiB, and a worker's memory before.
BATCH_BODIES_SIZE: Final = 64 * 1024 * 1024
INFLATED_AT_ONCE: Final = 64  # messages


def arrow_schema(columns: Sequence[str], body_type: pa.DataType | None = None) -> pa.Schema:
    """`body_type`: of the column `body`, where it is not bytes."""
    types = {BODY.name: body_type} if body_type is not None else {}
    return pa.schema([(name, types.get(name, ARROW_TYPES[SQL_TYPES[name]])) for name in columns])


def as_column(name: str, values: Any) -> pa.Array:
    """An array, or values of one, with the type that Spark is told of."""
    wanted = ARROW_TYPES[SQL_TYPES[name]]
    if not isinstance(values, pa.Array):
        return pa.array(values, wanted)
    return values if values.type == wanted else values.cast(wanted)


def pieces(bodies: Sequence[bytes | None], size_max: int) -> Iterator[tuple[int, Sequence[bytes | None]]]:
    """Consecutive bodies and the number of the first of them: one, or as many as have up to `size_max` bytes."""
    start, size = 0, 0
    for number, body in enumerate(bodies):
        length = len(body or b"")
        if number > start and size + length > size_max:
            yield start, bodies[start:number]
            start, size = number, 0
        size += length
    yield start, bodies[start:]
