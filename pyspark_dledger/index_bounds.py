"""Which data files can hold the entries of a range of indexes, from the first header of each file."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.entry import ENTRY_HEADER_SIZE, ENTRY_MAGIC, parse_header
from verify.log.data_file import Layout
from verify.replica import Replica
from verify.work import DataRange


def units_between(
    units: Sequence[DataRange], index_from: int | None, index_to: int | None
) -> list[DataRange]:
    """The units that are worth reading for entries index_from .. index_to. Bounds are inclusive, None is none.

    A file whose first header does not read well is always worth it, and so are all files where the first indexes do
    not rise.
    """
    if index_from is None and index_to is None:
        return list(units)
    dropped: set[str] = set()
    for replica in {unit.replica.data_directory: unit.replica for unit in units}.values():
        if replica.layout is Layout.DLEDGER:
            dropped |= _files_outside(replica, index_from, index_to)
    return [unit for unit in units if unit.file.path not in dropped]


def _files_outside(replica: Replica, index_from: int | None, index_to: int | None) -> set[str]:
    firsts = [_first_index(file.path, file.base) for file in replica.data_files]
    known = [first for first in firsts if first is not None]
    if known != sorted(known):
        return set()
    outside: set[str] = set()
    for number, (file, first) in enumerate(zip(replica.data_files, firsts, strict=True)):
        if index_to is not None and first is not None and first > index_to:
            outside.add(file.path)
        following = firsts[number + 1] if number + 1 < len(firsts) else None
        if index_from is not None and following is not None and following <= index_from:
            outside.add(file.path)
    return outside


def _first_index(path: str, base: int) -> int | None:
    with open(path, "rb") as file:
        raw = file.read(ENTRY_HEADER_SIZE)
    if len(raw) < ENTRY_HEADER_SIZE:
        return None
    header = parse_header(raw)
    return header.index if header.magic == ENTRY_MAGIC and header.pos == base else None
