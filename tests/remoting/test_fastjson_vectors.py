"""What fastjson 1.2.83 (RocketMQ 4.9) and fastjson2 2.0.59 (5.5.0) made of texts, and what ours makes of them.

What both read, ours reads alike. Where they differ, ours does as one of them. A null of theirs is our default.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remoting.bodies import admin_bodies, bodies, topic_bodies
from remoting.bodies.bodies import RemotingBody, to_json_value
from remoting.errors import RemotingError
from remoting.fastjson import loads_fastjson
from remoting.frame.command import decode_json

VECTORS = Path(__file__).parent / "fastjson" / "vectors.jsonl"
ROWS = [json.loads(line) for line in VECTORS.read_text().splitlines()]
REFUSED = object()

# Where ours does as neither of them.
DIFFERENT = {
    "syntax: new Date": "no client writes one",
    "syntax: empty": "Java reads null, which then fails the request with a stack trace",
    "syntax: surrogate utf8": "three characters are replaced, not one",
    "syntax: ref": "references are not followed",
    "string: float": "5.50 becomes the text 5.5",
    "string: big": "integers of more than 64 bits become the text of a float",
    "string: null": "a consumer without a group is refused",
    "name: upper first": "fastjson2 does not know such a name, and a consumer without a group is refused",
    "name: snake": "likewise",
    "name: dash": "likewise",
    "name: upper": "likewise",
    "name: lower": "likewise",
    "Set<String>: number": "read as a set of one, as a single string is",
    "Set<bean>: object of objects": "a queue without topic and broker is refused",
    "Map<String,String>: numeric key": "read",
    "extFields: numeric key": "read",
    "header: null": "Java reads null, which then closes the connection",
    "header: empty": "likewise",
    "header: language ordinal big": "read as the language OTHER",
    "header: language negative": "likewise",
    "header: language object": "likewise",
}


def ours(row: dict[str, Any]) -> Any:
    data = bytes.fromhex(row["hex"]) if "hex" in row else row["text"].encode()
    try:
        if row["type"] == "Object":
            return loads_fastjson(data)
        if row["type"] == "RemotingCommand":
            command = decode_json(data)
            names = {"extFields": "ext_fields"}
            fields = ("code", "flag", "opaque", "version", "remark", "extFields")
            return {name: getattr(command, names.get(name, name)) for name in fields} | {
                "language": command.language.name
            }
        (kind,) = {
            found
            for module in (bodies, admin_bodies, topic_bodies)
            if (found := getattr(module, row["type"], None))
        }
        assert issubclass(kind, RemotingBody)
        return to_json_value(kind.decode(data))
    except RemotingError:
        return REFUSED


def is_same(row: dict[str, Any], theirs: dict[str, str], value: Any) -> bool:
    if "error" in theirs:
        return value is REFUSED
    if value is REFUSED:
        return False
    return alike(
        value, loads_fastjson(theirs["value"].encode()), row.get("text", ""), is_typed=row["type"] != "Object"
    )


def alike(value: Any, theirs: Any, text: str, *, is_typed: bool) -> bool:
    """Of beans, in the members that the text names: the rest are defaults, of which Java's may be the time."""
    if theirs is None:
        return is_typed or value is None
    if isinstance(theirs, dict):
        if not isinstance(value, dict):
            return False
        if not is_typed:
            return plain(value) == plain(theirs)
        known = {name: item for name, item in theirs.items() if item is not None and str(name) in text}
        return all(
            alike(value.get(name), item, text, is_typed=True) for name, item in known.items() if name in value
        )
    if isinstance(theirs, list):
        # Most are sets, and an item that is null says nothing.
        wanted = {str(plain(item)) for item in theirs if item is not None}
        return isinstance(value, list) and {str(plain(item)) for item in value} == wanted
    return bool(value == theirs)


def plain(value: Any) -> Any:
    """Keys as text, members in one order."""
    if isinstance(value, dict):
        return {str(key): plain(value[key]) for key in sorted(value, key=str) if value[key] is not None}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


@pytest.mark.parametrize("row", ROWS, ids=[row["case"] for row in ROWS])
def test_a_text_is_read_as_fastjson_or_fastjson2_reads_it(row: dict[str, Any]) -> None:
    value = ours(row)
    same = is_same(row, row["fastjson"], value) or is_same(row, row["fastjson2"], value)
    assert same != (row["case"] in DIFFERENT), f"{value} is not {row['fastjson']} nor {row['fastjson2']}"
