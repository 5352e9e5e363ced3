"""The data files of a log, by their names; and where a file belongs that was renamed."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from dledger.entry import ENTRY_HEADER_SIZE, ENTRY_MAGIC, parse_header
from message.record_layout import MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, RECORD_SIZE_MIN

_NAME_DIGITS: Final = 20
_POS_END: Final = 1 << 62  # a file's end must fit into 63 bits too


class Layout(StrEnum):
    DLEDGER = "dledger"  # entries of 48 bytes and a record, ours or Java's
    COMMIT_LOG = "commitlog"  # records one behind the other

    @property
    def record_shift(self) -> int:
        """Bytes from where an entry begins to its record."""
        return ENTRY_HEADER_SIZE if self is Layout.DLEDGER else 0


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    base: int  # position of its first byte in the log, as its name says
    size: int  # bytes, as the file system says


def data_files(directory: Path) -> tuple[DataFile, ...]:
    """Files by the names that a log's have; of a position that no log reaches, none."""
    files: list[DataFile] = []
    for path in sorted(directory.iterdir()):
        name = path.name
        if len(name) != _NAME_DIGITS or not (name.isascii() and name.isdigit()) or int(name) >= _POS_END:
            continue
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # retention took it meanwhile, or a link that leads nowhere: it is missing
        if stat.S_ISREG(status.st_mode):
            files.append(DataFile(str(path), int(name), status.st_size))
    return tuple(files)


def without_strays(files: Sequence[DataFile], size: int) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
    kept: list[DataFile] = []
    strays: list[DataFile] = []
    for file in files:
        (strays if kept and file.base < kept[-1].base + size else kept).append(file)
    return tuple(kept), tuple(strays)


def usual_size(files: Sequence[DataFile]) -> int:
    """The size that most files have: one that was cut short must not set it."""
    sizes = [file.size for file in files]
    return max(set(sizes), key=lambda size: (sizes.count(size), size), default=0)


def in_their_places(
    files: Sequence[DataFile], size: int, layout: Layout
) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
    """All files, with those that were renamed where their entries say that they belong, if nothing else lies there; and
    the renamed ones. So what is in them is looked at, and nothing is missing that is there."""
    taken = {file.base for file in files}
    placed: list[DataFile] = []
    renamed: list[DataFile] = []
    for file in files:
        base = _said_base(file, layout)
        if base != file.base and base % max(size, 1) == 0 and base not in taken:
            taken.add(base)
            file = replace(file, base=base)
            renamed.append(file)
        placed.append(file)
    return tuple(sorted(placed, key=lambda file: file.base)), tuple(renamed)


def _said_base(file: DataFile, layout: Layout) -> int:
    """Where the first two entries of the file say that it begins; its name's position where they do not agree."""
    try:
        with open(file.path, "rb") as opened:
            first_size, first_pos = _said(opened.read(RECORD_SIZE_MIN), layout)
            opened.seek(max(first_size, 0))
            _, second_pos = _said(opened.read(RECORD_SIZE_MIN), layout)
    except OSError:
        return file.base  # whoever reads its entries says so
    return first_pos if 0 <= first_pos < _POS_END and second_pos == first_pos + first_size else file.base


def _said(head: bytes, layout: Layout) -> tuple[int, int]:
    """Size and position that an entry, or a record, says of itself; -1 where none begins."""
    if len(head) < RECORD_SIZE_MIN:
        return -1, -1
    if layout is Layout.DLEDGER:
        header = parse_header(head)
        is_entry = header.magic == ENTRY_MAGIC and 0 <= header.body_length == header.size - ENTRY_HEADER_SIZE
        return (header.size, header.pos) if is_entry else (-1, -1)
    size, pos = int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[28:36], "big", signed=True)
    is_record = (
        int.from_bytes(head[4:8], "big") in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2) and size >= RECORD_SIZE_MIN
    )
    return (size, pos) if is_record else (-1, -1)
