"""One log from a place on, entry by entry in order, for whoever goes on where a look before has ended.

A validation has all of a log in hand and judges it as a whole. Here each entry must follow the one before it by
position, index, term and chain, and the walk ends at the first that does not: its error names what lies there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from dledger.entry import (
    BLANK_HEADER,
    BLANK_MAGIC,
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    GENESIS_CHAIN,
    chain_after,
    parse_header,
)
from verify.findings import Kind
from verify.log.data_file import DataFile
from verify.log.entry_scan import Run, scan, up_to
from verify.replica import Replica
from verify.work import DataRange


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Between two entries of a log. All members of a group have the same entries at the same positions.

    `index`, `term`, `chain`: of the entry before; -1, -1 and GENESIS_CHAIN in front of the first one ever. `chain` is
    None where nobody knows it: before a log's oldest entry, and behind entries of Java, which have none.
    """

    index: int
    term: int
    chain: int | None
    pos: int  # where the next entry lies, or a blank in front of it


class LogBrokenError(Exception):
    """The entry `index`, which should be at `pos`, is not there or does not follow the one before it."""

    def __init__(self, replica: str, kind: Kind, index: int, pos: int, file: str, reason: str) -> None:
        """`file`: relative to the store directory."""
        super().__init__(
            f"{replica}: {kind}: entry {index} at position {pos} of the log, in {file}: {reason}"
        )
        self.replica = replica
        self.kind = kind
        self.index = index
        self.file = file
        self.reason = reason


def begin_of(replica: Replica) -> LogPlace | None:
    """The place in front of the oldest entry; None where nothing says which that is. Raises OSError."""
    mark = replica.mark
    if mark is not None and mark.begin_pos >= replica.begin_pos:
        is_known = mark.before_begin_index < 0 or mark.before_begin_chain != GENESIS_CHAIN
        chain = mark.before_begin_chain if is_known else None
        return LogPlace(mark.before_begin_index, mark.before_begin_term, chain, mark.begin_pos)
    if replica.data_files and replica.begin_pos == 0:
        return LogPlace(-1, -1, GENESIS_CHAIN, 0)
    for file in replica.data_files:
        for part in scan(DataRange(replica, file, 0, file.size)):
            if isinstance(part, Run):
                return LogPlace(part.first_index - 1, -1, None, part.first_pos)
    return None


def walk_from(replica: Replica, place: LogPlace, last_index: int) -> Iterator[Run]:
    """The entries behind `place`, up to `last_index`, which must all be there. Raises LogBrokenError, OSError."""
    begin = begin_of(replica) if place.pos < replica.begin_pos else None
    if begin is not None and begin.index == place.index:
        place = replace(place, pos=begin.pos)  # the file whose blank was in front of it is gone
    for file in replica.data_files:
        if place.index >= last_index:
            return
        if file.base + file.size <= place.pos:
            continue
        if file.base > place.pos:
            place = _over_the_blank(replica, place, file)
        for part in scan(DataRange(replica, file, place.pos - file.base, file.size)):
            run = up_to(part, last_index) if isinstance(part, Run) else None
            if run is None:
                continue  # what lies between entries is no matter if these follow each other
            _check_link(replica, place, run)
            yield run
            place = place_after(run)
            if place.index >= last_index:
                return
    if place.index < last_index:
        raise _nothing_follows(replica, place)


def place_after(run: Run) -> LogPlace:
    last = parse_header(run.last_header)
    return LogPlace(run.last_index, last.term, last.chain_crc if run.has_crcs else None, run.next_pos)


def _over_the_blank(replica: Replica, place: LogPlace, file: DataFile) -> LogPlace:
    """The same place at the start of `file`, if a blank leads there."""
    before = _file_at(replica, place.pos)
    if before is None or before.base + before.size != file.base or not _is_blank_at(before, place.pos):
        raise _nothing_follows(replica, place)
    return replace(place, pos=file.base)


def _is_blank_at(file: DataFile, pos: int) -> bool:
    """What a blank holds is no matter here: the entry behind it must follow the one in front of it."""
    left = file.base + file.size - pos
    return _read(file, pos, BLANK_HEADER.size) == BLANK_HEADER.pack(BLANK_MAGIC, left)


def _check_link(replica: Replica, place: LogPlace, run: Run) -> None:
    """Raises LogBrokenError unless the run's first entry is the one behind `place`."""
    if run.first_pos != place.pos:
        raise _nothing_follows(replica, place)
    header = parse_header(run.first_header)
    is_known = run.has_crcs and place.chain is not None
    computed = chain_after(run.first_header, place.chain or GENESIS_CHAIN)
    if header.index != place.index + 1:
        # What was written so has its chain; what a bit made of it has not.
        kind = Kind.DAMAGED_HEADER if is_known and computed != header.chain_crc else Kind.GAP
        reason = f"it says index {header.index}"
    elif header.term < place.term:
        kind, reason = Kind.NON_MONOTONIC_TERM, f"term {header.term} after term {place.term}"
    elif not run.has_crcs and place.index >= 0 and place.chain is not None:
        kind, reason = Kind.CHAIN_CRC, "its CRC fields are 0, those of the entry before are not"
    elif is_known and computed != header.chain_crc:
        stored = header.chain_crc & 0xFFFFFFFF
        kind, reason = Kind.CHAIN_CRC, f"{stored:#010x} stored, {computed & 0xFFFFFFFF:#010x} computed"
    else:
        return
    raise _broken(replica, place, kind, reason)


def _nothing_follows(replica: Replica, place: LogPlace) -> LogBrokenError:
    """No sound entry is at the place: says what is."""
    file = _file_at(replica, place.pos)
    if file is None:
        return _broken(replica, place, Kind.MISSING_FILE, "the file of this position is not there")
    if _is_blank_at(file, place.pos):
        reason = f"the file behind {PurePath(file.path).name} is not there"
        return _broken(replica, place, Kind.MISSING_FILE, reason)
    head = _read(file, place.pos, ENTRY_HEADER_SIZE)
    if len(head) == ENTRY_HEADER_SIZE:
        header = parse_header(head)
        is_whole = (
            header.magic == ENTRY_MAGIC
            and header.size == header.body_length + ENTRY_HEADER_SIZE
            and (header.index, header.pos) == (place.index + 1, place.pos)
        )
        if is_whole:
            return _broken(replica, place, Kind.BODY_CRC, "its body does not match its checksum")
    what = "bytes are zero" if not any(head) else "no header of it is there"
    return _broken(replica, place, Kind.DAMAGED_HEADER, what)


def _broken(replica: Replica, place: LogPlace, kind: Kind, reason: str) -> LogBrokenError:
    file = _file_at(replica, place.pos)
    name = replica.relative(file.path) if file is not None else replica.relative(replica.data_directory)
    return LogBrokenError(replica.name, kind, place.index + 1, place.pos, name, reason)


def _file_at(replica: Replica, pos: int) -> DataFile | None:
    return next((file for file in replica.data_files if file.base <= pos < file.base + file.size), None)


def _read(file: DataFile, pos: int, size: int) -> bytes:
    with open(file.path, "rb", buffering=0) as opened:
        return os.pread(opened.fileno(), size, pos - file.base)
