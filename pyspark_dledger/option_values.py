"""The values of options, as Spark hands them over: texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class OptionError(ValueError):
    """An option that cannot be understood. The text says what may be given."""


def listed(text: str) -> list[str]:
    """Parts between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def choice(given: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """One of the words, the first where nothing is said. Raises OptionError."""
    text = given.get(name, choices[0]).lower()
    if text not in choices:
        raise OptionError(f"option {name}={given[name]!r}: it is one of {', '.join(choices)}")
    return text


def number(given: Mapping[str, str], name: str, *, at_least: int) -> int | None:
    """None where nothing is said. Raises OptionError."""
    if name not in given:
        return None
    text = given[name].strip()
    if not (text.isascii() and text.isdecimal()) or int(text) < at_least:
        raise OptionError(f"option {name}={given[name]!r}: a whole number of at least {at_least} is needed")
    return int(text)
