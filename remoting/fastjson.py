"""The JSON that RocketMQ's Java side writes, which is not always JSON.

Map keys that are no strings stand bare: numbers as `{0:"ip:port"}`, beans as whole objects,
`{{"brokerName":"b","queueId":0,"topic":"T"}:7}`. The reader takes both besides plain JSON; the writer
emits the same form, because fastjson does not read a bean key that was quoted.

A bare number comes back as an int key and a quoted one as a str. A bean key comes back as a
BeanKey: the tuple of its (name, value) pairs in written order, since a dict cannot be a key.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from typing import TypeAlias, TypeGuard

import orjson

from remoting.errors import RemotingBodyError

BeanKey: TypeAlias = tuple[tuple[str, object], ...]

DEPTH_MAX = 64  # Java's own bodies nest less than ten deep
# Of a body that is no plain JSON, keys counted too: the statistics of 7,000 queues. At some 3 us each, more would
# stop the event loop for so long that a leader's followers elect another one.
VALUES_MAX = 100_000

_BLANK = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"(true|false|null)|(-?\d+(\.\d+)?([eE][+-]?\d+)?)")
_decode_string = JSONDecoder(strict=False).raw_decode
_CONSTANTS = {"true": True, "false": False, "null": None}


def loads_fastjson(data: bytes, *, values_max: int = VALUES_MAX) -> object:
    """The value of a body. Raises RemotingBodyError when it is not even fastjson.

    `values_max` is for those who read off the event loop.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return _Reader(data.decode(), values_max).read()
    except (UnicodeDecodeError, JSONDecodeError) as error:
        raise RemotingBodyError(f"body of {len(data)} bytes: {error}") from error


def dumps_fastjson(value: object) -> bytes:
    """Compact fastjson text; keys keep their order, int keys and BeanKeys stand bare.

    Raises RemotingBodyError for a value that JSON has no form for.
    """
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _write(value: object, parts: list[bytes]) -> None:
    try:
        # What is plain JSON down to the bottom is one call; at a key that is no string it ends at once.
        parts.append(orjson.dumps(value))
        return
    except orjson.JSONEncodeError as error:
        if not isinstance(value, dict | list | tuple):
            raise RemotingBodyError(f"no JSON form: {error}") from error
    if isinstance(value, dict):
        separator = b"{"
        for key, item in value.items():
            parts.append(separator)
            if _is_bean_key(key):
                _write(dict(key), parts)
            else:
                _write(key, parts)
            parts.append(b":")
            _write(item, parts)
            separator = b","
        parts.append(b"}" if value else b"{}")
    else:
        separator = b"["
        for item in value:
            parts.append(separator)
            _write(item, parts)
            separator = b","
        parts.append(b"]" if value else b"[]")


def _is_bean_key(key: object) -> TypeGuard[BeanKey]:
    return isinstance(key, tuple)


class _Reader:
    """Recursive descent over one text; it runs only where orjson gave up."""

    def __init__(self, text: str, values_max: int) -> None:
        self._text = text
        self._values_max = values_max
        self._at = 0
        self._value_count = 0

    def read(self) -> object:
        value = self._value(0)
        if self._peek() != "":
            raise self._error("more text after the value")
        return value

    def _value(self, depth: int) -> object:
        if depth > DEPTH_MAX:
            raise self._error(f"nested deeper than {DEPTH_MAX}")
        self._value_count += 1
        if self._value_count > self._values_max:
            raise self._error(f"more than {self._values_max} values")
        start = self._peek()
        if start == "{":
            return self._object(depth + 1)
        if start == "[":
            return self._array(depth + 1)
        if start == '"':
            return self._string()
        match = _SCALAR.match(self._text, self._at)
        if match is None:
            raise self._error("a value expected")
        self._at = match.end()
        constant, number, fraction, exponent = match.groups()
        if constant is not None:
            return _CONSTANTS[constant]
        if len(number) > 32:
            raise self._error(f"number of {len(number)} digits")
        return int(number) if fraction is None and exponent is None else float(number)

    def _object(self, depth: int) -> dict[object, object]:
        members: dict[object, object] = {}
        self._at += 1
        if self._take("}"):
            return members
        while True:
            key = self._value(depth)
            if isinstance(key, list) or key is None:
                raise self._error("a key expected")
            if not self._take(":"):
                raise self._error("':' expected")
            members[_hashable(key)] = self._value(depth)
            if self._take("}"):
                return members
            if not self._take(","):
                raise self._error("',' or '}' expected")

    def _array(self, depth: int) -> list[object]:
        items: list[object] = []
        self._at += 1
        if self._take("]"):
            return items
        while True:
            items.append(self._value(depth))
            if self._take("]"):
                return items
            if not self._take(","):
                raise self._error("',' or ']' expected")

    def _string(self) -> str:
        value, self._at = _decode_string(self._text, self._at)
        assert isinstance(value, str), "what starts with a quote is a string"
        return value

    def _peek(self) -> str:
        character = self._text[self._at : self._at + 1]
        if character not in " \t\r\n":
            return character
        blank = _BLANK.match(self._text, self._at)
        assert blank is not None, "the pattern matches the empty string"
        self._at = blank.end()
        return self._text[self._at : self._at + 1]

    def _take(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._at += 1
        return True

    def _error(self, reason: str) -> JSONDecodeError:
        return JSONDecodeError(reason, self._text, self._at)


def _hashable(value: object) -> object:
    if isinstance(value, dict):
        return tuple((name, _hashable(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    return value
