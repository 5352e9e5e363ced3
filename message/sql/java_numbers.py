"""Numbers as Java reads and compares them: Integer, Long, Double."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum
from typing import Any

from message.sql.errors import EvaluationError, shown

_INTEGER = re.compile(r"[+-]?(?:(?![\U00010000-\U0010FFFF])\d)+")  # in any script, as in Java
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED = {sign + name: float(sign + name.lower()) for sign in ("", "+", "-") for name in ("NaN", "Infinity")}
_TRIMMED = "".join(map(chr, range(0x21)))  # by String.trim()
INTEGER_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class NumberType(Enum):
    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"


def read_integer(text: str) -> int:
    """As Integer.valueOf. Raises EvaluationError."""
    return _read_whole(text, INTEGER_MAX, NumberType.INTEGER)


def read_long(text: str) -> int:
    """As Long.valueOf. Raises EvaluationError."""
    return _read_whole(text, LONG_MAX, NumberType.LONG)


def read_double(text: str) -> float:
    """As Double.valueOf. Raises EvaluationError."""
    trimmed = text.strip(_TRIMMED)
    if (decimal := _DECIMAL.fullmatch(trimmed)) is not None:
        return float(decimal[1])
    if (hexadecimal := _HEXADECIMAL.fullmatch(trimmed)) is not None:
        try:
            return float.fromhex(hexadecimal[1])
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    if trimmed in _NAMED:
        return _NAMED[trimmed]
    raise EvaluationError(f"{shown(text)} is no {NumberType.DOUBLE.value}")


def double_order(value: float) -> tuple[float, float]:
    """A key by which doubles compare as in Java: -0.0 is below 0.0, and NaN equals itself and is above all."""
    if value != value:
        return (math.inf, math.inf)
    return (value, math.copysign(1.0, value))


def read_ordered_double(text: str) -> tuple[float, float]:
    """Raises EvaluationError."""
    return double_order(read_double(text))


READERS: dict[NumberType, Callable[[str], Any]] = {
    NumberType.INTEGER: read_integer,
    NumberType.LONG: read_long,
    NumberType.DOUBLE: read_ordered_double,
}
"""Make of a string what compares with a number of that type."""


def _read_whole(text: str, value_max: int, number_type: NumberType) -> int:
    # The longest sound one has 20 characters, with zeros at its begin any number; 400 digits are read quickly.
    if _INTEGER.fullmatch(text) and len(text) < 400:
        value = int(text)
        if -value_max - 1 <= value <= value_max:
            return value
    raise EvaluationError(f"{shown(text)} is no {number_type.value}")
