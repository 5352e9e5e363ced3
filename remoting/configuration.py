"""Java properties text and its reading into typed settings.

The format is that of RocketMQ's conf files and of the bodies of the config requests (25, 26, 318, 319).
A server names its settings in a table of `Setting`; everything that a user may get wrong is found here. An unknown
key is a warning with the nearest known one. A value that RocketMQ clamps, rounds or ignores is a warning with the value
taken; one with which the server cannot do what it is told is an error with file, line and what is allowed. Keys that
RocketMQ knows and the server has no use for are named in one warning, whatever their values are.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from remoting.address import AddressError, check_host, parse_addresses, unbracketed

TLS_FILE_VARIABLE: Final = "PYDLEDGER_TLS_CONFIG_FILE"  # names a client's tls.properties, in the environment
OWN_PREFIX: Final = "pyDLedger"  # of the keys that RocketMQ does not have
UNSET: Final = object()  # in place of a value: the default counts
# Java takes a blank for a sign as well: then any text is one of pairs.
_KEY_BEFORE_SIGN: Final = re.compile(r"^[ \t\f]*([^\s#!=:][^\s=:]*)[ \t\f]*[=:]", re.MULTILINE)


class ConfigError(ValueError):
    """A setting cannot be used. The message names the file, the line, the value and what is allowed."""


class Property(msgspec.Struct, frozen=True):
    key: str
    value: str
    line: int  # of the key, from 1
    source: str  # file name, or what else it came from

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


class Setting(msgspec.Struct, frozen=True):
    """One key that a server reads: `field` is its own name for it, `read` turns text into the value.

    `read` raises ValueError for a bad value; `allowed` is the end of the sentence that the user then gets.
    `otherwise` is what RocketMQ makes of such a value: another one, or UNSET. It raises ValueError where RocketMQ would
    not start either, and None stands for a setting that the server cannot do without. The value of one that
    `is_secret` is never shown.
    """

    field: str
    read: Callable[[str], object]
    allowed: str
    otherwise: Callable[[str], object] | None = None
    is_secret: bool = False


class UnknownKey(NamedTuple):
    item: Property
    nearest: str | None  # the known key that may be meant


class ReadSettings(NamedTuple):
    """What a conf says: values by field name, and what its owner must be told.

    `altered` are pairs with another value than the one that is taken; altered_warnings() tells of them.
    """

    values: dict[str, Any]
    warnings: list[str]
    unknown: list[UnknownKey]
    altered: list[tuple[Property, Setting]]


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
    lines = re.split(r"\r\n|\r|\n", text)
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


def load_conf_file(path: str, settings: Mapping[str, Setting]) -> list[Property]:
    """The pairs of a server's conf file, which reads `settings`. A byte order mark is no part of the first key.

    Raises OSError, ConfigError as parse_properties() does, and ConfigError for a text without a line `key=value` whose
    key is known: it is another file, and every setting would be left at its default. A single line may be misspelt.
    """
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    properties = parse_properties(text, path)
    keys = _KEY_BEFORE_SIGN.findall(text)
    is_conf = len(keys) == len(properties) <= 1 or any(key in settings or key in known_keys() for key in keys)
    if not is_conf:
        first = properties[0]
        raise ConfigError(
            f"{path}: no line is key=value with a known key, the first is {first.key} in line {first.line}: "
            "name a conf file"
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
def known_keys() -> Collection[str]:
    """Every key that a RocketMQ server or its parts read or have read, and those that many conf files have although
    nobody reads them."""
    from importlib import resources  # takes long to load, and only servers get here

    text = resources.files("remoting").joinpath("config_keys.csv").read_text(encoding="ascii")
    return {row["key"]: None for row in csv.DictReader(text.splitlines())}.keys()


def read_settings(properties: Sequence[Property], settings: Mapping[str, Setting]) -> ReadSettings:
    """Reads all pairs. Of a key given twice the last one counts, as in Java.

    Raises ConfigError for the first value with which the server must not start.
    """
    found = ReadSettings({}, [], [], [])
    given: dict[str, Property] = {}
    for item in properties:
        before = given.get(item.key)
        if before is not None and before.value != item.value and before.source == item.source:
            found.warnings.append(f"{item.where}: {item.key} is set again, line {before.line} does not count")
        given[item.key] = item
    unused = []
    for item in given.values():
        setting = settings.get(item.key)
        if setting is not None:
            _read_into(found, item, setting)
        elif item.key in known_keys():
            unused.append(item)
        else:
            unknown = UnknownKey(item, nearest_key(item.key, settings))
            found.unknown.append(unknown)
            hint = f"; did you mean {unknown.nearest}?" if unknown.nearest else ""
            found.warnings.append(f"{item.where}: unknown key {item.key}{hint}")
    if unused:
        names = ", ".join(item.key for item in unused)
        found.warnings.append(f"{unused[0].source}: RocketMQ's keys without effect here: {names}")
    return found


def _read_into(found: ReadSettings, item: Property, setting: Setting) -> None:
    try:
        found.values[setting.field] = read_value(item, setting)
        return
    except ConfigError:
        if setting.otherwise is None or item.key.startswith(OWN_PREFIX):
            raise
        try:
            value = setting.otherwise(item.value)
        except ValueError:
            value = None
        if value is None:
            raise
    if value is UNSET:
        found.values.pop(setting.field, None)
    else:
        found.values[setting.field] = value
    found.altered.append((item, setting))


def read_value(item: Property, setting: Setting) -> object:
    """The value of one pair. Raises ConfigError unless it is one that is allowed."""
    try:
        return setting.read(item.value)
    except ValueError as error:
        if setting.is_secret:
            raise ConfigError(f"{item.where}: {item.key} must be {setting.allowed}") from None
        reason = f" ({error})" if isinstance(error, ConfigError | AddressError) else ""
        raise ConfigError(
            f"{item.where}: {item.key}={item.value!r} must be {setting.allowed}{reason}"
        ) from None


def altered_warnings(altered: Iterable[tuple[Property, Setting]], in_effect: Mapping[str, str]) -> list[str]:
    """One for each value that is not the one taken; `in_effect` has the latter by key."""
    return [
        f"{item.where}: {item.key}={item.value!r} is not {setting.allowed}: "
        + (f"{in_effect[item.key] or 'nothing'} is taken" if item.key in in_effect else "it is ignored")
        for item, setting in altered
    ]


def nearest_key(key: str, settings: Mapping[str, Setting]) -> str | None:
    """The known key that someone who wrote `key` may have meant, by letters or by the words in it.

    Of two that are as near, it is the one that the server reads.
    """
    best, best_likeness = None, 0.0
    own_words = _words(key)
    letters = difflib.SequenceMatcher(b=key.lower())
    for name in (*settings, *known_keys()):
        letters.set_seq1(name.lower())
        likeness = 0.0
        if letters.quick_ratio() >= _ALIKE_LETTERS and letters.ratio() >= _ALIKE_LETTERS:
            likeness = letters.ratio()
        words = _words(name)
        shared = len(own_words & words) / len(own_words | words)
        if shared >= _ALIKE_WORDS:
            likeness = max(likeness, shared)
        if likeness > best_likeness:
            best, best_likeness = name, likeness
    return best


_ALIKE_LETTERS: Final = 0.85
_ALIKE_WORDS: Final = 0.6


def _words(key: str) -> frozenset[str]:
    """`brokerIP1`: broker, ip, 1."""
    return frozenset(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", key))


def is_changeable(key: str, changeable: Collection[str], own: Collection[str], server: str) -> bool:
    """For a key that a request wants to change while a server runs; `own` are all that it reads. False for those that
    RocketMQ reads and this server does not: the request may have them, without effect.

    Raises ConfigError for all others, which says what to do instead.
    """
    if key in changeable:
        return True
    can_be = f"; these can be changed: {', '.join(sorted(changeable))}" if changeable else ""
    if key in own:
        raise ConfigError(
            f"{key} cannot be changed while the {server} runs: set it in the conf file and restart{can_be}"
        )
    if key in known_keys():
        return False
    raise ConfigError(f"unknown key {key}{can_be}")


def without_effect(keys: Sequence[str]) -> str | None:
    """What the answer says of such keys that were accepted."""
    return f"without effect here: {', '.join(keys)}" if keys else None


def boolean(field: str) -> Setting:
    """RocketMQ takes everything but `true` for false."""

    def read(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"

    return Setting(field, read, "true or false", lambda text: False)


def switch(field: str) -> Setting:
    """true or false, and nothing else: what RocketMQ takes for false would leave a server open of which its owner
    believes that it is locked.
    """
    return Setting(field, boolean(field).read, "true or false")


def whole_number(
    field: str, low: int, high: int, unit: str = "", *, step: int = 1, is_clamped: bool = True
) -> Setting:
    """A number from `low` to `high`, a multiple of `step`. Others are rounded up and clamped, or refused.

    As in RocketMQ, the default counts for what is no whole number.
    """

    def read(text: str) -> int:
        number = _java_number(text)
        if number is None or not low <= number <= high or number % step:
            raise ValueError(text)
        return number

    def otherwise(text: str) -> object:
        number = _java_number(text)
        if number is None:
            return UNSET
        if not is_clamped:
            raise ValueError(text)
        return min(max(-(-number // step) * step, low), high // step * step)

    multiple = f", a multiple of {step}" if step > 1 else ""
    return Setting(
        field,
        read,
        f"a whole number from {low} to {high}{' ' + unit if unit else ''}{multiple}",
        otherwise,
    )


def _java_number(text: str) -> int | None:
    """Of the texts that Python takes for a number, Java does not take 1_000."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None


def words(field: str) -> Setting:
    """Any text but the empty one."""

    def read(text: str) -> str:
        if not text:
            raise ValueError(text)
        return text

    return Setting(field, read, "a text that is not empty")


def host(field: str, check: Callable[[str], None] = check_host) -> Setting:
    """An IP address or a name of a machine, to which a port will be added. `check` raises AddressError for others."""

    def read(text: str) -> str:
        check(unbracketed(text))
        return unbracketed(text)

    return Setting(field, read, "an IP address or a host's name, without a port")


def one_of(field: str, values: Mapping[str, object]) -> Setting:
    """A name of `values`, in any case."""
    by_name = {name.upper(): value for name, value in values.items()}

    def read(text: str) -> object:
        if text.upper() not in by_name:
            raise ValueError(text)
        return by_name[text.upper()]

    return Setting(field, read, "one of " + ", ".join(values), lambda text: UNSET)


def addresses(field: str) -> Setting:
    """`host:port` joined by `;`, as NameServers are listed; the value is a tuple of such texts."""

    def read(text: str) -> tuple[str, ...]:
        return tuple(map(str, parse_addresses(text)))

    return Setting(field, read, "host:port, several joined by ;")
