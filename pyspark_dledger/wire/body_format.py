"""Bodies as the column `body`: bytes, text, or values by a schema. Pure.

A body is of its format as a whole or not at all: one that is not is kept in the column `_corrupt`, and `body` is null.
"""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Final, Required, TypedDict

import msgspec
import pyarrow as pa

from pyspark_dledger.arrow_batches import BATCH_BODIES_SIZE
from pyspark_dledger.option_values import OptionError, choice
from pyspark_dledger.schema import CORRUPT, MESSAGE_COLUMN_NAMES

_FORMATS: Final = ("bytes", "utf8", "json")
_ARROW_TYPES: Final = {"bytes": pa.binary(), "utf8": pa.string()}
# What the decoders and Arrow raise: no JSON, other types, a number for which the type has no room, a nesting too deep.
_BAD: Final = (ValueError, ArithmeticError, RecursionError, pa.ArrowException)
# As Python's values JSON may take 50 times its bytes, before Arrow has it.
_JSON_AT_ONCE_SIZE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BodyFormat:
    name: str = "bytes"
    type: pa.DataType = field(default_factory=pa.binary)  # of the column

    def columns(self, bodies: Sequence[bytes | None]) -> tuple[pa.Array, pa.Array]:
        """`body` and `_corrupt`, of which one at most is not null in a row."""
        if self.name == "bytes":
            return pa.array(bodies, self.type), pa.nulls(len(bodies), pa.binary())
        parse = _parser(self)
        values: list[Any] = []
        corrupt: list[bytes | None] = []
        for body in bodies:
            try:
                values.append(None if body is None else parse(body))
                corrupt.append(None)
            except _BAD:
                values.append(None)
                corrupt.append(body)
        try:
            column = pa.array(values, self.type)
        except _BAD:
            for number, body in enumerate(bodies):
                if values[number] is not None and body is not None and self.fault(body):
                    values[number], corrupt[number] = None, body
            column = pa.array(values, self.type)
        return column, pa.array(corrupt, pa.binary())

    @property
    def at_once_size(self) -> int:
        """Bytes of bodies that `columns` has room for. More than one body it need not be given at once."""
        return _JSON_AT_ONCE_SIZE if self.name == "json" else BATCH_BODIES_SIZE

    def fault(self, body: bytes) -> str:
        """Why it is not of the format; empty if it is."""
        try:
            pa.array([_parser(self)(body)], self.type)
        except _BAD as error:
            return str(error)
        return ""


def format_name(given: Mapping[str, str]) -> str:
    """`given`: options by their own names. Raises OptionError where they cannot go together."""
    name = choice(given, "bodyFormat", _FORMATS)
    if name != "bytes" and choice(given, "body", ("inflated", "stored")) == "stored":
        raise OptionError(f"option body=stored gives bytes as they lie: leave it out with bodyFormat={name}")
    if name != "json" and "bodySchema" in given:
        raise OptionError("option bodySchema says what bodyFormat=json reads: say that as well")
    return name


def body_sql_type(given: Mapping[str, str]) -> str:
    """Of the column `body`, as Spark SQL writes it. Raises OptionError."""
    name = format_name(given)
    if name == "json":
        columns = given.get("bodySchema", "").strip()
        if not columns:
            raise OptionError("bodyFormat=json needs bodySchema, such as `id BIGINT NOT NULL, name STRING`")
        # Where Spark cannot read it, its error shows this text.
        return f"STRUCT</* option bodySchema */ {columns}>"
    return {"bytes": "binary", "utf8": "string"}[name]


def body_format(given: Mapping[str, str], body_type: pa.DataType | None) -> BodyFormat:
    """`body_type`: of the column that is asked for; None where it is not. Raises OptionError."""
    name = format_name(given)
    if body_type is None:
        return BodyFormat(name, _ARROW_TYPES.get(name, pa.null()))
    is_meant = pa.types.is_struct(body_type) if name == "json" else body_type == _ARROW_TYPES[name]
    if not is_meant:
        raise OptionError(f"bodyFormat={name} makes no column body of {body_type}, which the schema asks for")
    made = BodyFormat(name, body_type)
    if name == "json":
        _parser(made)
    return made


