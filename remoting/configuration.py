"""Java properties text and its reading into typed settings.

The format is that of RocketMQ's conf files and of the bodies of the config requests (25, 26, 318, 319).
A server names its settings in a table of `Setting`; everything that a user may get wrong is found here:
an unknown key is a warning with the nearest known one, a bad value an error with file, line and what is
allowed. Keys that RocketMQ knows and the server has no use for are named in one warning.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from remoting.address import AddressError, parse_addresses

TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "0"})


class ConfigError(ValueError):
    """A setting cannot be used. The message names the file, the line, the value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Property:
    key: str
    value: str
    line: int  # of the key, from 1
    source: str  # file name, or what else it came from

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class Setting:
    """One key that a server reads: `field` is its own name for it, `read` turns text into the value.

    `read` raises ValueError for a bad value; `allowed` is the end of the sentence that the user then gets.
    """

    field: str
    read: Callable[[str], object]
    allowed: str


def parse_properties(text: str, source: str) -> list[Property]:
    """The pairs of a properties text, in order. Comments, `:` and blank as separators, continued lines and
    \\u escapes are Java's. Values are stripped of blanks at both ends, which Java only does in front.

    Raises ConfigError for a broken escape, and for what is no text: taken for names of keys that nobody knows, it would
    leave every setting at its default.
    """
    if "\0" in text:
        raise ConfigError(
            f"{source}: no properties, as it holds bytes of value 0: name a text of lines key=value"
        )
    properties = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        first_number = number + 1
        line = lines[number].lstrip()
        number += 1
        if not line or line[0] in "#!":
            continue
        while _is_continued(line) and number < len(lines):
            line = line[:-1] + lines[number].lstrip()
            number += 1
        key, value = _split_pair(line, f"{source}:{first_number}")
        properties.append(Property(key, value.strip(), first_number, source))
    return properties


def parse_conf_file(text: str, path: str, settings: Mapping[str, Setting]) -> list[Property]:
    """The pairs of a server's conf file, which reads `settings`.

    Raises ConfigError as parse_properties() does, and for keys of which none is known: they are another file's, and
    every setting would be left at its default.
    """
    properties = parse_properties(text, path)
    keys = {item.key for item in properties}
    if len(keys) > 1 and not any(key in settings or key in known_keys() for key in keys):
        first = properties[0]
        raise ConfigError(
            f"{path}: none of its {len(keys)} keys is known, the first is {first.key} in line {first.line}: "
            "name a conf file, a text of lines key=value"
        )
    return properties


def format_properties(pairs: Iterable[tuple[str, str]]) -> str:
    """Pairs as properties text, one to a line, sorted by key as RocketMQ answers 26 and 319."""
    return "".join(f"{key}={value}\n" for key, value in sorted(pairs))


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_pair(line: str, where: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    key = _unescape(line[:end], where)
    rest = line[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return key, _unescape(rest, where)


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            parts.append(char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            try:
                parts.append(chr(int(text[position : position + 4], 16)))
            except ValueError:
                raise ConfigError(f"{where}: \\u must be followed by four hexadecimal digits") from None
            position += 4
        else:
            parts.append({"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(char, char))
    return "".join(parts)


@cache
def known_keys() -> Mapping[str, str]:
    """Every key that a RocketMQ server or its parts read, with its type: int, long, boolean, decimal, text."""
    from importlib import resources  # takes long to load, and only servers get here

    text = resources.files("remoting").joinpath("config_keys.csv").read_text(encoding="ascii")
    return {row["key"]: row["type"] for row in csv.DictReader(text.splitlines())}


def read_settings(
    properties: Sequence[Property], settings: Mapping[str, Setting]
) -> tuple[dict[str, Any], list[str]]:
    """Values by field name, and warnings. Of a key given twice the last one counts, as in Java.

    Raises ConfigError for the first value that is not allowed.
    """
    values: dict[str, Any] = {}
    warnings: list[str] = []
    given: dict[str, Property] = {}
    for item in properties:
        before = given.get(item.key)
        if before is not None and before.value != item.value and before.source == item.source:
            warnings.append(f"{item.where}: {item.key} is set again, line {before.line} does not count")
        given[item.key] = item
    unused = []
    for item in given.values():
        setting = settings.get(item.key)
        if setting is not None:
            values[setting.field] = _read_value(item, setting.read, setting.allowed)
        elif item.key in known_keys():
            _check_type(item, known_keys()[item.key])
            unused.append(item)
        else:
            warnings.append(_unknown(item, settings))
    if unused:
        names = ", ".join(item.key for item in unused)
        warnings.append(f"{unused[0].source}: RocketMQ's keys without effect here: {names}")
    return values, warnings


def refuse_unchangeable(key: str, changeable: Collection[str], own: Collection[str], server: str) -> None:
    """For a key that a request wants to change while a server runs; `own` are all that it reads.

    Raises ConfigError, which says what to do instead.
    """
    if key in changeable:
        return
    can_be = f"; these can be changed: {', '.join(sorted(changeable))}" if changeable else ""
    if key in own:
        raise ConfigError(
            f"{key} cannot be changed while the {server} runs: set it in the conf file and restart{can_be}"
        )
    if key in known_keys():
        raise ConfigError(f"{key} has no effect in this {server}{can_be}")
    raise ConfigError(f"unknown key {key}{can_be}")


def _read_value(item: Property, read: Callable[[str], object], allowed: str) -> object:
    try:
        return read(item.value)
    except ValueError as error:
        reason = f" ({error})" if isinstance(error, ConfigError | AddressError) else ""
        raise ConfigError(f"{item.where}: {item.key}={item.value!r} must be {allowed}{reason}") from None


def _check_type(item: Property, type_name: str) -> None:
    if type_name in ("int", "long"):
        _read_value(item, int, "a whole number")
    elif type_name == "decimal":
        _read_value(item, float, "a number")
    elif type_name == "boolean":
        _read_value(item, read_boolean, "true or false")


def _unknown(item: Property, settings: Mapping[str, Setting]) -> str:
    names = {name.lower(): name for name in (*known_keys(), *settings)}
    nearest = difflib.get_close_matches(item.key.lower(), names, n=1, cutoff=0.6)
    hint = f"; did you mean {names[nearest[0]]}?" if nearest else ""
    return f"{item.where}: unknown key {item.key}{hint}"


def read_boolean(text: str) -> bool:
    word = text.lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ValueError(text)


def boolean(field: str) -> Setting:
    return Setting(field, read_boolean, "true or false")


def whole_number(field: str, low: int, high: int, unit: str = "") -> Setting:
    def read(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(text)
        return number

    return Setting(field, read, f"a whole number from {low} to {high}{' ' + unit if unit else ''}")


def words(field: str) -> Setting:
    """Any text but the empty one."""

    def read(text: str) -> str:
        if not text:
            raise ValueError(text)
        return text

    return Setting(field, read, "not empty")


def one_of(field: str, values: Mapping[str, object]) -> Setting:
    """A name of `values`, in any case."""
    by_name = {name.upper(): value for name, value in values.items()}

    def read(text: str) -> object:
        if text.upper() not in by_name:
            raise ValueError(text)
        return by_name[text.upper()]

    return Setting(field, read, "one of " + ", ".join(values))


def addresses(field: str) -> Setting:
    """`host:port` joined by `;`, as NameServers are listed; the value is a tuple of such texts."""

    def read(text: str) -> tuple[str, ...]:
        return tuple(map(str, parse_addresses(text)))

    return Setting(field, read, "host:port, several joined by ;")
