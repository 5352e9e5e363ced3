"""Replicas judged by their files alone: is each chain intact, are they equal byte for byte, is every acknowledged
record in them?

Reads what `dledger-<id>/data` holds with the entry codec and nothing else of the servers: the judge must not share
their mistakes about where a log ends or what is committed. Works on stopped members, and on running ones up to an
index that they have committed.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from dledger.entry import (
    BLANK_MAGIC,
    ENTRY_HEADER_SIZE,
    GENESIS_CHAIN,
    EntryHeader,
    EntryKind,
    RangeCorruptError,
    VerifiedRange,
    is_exact_blank,
    parse_header,
    verify_entries,
)

WINDOW_SIZE = 4 * 1024 * 1024


class ReplicaFilesError(Exception):
    """There is no replica to read: no such directory, no data files, files of different sizes."""


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What one replica's files hold, as far as its chain is intact. `fault` says what ended it, "" for a clean end.

    `positions`: where each entry begins, by index from `begin_index`; an entry of a message has its record 48 bytes on.
    """

    directory: Path
    begin_index: int
    end_index: int
    end_pos: int
    end_term: int
    chain_crc: int
    begin_pos: int
    term_begins: Mapping[int, int]
    message_count: int
    positions: array[int]
    fault: str = ""

    def index_at(self, pos: int) -> int:
        """The index of the entry that holds a byte position."""
        return self.begin_index + bisect_right(self.positions, pos) - 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """`common_index`: the last entry that all replicas hold, byte for byte. `missing`: acknowledged records that are
    not where the acknowledgement said, by physical offset."""

    replicas: Sequence[ReplicaReport]
    common_index: int
    fork: str
    missing: Sequence[int]
    acknowledged: int

    @property
    def faults(self) -> list[str]:
        faults = [f"{replica.directory}: {replica.fault}" for replica in self.replicas if replica.fault]
        if self.fork:
            faults.append(self.fork)
        if self.missing:
            shown = ", ".join(map(str, self.missing[:5]))
            faults.append(
                f"{len(self.missing)} acknowledged records are missing, at physical offset {shown}, …"
            )
        return faults


class ReplicaFiles:
    """The data files of one replica, read window by window."""

    def __init__(self, directory: Path) -> None:
        """`directory`: a store directory, or the `dledger-<id>` directory in it. Raises ReplicaFilesError."""
        self.directory = directory
        data = self._data_directory(directory)
        self._files = sorted(path for path in data.iterdir() if path.name.isdigit())
        if not self._files:
            raise ReplicaFilesError(f"{data} holds no data file")
        self.file_size = self._files[0].stat().st_size
        self.begin_pos = int(self._files[0].name)
        for position, path in enumerate(self._files):
            if (
                path.stat().st_size != self.file_size
                or int(path.name) != self.begin_pos + position * self.file_size
            ):
                raise ReplicaFilesError(
                    f"{path} has another size or begins elsewhere than the files before it say"
                )

    def read(self, pos: int, size: int) -> bytes:
        """Bytes from a position of the log on, not beyond the end of its file; empty behind the last file."""
        number, offset = divmod(pos - self.begin_pos, self.file_size)
        if number >= len(self._files):
            return b""
        with self._files[number].open("rb") as file:
            return os.pread(file.fileno(), min(size, self.file_size - offset), offset)

    def left_in_file(self, pos: int) -> int:
        return self.file_size - (pos - self.begin_pos) % self.file_size

    @staticmethod
    def _data_directory(directory: Path) -> Path:
        found = (
            [directory / "data"]
            if (directory / "data").is_dir()
            else sorted(directory.glob("dledger-*/data"))
        )
        if len(found) != 1:
            raise ReplicaFilesError(
                f"{directory} is no replica: expected one dledger-<id>/data in it, found {len(found)}"
            )
        return found[0]


