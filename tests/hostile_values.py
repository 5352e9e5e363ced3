"""What a client can do to a sound request: each field left out or given another value, each part of a JSON body too,
bytes cut off or flipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

from remoting.errors import RemotingBodyError
from remoting.fastjson import dumps_fastjson, loads_fastjson

# For any header field: most fields cannot be most of them.
HOSTILE_VALUES = (
    "",
    "x",
    "-1",
    str(1 << 31),
    str(-(1 << 63)),
    str(1 << 70),
    "9" * 400,
    "1.5",
    "Ü→\u2028",
    "a/b",
    "%",
    "true",
    "\0",
    "n" * 300,
)
# For any value in a JSON body.
HOSTILE_JSON = (
    None,
    "",
    "x",
    "Ü→\u2028/\0",
    "n" * 300,
    -1,
    1 << 31,
    -(1 << 63),
    1 << 70,
    1.5,
    True,
    [],
    [7],
    {},
    {"x": 1},
)
NOT_JSON = (
    b"",
    b"{",
    b"[]",
    b"7",
    b"null",
    b"\xff\xfe",
    b"=" * 5000,
    b"[" * 5000,
    b"a=\\uzz",
    b"\0" * 64,
)
FLIPS = 24


def hostile_fields(sound: dict[str, str]) -> Iterator[dict[str, str]]:
    """Each field left out, and each with every hostile value."""
    for name in sound:
        yield {other: value for other, value in sound.items() if other != name}
        for value in HOSTILE_VALUES:
            yield {**sound, name: value}


def hostile_bodies(sound: bytes) -> Iterator[bytes]:
    """No body, none of its kind, cut off, flipped; of a JSON body each part left out or replaced."""
    yield from NOT_JSON
    yield b'{"a":"\xff"}'  # JSON as Java reads it: what is no UTF-8 is replaced
    yield sound[: len(sound) // 2]
    random = Random(1)
    for _ in range(FLIPS if sound else 0):
        yield flipped(sound, random)
    if sound[:1] == b"{":
        try:
            values = _altered(json.loads(sound))
        except ValueError:
            for value in _altered(loads_fastjson(sound)):
                with suppress(RemotingBodyError):  # a number that only plain JSON has
                    yield dumps_fastjson(value)
            return
        for value in values:
            yield json.dumps(value).encode()


def flipped(data: bytes, random: Random) -> bytes:
    """With one bit changed."""
    changed = bytearray(data)
    bit = random.randrange(len(data) * 8)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def _altered(value: Any) -> Iterator[Any]:
    """The value with one part of it, however deep, left out or replaced."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield {other: kept for other, kept in value.items() if other != name}
            yield from ({**value, name: changed} for changed in _replaced(item))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from ([*value[:at], changed, *value[at + 1 :]] for changed in _replaced(item))


def _replaced(value: Any) -> Iterator[Any]:
    yield from HOSTILE_JSON
    yield from _altered(value)
