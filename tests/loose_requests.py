"""A sound request as a client of another language may write it, and fastjson reads it: the same request each time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from remoting.errors import RemotingBodyError
from remoting.fastjson import loads_fastjson
from remoting.frame.command import encode_frame, request

ENUMS = {
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY"),
    "messageModel": ("BROADCASTING", "CLUSTERING"),
    "consumeFromWhere": (
        *("CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"),
        *("CONSUME_FROM_MIN_OFFSET", "CONSUME_FROM_MAX_OFFSET"),
        *("CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"),
    ),
    "topicFilterType": ("SINGLE_TAG", "MULTI_TAG"),
}


def loose_frames(code: int, fields: dict[str, str], body: bytes, version: int) -> Iterator[tuple[str, bytes]]:
    """Name and frame; the opaque is always 7."""
    plain = {"code": code, "language": "CPP", "version": version, "opaque": 7, "flag": 0, "extFields": fields}
    for name, header in {
        "bare values": plain | {"extFields": {key: _bare(value) for key, value in fields.items()}},
        "numbers as text": {key: str(item) if isinstance(item, int) else item for key, item in plain.items()},
        "nulls and unknown names": plain | {"remark": None, "nobody": [{"a": None}], "language": None},
        "a language by its ordinal": plain | {"language": 1},
        "a language in small letters": plain | {"language": "cpp"},
    }.items():
        yield f"header: {name}", encode_frame(0, json.dumps(header).encode(), body)
    yield "header: no JSON", encode_frame(0, _no_json(plain).encode(), body)
    signed = {key: _signed(value) for key, value in fields.items()}
    for serialize_type in (0, 1):
        command = request(code, signed, body, opaque=7, serialize_type=serialize_type)
        command.version = version
        yield f"header {serialize_type}: signs, fractions and capitals", command.encode()
    header = json.dumps(plain).encode()
    for name, changed in loose_bodies(body):
        yield f"body: {name}", encode_frame(0, header, changed)


def loose_bodies(body: bytes) -> Iterator[tuple[str, bytes]]:
    if body[:1] != b"{":
        return
    try:
        value = loads_fastjson(body)
    except RemotingBodyError:
        return
    yield "no JSON", _no_json(value).encode()
    yield "scalars as text", _text(_each(value, lambda name, item: _as_text(item)))
    yield (
        "booleans as numbers",
        _text(_each(value, lambda name, item: int(item) if isinstance(item, bool) else item)),
    )
    yield (
        "numbers as fractions",
        _text(_each(value, lambda name, item: float(item) if type(item) is int else item)),
    )
    yield "enums by ordinal", _text(_each(value, lambda name, item: _ordinal(name, item)))
    yield (
        "enums in small letters",
        _text(_each(value, lambda name, item: item.lower() if name in ENUMS else item)),
    )
    yield "enums that nobody knows", _text(_each(value, lambda name, item: "NEW" if name in ENUMS else item))
    yield (
        "nulls for what is no text",
        _text(_each(value, lambda name, item: item if isinstance(item, str) else None)),
    )
    yield "unknown names", _text(_with_unknown(value))


def _text(value: Any) -> bytes:
    return json.dumps(value).encode()


def _bare(value: str) -> Any:
    return json.loads(value) if value in ("true", "false") or value.lstrip("-").isdigit() else value


def _signed(value: str) -> str:
    if value in ("true", "false"):
        return value.upper()
    return f"+{value}.0" if value.isdigit() and len(value) < 15 else value


def _as_text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool | int | float) else value


def _ordinal(name: str, value: Any) -> Any:
    return ENUMS[name].index(value) if name in ENUMS else value


def _each(value: Any, change: Callable[[str, Any], Any], name: str = "") -> Any:
    """The value with each scalar in it changed."""
    if isinstance(value, dict):
        return {key: _each(item, change, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_each(item, change, name) for item in value]
    return change(name, value)


def _with_unknown(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_unknown(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: _with_unknown(item) for key, item in value.items()}
    # A map of texts or of beans takes any name.
    is_map = {type(item) for item in value.values()} in ({str}, {dict})
    return made if is_map else {**made, "nobody": {"a": [1]}}


def _no_json(value: Any) -> str:
    """Single quotes, names without quotes, a comma too many, a comment."""
    if isinstance(value, dict):
        members = (
            f"{key if key.isidentifier() else _single(key)} :{_no_json(item)}," for key, item in value.items()
        )
        return "{/* loose */" + "".join(members) + "}"
    if isinstance(value, list):
        return "[" + "".join(f"{_no_json(item)}," for item in value) + "]"
    return _single(value) if isinstance(value, str) else json.dumps(value)


def _single(text: str) -> str:
    return "'" + json.dumps(text)[1:-1].replace("'", "\\'") + "'"
