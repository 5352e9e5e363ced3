"""Results as text for people: aligned columns, plain enough to be cut and pasted, in a pipe as on a terminal."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

MS_SUFFIX = "_ms"  # of a name: a time, in milliseconds since the epoch


def table_text(rows: Sequence[Mapping[str, object]]) -> str:
    """A line per row below a line of names. Columns that are empty in every row are left out; numbers stand right."""
    if not rows:
        return ""
    names = [name for name in rows[0] if any(row[name] not in (None, ()) for row in rows)]
    columns = []
    for name in names:
        cells = [cell(name, row[name]) for row in rows]
        title = name.removesuffix(MS_SUFFIX).replace("_", " ").upper()
        width = max(map(len, (title, *cells)))
        is_number = not name.endswith(MS_SUFFIX) and all(
            isinstance(row[name], int | float | None) and not isinstance(row[name], bool) for row in rows
        )
        columns.append([text.rjust(width) if is_number else text.ljust(width) for text in (title, *cells)])
    return "".join("  ".join(line).rstrip() + "\n" for line in zip(*columns, strict=True))


def pairs_text(pairs: Mapping[str, object], indent: str = "") -> str:
    """A line per name and value; a value of several lines stands below its name."""
    width = max(map(len, pairs), default=0)
    lines = []
    for name, value in pairs.items():
        text = cell(name, value)
        if "\n" in text:
            lines += [f"{indent}{name}", *(f"{indent}  {line}" for line in text.splitlines())]
        else:
            lines.append(f"{indent}{name:{width}}  {text}".rstrip())
    return "".join(f"{line}\n" for line in lines)


def cell(name: str, value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.2f}"
        case int() if name.endswith(MS_SUFFIX):
            return time_text(value)
        case list() | tuple():
            return ", ".join(cell("", item) for item in value) or "-"
        case Mapping():
            return ", ".join(f"{key}={cell('', item)}" for key, item in value.items()) or "-"
        case _:
            return str(value)


def time_text(timestamp_ms: int) -> str:
    """In this machine's time zone, to the second."""
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}"
