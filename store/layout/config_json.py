"""The tables under config/ in the form that RocketMQ's fastjson writes and reads.

It indents with tabs, puts no blank behind a colon and writes map keys that are numbers without quotes,
which is no JSON: `{0:12}`. Here such keys are ints, in both directions.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

TOPICS: Final = "topics.json"
SUBSCRIPTION_GROUPS: Final = "subscriptionGroup.json"
CONSUMER_OFFSETS: Final = "consumerOffset.json"
DELAY_OFFSETS: Final = "delayOffset.json"
MESSAGE_REQUEST_MODES: Final = "messageRequestMode.json"
# The file before the newest one, for when that one is empty or damaged.
BACKUP: Final = ".bak"

# A string, to be stepped over, or a bare number in a key's place.
_BARE_KEY = re.compile(r'("(?:[^"\\]|\\.)*")|(-?\d+)(\s*:)')
# Marks a key that had no quotes. No writer of these files makes a name that begins with NUL.
_NUMBER_MARK = "\0"


class ConfigJsonError(ValueError):
    """Text that is no table."""


def parse_config(text: str) -> dict[str, Any]:
    """Maps, lists and values of one file. Raises ConfigJsonError, also for an empty file (the .bak is next
    then).
    """
    try:
        table = json.loads(_BARE_KEY.sub(_quote_key, text), object_pairs_hook=_unmark_keys)
    except ValueError as error:
        raise ConfigJsonError(str(error)) from None
    if not isinstance(table, dict):
        raise ConfigJsonError(f"a {type(table).__name__}, not a map")
    return table


def render_config(table: Mapping[str, Any]) -> str:
    """Keys keep their order; an int key is written bare."""
    parts: list[str] = []
    _render(table, "", parts)
    return "".join(parts)


def required_map(content: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    """Raises ValueError: without it this is not the file that its name says."""
    value = content.get(name)
    if not isinstance(value, Mapping):
        raise ValueError(f"it holds no {name}")
    return value


def numbers(values: object, key_type: type) -> dict[Any, int]:
    """A map of numbers without those below 0, which say the same as none. Raises ValueError."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{values!r:.80} is no map")
    for key, number in values.items():
        if type(key) is not key_type or type(number) is not int:
            raise ValueError(f"{key!r:.80}: {number!r:.80} is no number of a queue, level or topic")
    return {key: number for key, number in values.items() if number >= 0}


def topic_config(
    topic: str,
    *,
    read_queue_nums: int = 4,
    write_queue_nums: int = 4,
    perm: int = 6,
    topic_filter_type: str = "SINGLE_TAG",
    topic_sys_flag: int = 0,
    order: bool = False,
    attributes: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """One value of topics.json's topicConfigTable."""
    return {
        "attributes": dict(attributes or {}),
        "order": order,
        "perm": perm,
        "readQueueNums": read_queue_nums,
        "topicFilterType": topic_filter_type,
        "topicName": topic,
        "topicSysFlag": topic_sys_flag,
        "writeQueueNums": write_queue_nums,
    }


def data_version(counter: int, timestamp: int, state_version: int = 0) -> dict[str, int]:
    """`timestamp` in ms."""
    return {"counter": counter, "stateVersion": state_version, "timestamp": timestamp}


def _quote_key(match: re.Match[str]) -> str:
    string, number, colon = match.groups()
    return string if string is not None else f'"\\u0000{number}"{colon}'


def _unmark_keys(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    return {int(key[1:]) if key.startswith(_NUMBER_MARK) else key: value for key, value in pairs}


def _render(value: Any, indent: str, parts: list[str]) -> None:
    if isinstance(value, Mapping):
        if not value:
            parts.append("{}")
            return
        inner = indent + "\t"
        separator = "{\n"
        for key, item in value.items():
            name = str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)
            parts.append(f"{separator}{inner}{name}:")
            _render(item, inner, parts)
            separator = ",\n"
        parts.append(f"\n{indent}}}")
    elif isinstance(value, list | tuple):
        if not value:
            parts.append("[]")
            return
        inner = indent + "\t"
        separator = "[\n"
        for item in value:
            parts.append(separator + inner)
            _render(item, inner, parts)
            separator = ",\n"
        parts.append(f"\n{indent}]")
    else:
        parts.append(json.dumps(value, ensure_ascii=False))