def read_replica(
    files: ReplicaFiles,
    *,
    last_index: int | None = None,
    on_range: Callable[[VerifiedRange], None] = lambda verified: None,
) -> ReplicaReport:
    """Walks the log from its begin, up to `last_index` if given, checking every header, body and chain value.

    `on_range` sees each run of sound entries, its `buffer` included.
    """
    pos, chain, term, messages, fault = files.begin_pos, GENESIS_CHAIN, -1, 0, ""
    term_begins: dict[int, int] = {}
    positions: array[int] = array("q")
    first = _header_at(files, pos)
    begin_index = index = first.index if first is not None else 0
    if first is not None and begin_index > 0:
        # Only the entry before knew the chain's value here: the first one left is an anchor, taken at its word.
        if crc32(files.read(pos, first.size)[ENTRY_HEADER_SIZE:]) != first.body_crc & 0xFFFFFFFF:
            fault = f"entry {begin_index} at pos {pos}: body crc"
        positions.append(pos)
        pos, index, chain, term = pos + first.size, index + 1, first.chain_crc, first.term
        term_begins[term] = begin_index
        messages += first.kind == EntryKind.MESSAGE
    while not fault and (last_index is None or index <= last_index):
        header = _header_at(files, pos)
        if header is None:
            # The end, or a blank that leads to the next file.
            left = files.left_in_file(pos)
            if left == files.file_size or not is_exact_blank(files.read(pos, left)):
                break
            pos += left
            continue
        window = files.read(pos, max(WINDOW_SIZE, header.size if header.size > 0 else 0))
        try:
            verified = verify_entries(
                window, first_index=index, first_pos=pos, prev_chain=chain, prev_term=term
            )
        except RangeCorruptError as error:
            verified = error.verified
            if not verified.count:
                fault = str(error)
                break
        if last_index is not None and verified.last_index > last_index:
            end = verified.offsets[last_index + 1 - index]
            verified = verify_entries(
                window[:end], first_index=index, first_pos=pos, prev_chain=chain, prev_term=term
            )
        for number, entry_term in enumerate(verified.terms, index):
            if entry_term != term:
                term = entry_term
                term_begins[term] = number
        positions.extend([pos + offset for offset in verified.offsets])
        messages += verified.kinds.count(EntryKind.MESSAGE)
        on_range(verified)
        pos, index, chain = verified.next_pos, verified.last_index + 1, verified.chain
    if not fault and last_index is not None and index <= last_index:
        fault = f"ends at index {index - 1}, before {last_index}"
    return ReplicaReport(
        directory=files.directory,
        begin_index=begin_index,
        end_index=index - 1,
        end_pos=pos,
        end_term=term,
        chain_crc=chain,
        begin_pos=files.begin_pos,
        term_begins=term_begins,
        message_count=messages,
        positions=positions,
        fault=fault,
    )


def judge(
    directories: Sequence[Path],
    *,
    committed_index: int | None = None,
    acknowledged: Mapping[int, bytes] | None = None,
) -> Verdict:
    """Reads every replica and compares them.

    `committed_index`: what lies above may differ; without it, whatever two replicas both hold must be equal.
    `acknowledged`: physical offset of a record to a text that is in it (its UNIQ_KEY). Raises ReplicaFilesError.
    """
    files = [ReplicaFiles(directory) for directory in directories]
    if len({one.file_size for one in files}) > 1:
        raise ReplicaFilesError(
            "the replicas have data files of different sizes: they belong to different groups"
        )
    expected = dict(acknowledged or {})
    count = len(expected)

    def strike_out(verified: VerifiedRange) -> None:
        _strike_out(verified, expected)

    reports = []
    for position, one in enumerate(files):
        # Equal bytes make a second look for the same records needless.
        look = strike_out if expected and position == 0 else _pass_over
        reports.append(read_replica(one, last_index=committed_index, on_range=look))
    common_index, fork = _compare(files, reports)
    return Verdict(reports, common_index, fork, sorted(expected), count)


def _compare(files: Sequence[ReplicaFiles], reports: Sequence[ReplicaReport]) -> tuple[int, str]:
    """The last common index, and where two replicas part, if they do."""
    begin = max(reports, key=lambda report: report.begin_pos)
    shortest = min(reports, key=lambda report: report.end_pos)
    pos = begin.begin_pos
    while pos < shortest.end_pos:
        size = min(WINDOW_SIZE, shortest.end_pos - pos, files[0].left_in_file(pos))
        windows = [one.read(pos, size) for one in files]
        if len(set(windows)) > 1:
            at = pos + min(_first_difference(windows[0], window) for window in windows[1:])
            last = shortest.index_at(at) - 1
            return last, f"the replicas part behind index {last}, at position {at}"
        pos += size
    return shortest.end_index, ""


def _first_difference(one: bytes, other: bytes) -> int:
    """The offset of the first byte that differs, or the shorter length."""
    size = min(len(one), len(other))
    low, high = 0, size
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _strike_out(verified: VerifiedRange, expected: dict[int, bytes]) -> None:
    """Takes the records found in a range, with the text they must hold, off the list."""
    buffer, first_pos = verified.buffer, verified.first_pos
    ends = [*verified.offsets[1:], verified.size]
    for offset, end in zip(verified.offsets, ends, strict=True):
        phy_offset = first_pos + offset + ENTRY_HEADER_SIZE
        text = expected.get(phy_offset)
        if text is not None and text in bytes(buffer[offset + ENTRY_HEADER_SIZE : end]):
            del expected[phy_offset]


def _pass_over(verified: VerifiedRange) -> None:
    """For readers that only want the report."""


def _header_at(files: ReplicaFiles, pos: int) -> EntryHeader | None:
    """None where no entry begins: nothing written, a blank, or less than a header left."""
    raw = files.read(pos, ENTRY_HEADER_SIZE)
    if len(raw) < ENTRY_HEADER_SIZE:
        return None
    header = parse_header(raw)
    return None if header.magic in (0, BLANK_MAGIC) else header
