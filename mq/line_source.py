"""Lines of a file or of standard input, as they come, and the key and tag that stand in each."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType

import orjson

from mqclient import ProducerConfig

READ_SIZE = 256 * 1024
LINE_SIZE_MAX = ProducerConfig().body_size_max  # a line is a message's body

FieldReader = Callable[[int, bytes], str]
"""(line number from 1, line) -> the field's text, "" for none."""


class LineSource:
    """Use it as `with LineSource(path) as source: async for lines in source.chunks()`; `-` is standard input.

    Lines come without their end; empty ones are left out, as a message must not be empty. `bytes_read` counts what
    came out of the file, `size` is what a regular file holds (None for a pipe). No more than a line that is just too
    long is held in memory: a file without line ends may be a disk image that somebody named by mistake.
    """

    def __init__(self, path: str, *, line_size_max: int = LINE_SIZE_MAX) -> None:
        """Raises OSError when the file cannot be read."""
        self._line_size_max = line_size_max
        self._count = 0
        self._is_too_long = False
        self._owned = path != "-"
        self._descriptor = os.open(path, os.O_RDONLY) if self._owned else sys.stdin.fileno()
        stat = os.fstat(self._descriptor)
        if self._owned and Path(path).is_dir():
            os.close(self._descriptor)
            raise IsADirectoryError(f"{path} is a directory")
        self.size = stat.st_size if self._owned and Path(path).is_file() else None
        self.bytes_read = 0

    def __enter__(self) -> LineSource:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._owned:
            os.close(self._descriptor)

    async def chunks(self) -> AsyncIterator[list[bytes]]:
        """What one read brought, line by line: all that is there, so a slow pipe's lines do not wait for more.

        Raises ValueError for a line that is too long, after those before it.
        """
        rest = b""
        while not self._is_too_long and (
            data := await asyncio.to_thread(os.read, self._descriptor, READ_SIZE)
        ):
            self.bytes_read += len(data)
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > self._line_size_max + 1:  # one more may be the \r of its end
                lines.append(rest)
            yield self._stripped(lines)
        if not self._is_too_long and (last := self._stripped([rest])):
            yield last
        if self._is_too_long:
            raise ValueError(
                f"line {self._count + 1} is longer than {self._line_size_max} bytes, the most that `mq produce` sends"
            )

    def _stripped(self, lines: list[bytes]) -> list[bytes]:
        """Up to the first one that is too long."""
        found = []
        for line in lines:
            if stripped := line.rstrip(b"\r"):
                if len(stripped) > self._line_size_max:
                    self._is_too_long = True
                    break
                found.append(stripped)
        self._count += len(found)
        return found


def field_reader(spec: str, separator: str = "\t") -> FieldReader:
    """What a `--keys-from` or `--tags-from` option means. Raises ValueError in words for the one who typed it.

    `none`; `line`: the line's number; `column:N`: the N-th column, from 1; `json:NAME`: that member of a JSON object.
    """
    kind, _, argument = spec.partition(":")
    if kind == "none" and not argument:
        return lambda number, line: ""
    if kind == "line" and not argument:
        return lambda number, line: str(number)
    if kind == "column" and argument.isdigit() and int(argument) > 0:
        return _column_reader(int(argument) - 1, separator.encode())
    if kind == "json" and argument:
        return _json_reader(argument)
    raise ValueError(f"{spec!r} is none of: none, line, column:N, json:NAME")


def _column_reader(position: int, separator: bytes) -> FieldReader:
    def read(number: int, line: bytes) -> str:
        columns = line.split(separator, position + 1)
        return columns[position].decode(errors="replace").strip() if len(columns) > position else ""

    return read


def _json_reader(name: str) -> FieldReader:
    def read(number: int, line: bytes) -> str:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise ValueError(f"line {number} is not JSON, and the option json:{name} needs it") from None
        member = value.get(name) if isinstance(value, dict) else None
        return "" if member is None else member if isinstance(member, str) else orjson.dumps(member).decode()

    return read