def known_columns(name: str) -> tuple[str, ...]:
    """Of messages whose bodies have this format."""
    return MESSAGE_COLUMN_NAMES if name == "bytes" else (*MESSAGE_COLUMN_NAMES, CORRUPT.name)


def _parser(body_format: BodyFormat) -> Callable[[bytes], Any]:
    return bytes.decode if body_format.name == "utf8" else _json_decoder(body_format.type).decode


@lru_cache(maxsize=8)
def _json_decoder(body_type: pa.DataType) -> msgspec.json.Decoder[Any]:
    """Raises OptionError."""
    return msgspec.json.Decoder(_json_type(body_type), dec_hook=_read_as, float_hook=Decimal)


def _json_type(wanted: pa.DataType) -> Any:
    """What msgspec is to find. Names that the schema does not have are passed over; what it has may be missing or null
    unless it says NOT NULL. Raises OptionError.
    """
    of, types = pa.types, _JSON_TYPES
    if of.is_struct(wanted) and not any(_MARKS.intersection(field.metadata or ()) for field in wanted):
        _check_names_differ([field.name for field in wanted])
        named = {
            _found_by_msgspec(field.name): _or_null(field)
            if field.nullable
            else Required[_json_type(field.type)]
            for field in wanted
        }
        return TypedDict("Body", named, total=False)  # type: ignore[operator]
    if of.is_list(wanted):
        return list[_or_null(wanted.value_field)]  # type: ignore[misc]
    if of.is_map(wanted) and of.is_string(wanted.key_type):
        return dict[str, _or_null(wanted.item_field)]  # type: ignore[misc]
    if of.is_integer(wanted):
        return int
    if of.is_float32(wanted):
        return Annotated[float, msgspec.Meta(gt=-_FLOAT_LIMIT, lt=_FLOAT_LIMIT)]
    if of.is_float64(wanted):
        return float
    if of.is_decimal(wanted):
        return _Number
    if of.is_timestamp(wanted):
        return _Instant if wanted.tz is not None else Annotated[datetime, msgspec.Meta(tz=False)]
    if wanted in types:
        return types[wanted]
    raise OptionError(f"bodySchema: JSON is not read as {wanted}")


def _check_names_differ(names: Sequence[str]) -> None:
    """Raises OptionError. In Spark's expressions names have no case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise OptionError(
                f"bodySchema has the name {name!r} twice, and Spark tells no case of letters apart"
            )
        seen.add(name.lower())


def _found_by_msgspec(name: str) -> str:
    """msgspec compares names in UTF-8, and never finds one whose str object was not encoded before."""
    msgspec.json.encode(name)
    return name


def _or_null(child: pa.Field) -> Any:
    found = _json_type(child.type)
    return found | None if child.nullable else found


class _Number(ABC):  # noqa: B024 (its class is registered)
    """A JSON number, or a string with one, as producers send what must not lose digits. Becomes a Decimal."""


class _Instant(ABC):  # noqa: B024 (its class is registered)
    """A string as RFC 3339 writes it, with its zone. Becomes a datetime in UTC, whose year is 1 to 9999 there too."""


_Number.register(Decimal)
_Instant.register(datetime)


def _read_as(wanted: type, value: Any) -> Any:
    """What msgspec calls for the two above. Raises ValueError, OverflowError."""
    if wanted is _Instant:
        return msgspec.convert(value, _WITH_ZONE).astimezone(UTC)
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        number = Decimal(value)
        # Arrow ends its process for some that are further off, where it should refuse them.
        if abs(number.adjusted()) > _EXPONENT_MAX:
            raise ValueError("Expected a number of 38 digits at most")
        return number
    raise ValueError("Expected a number")


_WITH_ZONE: Final = Annotated[datetime, msgspec.Meta(tz=True)]
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_EXPONENT_MAX: Final = 1000
_FLOAT_LIMIT: Final = 2.0**128 - 2.0**103  # from here on Arrow makes infinity of a FLOAT
# Metadata of a field by which Arrow's struct is one of Spark's own types. A column's comment is metadata, too.
_MARKS: Final = frozenset({b"variant", b"geometry", b"geography"})
_JSON_TYPES: Final = {
    pa.string(): str,
    pa.bool_(): bool,
    pa.binary(): bytes,  # as base64
    pa.date32(): date,
}
