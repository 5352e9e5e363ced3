"""Which IndexFiles of a replica there are to check, each up to where it must hold the keys of the log.

Java has all keys of a log that it stopped cleanly. Ours trails the log, and its mark says how far its newest file is
on disk, also while a broker runs or after a crash; the files' own headers cannot say it then.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from store.errors import StoreConfigError
from store.index.index_file_mark import IndexFileMark, mark_after_clean_stop
from store.layout.index_file import (
    HASH_SLOT_SIZE,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    IndexFileShape,
    IndexHeader,
    entry_offset,
    parse_index_header,
)
from verify.findings import Finding, Kind
from verify.queues.units_bound import is_ours
from verify.replica import EVERYTHING, Replica

# Java's files have four entries per slot unless somebody changed one of the two settings.
_ENTRIES_PER_SLOT: Final = 4
_NO_HEADER: Final = IndexHeader(0, 0, 0, 0, 0, 0)  # before a file's first flush has ended


@dataclass(frozen=True, slots=True)
class IndexFileOnDisk:
    path: str
    header: IndexHeader  # what it says, or what our own mark remembers of it
    shape: IndexFileShape

    @property
    def name(self) -> str:
        return Path(self.path).name


@dataclass(frozen=True, slots=True)
class IndexFilePlan:
    """A unit of work. Offsets are physical ones, of records."""

    replica: Replica
    file: IndexFileOnDisk
    begin_phy_offset: int  # of the log: what is before it has expired
    end_phy_offset: int  # keys of messages before it are to be in the file, unless a later file begins there
    # Of the neighbours: a message's keys may be split between two files.
    previous_end: int
    next_begin: int
    damaged: tuple[tuple[int, int], ...]
    lost_from: int  # what points behind it was lost with the log's tail in a crash
    is_settled: (
        bool  # up to its header's end all is there: nobody writes that part, or was killed while he did
    )
    may_go_on: bool = False  # entries that the header does not count may have been put into the file
    header_fault: str | None = None  # what is wrong with it by the mark


def plan_index_files(
    replica: Replica, begin_pos: int, end_pos: int, damaged: Sequence[tuple[int, int]]
) -> tuple[list[IndexFilePlan], list[str], list[Finding]]:
    """Units of work, notes on files that cannot be checked, and findings of those that cannot be read or are gone."""
    notes: list[str] = []
    found_at_once: list[Finding] = []
    files: list[IndexFileOnDisk] = []
    mark = replica.index_file_mark
    gaps: set[int] = set()  # before the files of these numbers lies one that cannot be read
    paths = _paths(replica)
    for path in paths:
        try:
            found = _open(path, mark.shape if mark is not None else None)
            is_fresh = found is not None and _is_fresh(found)
        except FileNotFoundError:
            continue  # as in check_index_file()
        except OSError as error:
            found_at_once.append(unreadable_index_file(replica, path, error))
            gaps.add(len(files))
            continue
        if found is None:
            name = replica.relative(path)
            notes.append(
                f"{replica.name}: {name} was not looked at: its size does not tell how many slots it has"
            )
        elif not is_fresh:
            files.append(found)
    may_be_under_way = replica.is_live or not replica.stopped_cleanly
    header_fault = None
    if mark is not None and _is_gone(replica, mark, paths, begin_pos):
        found_at_once.append(_gone(replica, mark))
    if mark is not None and not may_be_under_way:
        newest = files[-1] if files else None
        name, header = (newest.name, newest.header) if newest is not None else ("", None)
        mark, header_fault = mark_after_clean_stop(mark, name, header)
    if mark is not None and may_be_under_way:
        files = [file for file in files if file.name <= mark.file_name]  # the others do not count yet
    is_marked = mark is not None and bool(files) and files[-1].name == mark.file_name
    if mark is not None and is_marked:
        files[-1] = replace(files[-1], header=mark.header)
    elif files and may_be_under_way and files[-1].header == _NO_HEADER:
        files.pop()  # entries come first: nothing says yet that they count
    is_settled = not may_be_under_way and not is_ours(replica)
    units = []
    for number, file in enumerate(files):
        ends_at_gap = number + 1 in gaps
        following = -1
        if number + 1 < len(files) and not ends_at_gap:
            following = files[number + 1].header.begin_phy_offset
        previous_end = files[number - 1].header.end_phy_offset if number else -1
        if number in gaps:
            previous_end = file.header.begin_phy_offset
        is_whole = is_settled and not ends_at_gap
        end = end_pos if is_whole else file.header.end_phy_offset + 1
        is_newest_marked = is_marked and file is files[-1]
        if mark is not None and is_newest_marked:
            end = min(max(mark.covered_pos, mark.last_phy_offset + 1), end_pos)
            if mark.last_phy_offset < file.header.end_phy_offset:
                # Read from the files by a recovery, which cannot tell whether all keys of the last record are in them.
                following = file.header.end_phy_offset
        units.append(
            IndexFilePlan(
                replica,
                file,
                begin_pos,
                end if following < 0 else following + 1,
                previous_end,
                following,
                tuple(sorted(damaged)),
                EVERYTHING if is_settled else end_pos,
                is_whole or following >= 0 or is_newest_marked,
                may_go_on=is_newest_marked and may_be_under_way,
                header_fault=header_fault if is_newest_marked else None,
            )
        )
    return units, notes, found_at_once


def _paths(replica: Replica) -> list[str]:
    """Oldest first: the names are times."""
    directory = Path(replica.directory) / "index"
    return sorted(str(path) for path in directory.glob("[0-9]*") if path.name.isdigit() and path.is_file())


def _is_gone(replica: Replica, mark: IndexFileMark, paths: Sequence[str], begin_phy_offset: int) -> bool:
    """Whether nobody but an accident can have taken the newest file away: retention leaves it while the log holds a
    message of it, and a broker of Java's that made the index anew begins with a later name. Without any of the
    directory it is a store that was copied without its index."""
    is_needed = mark.file_name and mark.header.end_phy_offset >= begin_phy_offset
    is_there = (Path(replica.directory) / "index").is_dir()
    is_last = all(Path(path).name < mark.file_name for path in paths)
    return bool(is_needed) and is_there and is_last and not replica.is_live


def _gone(replica: Replica, mark: IndexFileMark) -> Finding:
    file = replica.relative(str(Path(replica.directory) / "index" / mark.file_name))
    count = mark.header.index_count - 1
    sentence = f"the newest IndexFile is not there, with its {count} entries of keys"
    return Finding(kind=Kind.MISSING_FILE, replica=replica.name, file=file, count=count, sentence=sentence)


def _open(path: str, ours: IndexFileShape | None) -> IndexFileOnDisk | None:
    """None if nothing tells how many slots the file has."""
    with open(path, "rb") as file:
        try:
            header = parse_index_header(file.read(INDEX_HEADER_SIZE))
        except struct.error:
            return None
        shape = _shape_of(os.fstat(file.fileno()).st_size, ours)
        return IndexFileOnDisk(path, header, shape) if shape is not None else None


def _shape_of(size: int, ours: IndexFileShape | None) -> IndexFileShape | None:
    """`ours` if it can be: a broker of Java's may have made the files anew since."""
    if ours is not None and ours.file_size == size:
        return ours
    slot_count, rest = divmod(size - INDEX_HEADER_SIZE, HASH_SLOT_SIZE + _ENTRIES_PER_SLOT * INDEX_ENTRY_SIZE)
    try:
        return IndexFileShape(slot_count, _ENTRIES_PER_SLOT * slot_count) if not rest else None
    except StoreConfigError:
        return None


def _is_fresh(file: IndexFileOnDisk) -> bool:
    """Made ahead, with nothing in it yet."""
    if file.header.index_count > 1 or file.header.begin_phy_offset:
        return False
    with open(file.path, "rb") as opened:
        opened.seek(entry_offset(1, file.shape.slot_count))
        return not any(opened.read(INDEX_ENTRY_SIZE))


def unreadable_index_file(replica: Replica, path: str, error: OSError) -> Finding:
    return Finding(
        kind=Kind.UNREADABLE_FILE,
        replica=replica.name,
        file=replica.relative(str(error.filename or path)),
        sentence=f"it cannot be read: {error.strerror or error}; entries of keys were not compared with the log",
    )
