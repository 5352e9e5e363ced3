"""What JSON values and ext fields mean to the types of a body or a header, as tolerantly as fastjson takes them.

Enums come by name, in any case, or by ordinal; numbers and booleans as text and the reverse; null, "" and "null" stand
for the default of what is no text. An enum's name that nobody knows here is as good as null, for Java reads it so.
What both fastjson and fastjson2 refuse is refused.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from remoting.errors import RemotingBodyError
from remoting.fastjson import VALUES_MAX, dumps_fastjson, loads_fastjson

StructT = TypeVar("StructT", bound=msgspec.Struct)

TRUE_WORDS = frozenset({"true", "1", "y", "t"})
FALSE_WORDS = frozenset({"false", "0", "n", "f"})

_NUMBER = re.compile(r"[+-]?\d{1,32}(\.\d*)?([eE][+-]?\d{1,3})?")
_LEFT_OUT = object()
_NULLS: tuple[object, ...] = (None, "", "null")
_ENUM = "java_enum"


def java_enum(*names: str) -> msgspec.Meta:
    """For Annotated[str, ...]: the names of an enum of Java's, in the order of their ordinals."""
    return msgspec.Meta(pattern=f"^(?:{'|'.join(names)})$", extra={_ENUM: names})


def to_struct(
    struct_type: type[StructT], value: object, *, zeros: bool, values_max: int = VALUES_MAX
) -> StructT:
    """Raises msgspec.ValidationError, which names the place.

    `zeros`: a number or a boolean that has no default and is not there is 0 or false, as in beans of Java's.
    `values_max`: of what is not all as the types say, as in loads_fastjson.
    """
    try:
        return msgspec.convert(value, struct_type, strict=False, str_keys=True)
    except msgspec.ValidationError:
        _check_count(value, values_max)
    tolerant = _of_struct(value, _info_of(struct_type), zeros)
    return msgspec.convert(tolerant, struct_type, strict=False, str_keys=True)


def _check_count(value: object, values_max: int) -> None:
    left = values_max
    waiting = [value]
    while waiting:
        item = waiting.pop()
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        left -= len(inner)
        if left < 0:
            raise msgspec.ValidationError(
                f"more than {values_max} values, not all of the types that they should be"
            )
        waiting.extend(inner)


def as_text(value: object) -> str:
    """What fastjson gives where text is expected."""
    if isinstance(value, str):
        return value
    return dumps_fastjson(value).decode()


@cache
def _info_of(struct_type: type[msgspec.Struct]) -> inspect.StructType:
    info = inspect.type_info(struct_type)
    assert isinstance(info, inspect.StructType), "called for structs alone"
    return info


def _of_struct(value: object, info: inspect.StructType, zeros: bool) -> object:
    """`value` as msgspec takes it; what cannot be read is left as it is, for msgspec to say where."""
    if isinstance(value, tuple):
        value = dict(value)
    if not isinstance(value, dict):
        return value
    fields: dict[str, object] = {}
    for field in info.fields:
        name = field.encode_name
        item = _of_type(value.get(name), field.type, zeros)
        if item is not _LEFT_OUT:
            fields[name] = item
        elif zeros and field.required and isinstance(field.type, _PRIMITIVES):
            fields[name] = 0 if isinstance(field.type, inspect.IntType | inspect.FloatType) else False
    return fields


_PRIMITIVES = inspect.IntType | inspect.FloatType | inspect.BoolType


def _of_type(value: object, info: inspect.Type, zeros: bool) -> object:
    match info:
        case inspect.UnionType(types):
            (info,) = (kind for kind in types if not isinstance(kind, inspect.NoneType))
            return _of_type(value, info, zeros)
        case inspect.Metadata(type=inner, extra=extra):
            return (
                _of_enum(value, extra[_ENUM]) if extra and _ENUM in extra else _of_type(value, inner, zeros)
            )
        case inspect.StrType():
            # In a binary header null and the empty string are the same bytes, and Java reads null.
            return _LEFT_OUT if value is None or (value == "" and not zeros) else as_text(value)
        case inspect.IntType() | inspect.FloatType() | inspect.BoolType() if value in _NULLS:
            return _LEFT_OUT
        case inspect.IntType():
            return _of_int(value)
        case inspect.BoolType():
            return _of_bool(value)
        case inspect.StructType():
            return _LEFT_OUT if value is None or value == "" else _of_struct(value, info, zeros)
        case inspect.ListType(item_type=item_type):
            return _of_list(value, item_type, zeros)
        case inspect.DictType(key_type=key_type, value_type=value_type):
            return _of_dict(value, key_type, value_type, zeros)
        case _:
            return value


def _of_int(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return int(value)
    if isinstance(value, str):
        text = value.replace(",", "")
        number = _NUMBER.fullmatch(text)
        if number is not None:
            return _of_int(float(text)) if any(number.groups()) else int(text)
    return value


def _of_bool(value: object) -> object:
    if isinstance(value, int | float):
        return value == 1
    if isinstance(value, str) and value.lower() in TRUE_WORDS | FALSE_WORDS:
        return value.lower() in TRUE_WORDS
    return value


def _of_enum(value: object, names: tuple[str, ...]) -> object:
    if isinstance(value, str):
        is_ordinal = value.isdecimal() and len(value) < 4 and int(value) < len(names)
        name = names[int(value)] if is_ordinal else value.upper()
        return name if name in names else _LEFT_OUT
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return names[value]
    return _LEFT_OUT if value is None else value


def _of_list(value: object, item_type: inspect.Type, zeros: bool) -> object:
    if value is None or value == "":
        return _LEFT_OUT
    items = value if isinstance(value, list) else [value]
    read = (_of_type(item, item_type, zeros) for item in items)
    return [item for item in read if item is not _LEFT_OUT]


def _of_dict(value: object, key_type: inspect.Type, value_type: inspect.Type, zeros: bool) -> object:
    if value is None or value == "":
        return _LEFT_OUT
    if not isinstance(value, dict):
        return value
    items: dict[Any, object] = {}
    for name, item in value.items():
        read = _of_type(item, value_type, zeros)
        if read is not _LEFT_OUT:
            items[_of_key(name, key_type, zeros)] = read
    return items


def _of_key(key: object, key_type: inspect.Type, zeros: bool) -> object:
    if not isinstance(key_type, inspect.StructType):
        return key if isinstance(key, str) else as_text(key)
    if isinstance(key, str):
        # Of a map whose keys are beans fastjson reads text as well.
        try:
            key = loads_fastjson(key.encode())
        except RemotingBodyError as error:
            raise msgspec.ValidationError(f"key {key!r}: {error}") from error
    return to_struct(key_type.cls, tuple(key.items()) if isinstance(key, dict) else key, zeros=zeros)
