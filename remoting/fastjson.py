"""The JSON that RocketMQ's Java side writes and reads, which is not always JSON.

Map keys that are no strings stand bare: numbers as `{0:"ip:port"}`, beans as whole objects,
`{{"brokerName":"b","queueId":0,"topic":"T"}:7}`. The writer emits the same form, because fastjson does not read a bean
key that was quoted. The reader takes what fastjson takes, for clients of all languages were written against it: single
quotes, names without quotes, commas too many, comments, numbers with a suffix or a sign, and bytes that are no UTF-8,
which become U+FFFD. What values mean to a body's or a header's types is in fastjson_values.py.

A small bare number comes back as an int key, any other key as text: Python's hash of a number is no secret, and a body
of large ones with equal hashes would stop the event loop for half a minute. A bean key comes back as a BeanKey: the
tuple of its (name, value) pairs in written order, since a dict cannot be a key.
"""

from __future__ import annotations

import re
from json import JSONDecodeError
from typing import TypeAlias, TypeGuard

import orjson

from remoting.errors import RemotingBodyError

BeanKey: TypeAlias = tuple[tuple[str, object], ...]

DEPTH_MAX = 64  # Java's own bodies nest less than ten deep
# Of a body that is no plain JSON, keys counted too: the statistics of 7,000 queues. At some 3 us each, more would
# stop the event loop for so long that a leader's followers elect another one.
VALUES_MAX = 100_000
INT_KEY_MAX = 65_535  # ids of brokers and queues

# No group that is repeated possessively holds an alternative: Python before 3.11.5 matches too little by those.
_COMMENT = re.compile(r"//[^\n]*+|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/")
_BLANK = re.compile(r"[ \t\r\n\f\v\b\0]*+")
_COMMAS = re.compile(r"[, \t\r\n\f\v\b\0]*+")
_SCALAR = re.compile(
    r"(true|false|null|NULL|undefined|NaN)\b|([+-]?(?:\d++(\.\d*+)?|(\.\d++))([eE][+-]?\d++)?)([LSBDF]?)(?![\w.])"
)
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")
_STRINGS = {
    '"': re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL),
}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = dict(zip("\"'/\\bfnrtv01234567", "\"'/\\\b\f\n\r\t\v\0\1\2\3\4\5\6\7", strict=True))
_CONSTANTS = {"true": True, "false": False}


def loads_fastjson(data: bytes, *, values_max: int = VALUES_MAX) -> object:
    """The value of a body. Raises RemotingBodyError when it is not even fastjson.

    `values_max` is for those who read off the event loop.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return _Reader(data.decode(errors="replace").removeprefix("\ufeff"), values_max).read()
    except JSONDecodeError as error:
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
        if start in _STRINGS:
            return self._string(start)
        match = _SCALAR.match(self._text, self._at)
        if match is None:
            if self._text.startswith(("Set[", "TreeSet["), self._at):
                self._at = self._text.index("[", self._at)
                return self._array(depth + 1)
            raise self._error("a value expected")
        self._at = match.end()
        constant, number, *fraction_or_exponent, suffix = match.groups()
        if constant is not None:
            return _CONSTANTS.get(constant)
        if len(number) > 32:
            raise self._error(f"number of {len(number)} digits")
        return float(number) if any(fraction_or_exponent) or suffix in ("D", "F") else int(number)

    def _key(self, depth: int) -> object:
        self._peek()
        name = _NAME.match(self._text, self._at)
        if name is None:
            key = self._value(depth)
            if isinstance(key, dict):
                return _hashable(key)
            if isinstance(key, list):
                raise self._error("a key expected")
            is_small = type(key) is int and abs(key) <= INT_KEY_MAX
            return key if is_small or isinstance(key, str) else dumps_fastjson(key).decode()
        self._at = name.end()
        return name[0]

    def _object(self, depth: int) -> dict[object, object]:
        members: dict[object, object] = {}
        self._at += 1
        while self._after_commas() != "}":
            key = self._key(depth)
            if not self._take(":"):
                raise self._error("':' expected")
            members[key] = self._value(depth)
            if self._peek() not in ("}", ","):
                raise self._error("',' or '}' expected")
        self._at += 1
        return members

    def _array(self, depth: int) -> list[object]:
        items: list[object] = []
        self._at += 1
        while self._after_commas() != "]":
            items.append(self._value(depth))
        self._at += 1
        return items

    def _string(self, quote: str) -> str:
        match = _STRINGS[quote].match(self._text, self._at)
        if match is None:
            raise self._error("a string without end")
        self._at = match.end()
        if "\\" not in match[1]:
            return match[1]
        text = _ESCAPE.sub(self._unescaped, match[1])
        if text.isascii():
            return text
        # Two escapes may be one character; half of one is the question mark that Java makes of it.
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return whole.encode(errors="replace").decode()

    def _unescaped(self, escape: re.Match[str]) -> str:
        digits = escape[1] or escape[2]
        if digits is not None:
            return chr(int(digits, 16))
        if escape[3] not in _ESCAPED:
            raise self._error(f"escape \\{escape[3]} in a string")
        return _ESCAPED[escape[3]]

    def _peek(self) -> str:
        """The next character that is neither blank nor comment; empty at the end."""
        return self._after(_BLANK)

    def _after_commas(self) -> str:
        return self._after(_COMMAS)

    def _after(self, skipped: re.Pattern[str]) -> str:
        text = self._text
        while True:
            match = skipped.match(text, self._at)
            assert match is not None, "the pattern matches the empty string"
            comment = _COMMENT.match(text, match.end())
            if comment is None:
                self._at = match.end()
                return text[self._at : self._at + 1]
            self._at = comment.end()

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
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise RemotingBodyError(f"number {value} in a key: it has more than 64 bits")  # for its hash's sake
    return value
