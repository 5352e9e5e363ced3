"""One pass over a range of a data file: runs of sound entries, and what lies between them.

Decides what a sound entry is when nothing before it is known: a header that says of itself that it is here, and a body
that has its CRC. How entries follow each other is looked at too, yet only to end a run where they do not; who holds
all runs of a replica judges it (log_judge.py), and what is between them is looked at by entry_faults.py. So the entries
found are the same however the log is cut into units.

A plain CommitLog has records instead of entries: a record is sound when it says that it is here, its lengths add up and
its body has its CRC.
"""

from __future__ import annotations

import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from zlib_ng.zlib_ng import crc32

from dledger.entry import (
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    EntryHeader,
    RangeCorruptError,
    VerifiedRange,
    parse_header,
    verify_entries,
)
from message.decoder import decode_message
from message.errors import MessageDecodeError
from message.record_layout import HOSTS_V6_MASK, MESSAGE_MAGIC_V1, RECORD_HEAD_V4, RECORD_SIZE_MIN
from verify.log.data_file import Layout
from verify.log.range_crc import RangeCrc
from verify.work import DataRange

WINDOW_SIZE: Final = 4 * 1024 * 1024
_LARGE_BODY: Final = 64 * 1024  # what is no entry may claim to be as large, and is looked at byte by byte
_ZEROS: Final = bytes(WINDOW_SIZE)
_MAGIC_BYTES: Final = ENTRY_MAGIC.to_bytes(4, "big")
# What the magics of all records begin with; four bytes of size are in front.
_RECORD_MAGIC_BYTES: Final = b"\xda\xa3\x20"
_RECORD_MAGIC_AT: Final = 4
# Of a record with IPv4 hosts: size, magic, bodyCRC, physicalOffset, sysFlag, bodyLength.
_RECORD_HEAD: Final = struct.Struct(">iIi16xqi44xi")


@dataclass(slots=True)
class Run:
    """Sound entries one behind the other, each linked to the one before it by index, term and chain.

    Of one window at most; the next Run of a scan may go on where this one ends. Without terms, kinds and indexes (-1)
    in a plain CommitLog. An entry whose CRC fields are 0 is Java's; a Run has only such entries or none.
    """

    first_index: int
    last_index: int
    first_pos: int  # position in the log of the first entry's header (of the record in a CommitLog)
    next_pos: int
    offsets: list[int]  # of each entry in `buffer`
    record_shift: int  # bytes from an entry's start to its record: 48, or 0 in a CommitLog
    terms: list[int]
    kinds: list[int]  # EntryKind values, or what a newer version wrote
    buffer: bytes = field(repr=False)  # may begin before the first entry and go on behind the last one
    has_crcs: bool = True

    @property
    def count(self) -> int:
        return len(self.offsets)

    @property
    def ends(self) -> list[int]:
        """Of each entry in `buffer`: the offset behind it."""
        return [*self.offsets[1:], self.offsets[0] + self.next_pos - self.first_pos]

    @property
    def first_header(self) -> bytes:
        """48 bytes; in a CommitLog they mean nothing."""
        return self.buffer[self.offsets[0] : self.offsets[0] + ENTRY_HEADER_SIZE]

    @property
    def last_header(self) -> bytes:
        return self.buffer[self.offsets[-1] : self.offsets[-1] + ENTRY_HEADER_SIZE]


@dataclass(frozen=True, slots=True)
class Rest:
    """Bytes of the unit from pos on that belong to no sound entry that begins in the unit: unwritten zeros, a blank,
    damage, or the end of an entry of the unit before."""

    pos: int
    end_pos: int
    nonzero_end: int  # behind the last byte that is not 0; pos if all are


def scan(unit: DataRange) -> Iterator[Run | Rest]:
    """What of the unit is entries and what is not, in order of position, without gap. Raises OSError.

    An entry belongs to the unit in which its header begins; the last one may go on behind the unit's end, within its
    file. The unit is taken to begin anywhere.
    """
    with open(unit.file.path, "rb", buffering=0) as file:
        window = Window(file.fileno(), unit.file.size)
        scanner = _EntryScanner if unit.replica.layout is Layout.DLEDGER else _RecordScanner
        yield from scanner(window, unit.file.base, unit.end).scan(unit.start)


def up_to(run: Run, last_index: int | None) -> Run | None:
    """The entries of a Run up to an index; None for none, all where there is no limit or no index."""
    if last_index is None or run.last_index <= last_index:
        return run
    count = last_index - run.first_index + 1
    if count <= 0:
        return None
    return replace(
        run,
        last_index=last_index,
        next_pos=run.first_pos + run.offsets[count] - run.offsets[0],
        offsets=run.offsets[:count],
        terms=run.terms[:count],
        kinds=run.kinds[:count],
    )


class Window:
    """The part of a file that is in memory; it moves forward."""

    def __init__(self, descriptor: int, file_size: int) -> None:
        self.data = b""
        self.start = 0  # in the file
        self.file_size = file_size
        self._descriptor = descriptor

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def hold(self, offset: int, size: int) -> int:
        """Makes [offset, offset + size) be here, as far as the file goes; returns where offset is in `data`."""
        if offset < self.start or min(offset + size, self.file_size) > self.end:
            self.data = self._pread(max(size, WINDOW_SIZE), offset)
            self.start = offset
        return offset - self.start

    def read(self, offset: int, size: int) -> bytes:
        """Without moving. Less only at the file's end."""
        if offset >= self.start and min(offset + size, self.file_size) <= self.end:
            return self.data[offset - self.start : offset - self.start + size]
        return self._pread(size, offset)

    def next_data(self, offset: int) -> int:
        """Where the file system says that bytes are, at or behind `offset`: what it never stored is 0."""
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError:
            return self.file_size

    def _pread(self, size: int, offset: int) -> bytes:
        wanted = min(size, self.file_size - offset)
        data = os.pread(self._descriptor, wanted, offset)
        while len(data) < wanted:
            part = os.pread(self._descriptor, wanted - len(data), offset + len(data))
            if not part:
                raise OSError(f"the file ends at {offset + len(data)}, and had {self.file_size} bytes before")
            data += part
        return data


class _Scanner(ABC):
    """What entries and records have in common: the search for the next sound one."""

    _pattern: bytes
    _pattern_at: int  # in an entry
    _head_size: int  # of what says that an entry is here

    def __init__(self, window: Window, base: int, end: int) -> None:
        self._window = window
        self._base = base
        self._end = end  # entries that begin before it are ours
        self._crcs = RangeCrc(window.read)

    def scan(self, start: int) -> Iterator[Run | Rest]:
        at = start
        while at < self._end:
            found, nonzero_end = self._find(at)
            if found > at:
                yield Rest(self._base + at, self._base + found, self._base + nonzero_end)
            at = found
            if at < self._end:
                for run in self._runs(at):
                    at = run.next_pos - self._base
                    yield run

    @abstractmethod
    def _runs(self, at: int) -> Iterator[Run]:
        """From the sound entry at `at` on, as long as each is sound and linked to the one before it."""

    @abstractmethod
    def _is_sound(self, at: int) -> bool:
        """Whether a sound entry begins at `at`."""

    def _is_sound_record(self, at: int, size: int) -> bool:
        head = self._window.read(at, min(size, RECORD_SIZE_MIN))
        if size < RECORD_SIZE_MIN or head_fault(head, 0, size, self._base + at):
            return False  # without reading all that it claims to be
        return not record_fault(self._window.read(at, size), 0, size, self._base + at)

    def _find(self, start: int) -> tuple[int, int]:
        """The first sound entry that begins in [start, end), or end; and the end of what is not 0 before it."""
        window, at, nonzero_end = self._window, start, start
        while at < self._end:
            if not window.start <= at < window.end - self._head_size and window.end < window.file_size:
                window.hold(at, WINDOW_SIZE)
            inside = window.hold(at, 1)
            # A head that is cut by the window's end is looked at in the next window.
            cut = 0 if window.end == window.file_size else self._head_size - 1
            stop = min(len(window.data) - cut, self._end - window.start)
            at = window.start + stop
            # A head may begin with zeros, and with nothing else in front of the unit's end.
            if self._is_zero(inside, stop + self._head_size - 1):
                at = max(at, min(window.next_data(at) - self._head_size, self._end))
                continue
            place = inside - 1
            while (place := self._next_candidate(place + 1, stop)) >= 0:
                if self._is_sound(window.start + place):
                    break
            reached = place if place >= 0 else stop
            nonzero = len(window.data[inside:reached].rstrip(b"\0"))
            if nonzero:
                nonzero_end = window.start + inside + nonzero
            if place >= 0:
                return window.start + place, nonzero_end
        return self._end, nonzero_end

    def _is_zero(self, start: int, stop: int) -> bool:
        """Of the window's data. What is not zero nearly always shows at its start: behind each damaged entry a copy of
        the window would cost more than all else."""
        data = self._window.data
        if data[start : start + self._head_size].strip(b"\0"):
            return False
        rest = data[start:stop]
        return len(rest) <= WINDOW_SIZE and rest == _ZEROS[: len(rest)]

    def _next_candidate(self, start: int, stop: int) -> int:
        """Where in the window's data, in [start, stop), an entry's magic is in its place; -1: nowhere."""
        shift = self._pattern_at
        place = self._window.data.find(self._pattern, start + shift, stop + shift + len(self._pattern) - 1)
        return place - shift if place >= 0 else -1


class _EntryScanner(_Scanner):
    _pattern = _MAGIC_BYTES
    _pattern_at = 0
    _head_size = ENTRY_HEADER_SIZE

    def _runs(self, at: int) -> Iterator[Run]:
        run: Run | None = None
        while at < self._end:
            header = self._header(at)
            if header is None or (header.size > WINDOW_SIZE and not self._is_sound(at)):
                return
            start = self._window.hold(at, header.size)
            # Entries that begin behind the unit's end are another's; this one may end there.
            stop = min(len(self._window.data), max(self._end, at + header.size) - self._window.start)
            following = run if run is not None and is_followed_by(run, header) else None
            if is_javas(header):
                run = self._java_run(start, stop, following)
            else:
                run = self._sealed_run(start, stop, header, following)
            if run is None:
                return
            yield run
            at = run.next_pos - self._base

    def _sealed_run(self, start: int, stop: int, header: EntryHeader, before: Run | None) -> Run | None:
        """From `start` in the window on; `before` is the Run that this one goes on with, if any."""
        data = self._window.data
        view = memoryview(data)
        if before is not None and before.has_crcs:
            last = parse_header(before.last_header)
            verified = _verify(view[start:stop], header.index, header.pos, last.chain_crc, last.term)
            if verified.count:
                return self._run_of(verified, data, [start + offset for offset in verified.offsets], header)
        # What is before it is not known, or does not lead here: this entry is taken at its word.
        first_end = start + header.size
        if crc32(view[start + ENTRY_HEADER_SIZE : first_end]) != header.body_crc & 0xFFFFFFFF:
            return None
        verified = _verify(
            view[first_end:stop], header.index + 1, header.pos + header.size, header.chain_crc, header.term
        )
        verified.terms.insert(0, header.term)
        verified.kinds.insert(0, header.kind)
        offsets = [start, *[first_end + offset for offset in verified.offsets]]
        return self._run_of(verified, data, offsets, header)

    def _run_of(self, verified: VerifiedRange, data: bytes, offsets: list[int], first: EntryHeader) -> Run:
        return Run(
            first_index=first.index,
            last_index=first.index + len(offsets) - 1,
            first_pos=first.pos,
            next_pos=verified.next_pos,
            offsets=offsets,
            record_shift=ENTRY_HEADER_SIZE,
            terms=verified.terms,
            kinds=verified.kinds,
            buffer=data,
        )

    def _java_run(self, start: int, stop: int, before: Run | None) -> Run | None:
        """The same for entries whose CRC fields are 0: what there is to check is in the records."""
        data = self._window.data
        run = Run(-1, -1, -1, -1, [], ENTRY_HEADER_SIZE, [], [], data, has_crcs=False)
        term = parse_header(before.last_header).term if before is not None else -1
        at = start
        while stop - at >= ENTRY_HEADER_SIZE:
            header = parse_header(data, at)
            pos = self._base + self._window.start + at
            if (
                not _is_believable(header, pos, stop - at)
                or not is_javas(header)
                or (run.offsets and (header.index != run.last_index + 1 or header.term < term))
                or record_fault(data, at + ENTRY_HEADER_SIZE, header.body_length, pos + ENTRY_HEADER_SIZE)
            ):
                break
            if not run.offsets:
                run.first_index, run.first_pos = header.index, pos
            run.offsets.append(at)
            run.terms.append(header.term)
            run.kinds.append(header.kind)
            run.last_index, run.next_pos, term = header.index, pos + header.size, header.term
            at += header.size
        return run if run.offsets else None

    def _header(self, at: int) -> EntryHeader | None:
        """None where no header says that an entry is here."""
        raw = self._window.read(at, ENTRY_HEADER_SIZE)
        if len(raw) < ENTRY_HEADER_SIZE:
            return None
        header = parse_header(raw)
        return header if _is_believable(header, self._base + at, self._window.file_size - at) else None

    def _is_sound(self, at: int) -> bool:
        header = self._header(at)
        if header is None:
            return False
        if is_javas(header):
            return self._is_sound_record(at + ENTRY_HEADER_SIZE, header.body_length)
        if header.body_length > _LARGE_BODY:
            return self._crcs.of(at + ENTRY_HEADER_SIZE, header.body_length) == header.body_crc & 0xFFFFFFFF
        body = self._window.read(at + ENTRY_HEADER_SIZE, header.body_length)
        return crc32(body) == header.body_crc & 0xFFFFFFFF


class _RecordScanner(_Scanner):
    _pattern = _RECORD_MAGIC_BYTES
    _pattern_at = _RECORD_MAGIC_AT
    _head_size = RECORD_SIZE_MIN

    def _runs(self, at: int) -> Iterator[Run]:
        while at < self._end:
            raw = self._window.read(at, 4)
            size = int.from_bytes(raw, "big", signed=True)
            if not RECORD_SIZE_MIN <= size <= self._window.file_size - at:
                return
            if size > WINDOW_SIZE and not self._is_sound_record(at, size):
                return
            start = self._window.hold(at, size)
            stop = min(len(self._window.data), max(self._end, at + size) - self._window.start)
            run = self._run(start, stop)
            if not run.offsets:
                return
            yield run
            at = run.next_pos - self._base

    def _run(self, start: int, stop: int) -> Run:
        data = self._window.data
        first_pos = self._base + self._window.start + start
        offsets: list[int] = []
        at = start
        while stop - at >= RECORD_SIZE_MIN:
            size = int.from_bytes(data[at : at + 4], "big", signed=True)
            pos = first_pos + at - start
            if not RECORD_SIZE_MIN <= size <= stop - at or record_fault(data, at, size, pos):
                break
            offsets.append(at)
            at += size
        return Run(-1, -1, first_pos, first_pos + at - start, offsets, 0, [], [], data, has_crcs=False)

    def _is_sound(self, at: int) -> bool:
        size = int.from_bytes(self._window.read(at, 4), "big", signed=True)
        if not RECORD_SIZE_MIN <= size <= self._window.file_size - at:
            return False
        return self._is_sound_record(at, size)


def is_javas(header: EntryHeader) -> bool:
    """Java's DLedger fills neither CRC field."""
    return header.body_crc == 0 and header.chain_crc == 0


def is_followed_by(run: Run, header: EntryHeader) -> bool:
    """Whether the entry could be the next one, its chain apart."""
    return (
        header.pos == run.next_pos
        and header.index == run.last_index + 1
        and header.term >= run.terms[-1]
        and is_javas(header) is not run.has_crcs
    )


def record_fault(buffer: bytes, at: int, size: int, pos: int) -> str:
    """What is wrong with the record of `size` bytes at `at` in `buffer`, which should say that it is at `pos`; "" for
    a sound one."""
    if size < RECORD_SIZE_MIN:
        return f"{size} bytes are no record"
    _, magic, body_crc, _, sys_flag, body_length = _RECORD_HEAD.unpack_from(buffer, at)
    if fault := head_fault(buffer, at, size, pos):
        return fault
    topic_at = at + RECORD_HEAD_V4.size + body_length
    if (
        magic == MESSAGE_MAGIC_V1
        and not sys_flag & HOSTS_V6_MASK
        and 0 <= body_length <= size - RECORD_SIZE_MIN
    ):
        # Nearly all: five times as fast as making a message of it.
        properties_at = topic_at + 1 + buffer[topic_at]
        if properties_at + 2 + int.from_bytes(buffer[properties_at : properties_at + 2], "big") != size + at:
            return f"topic and properties do not fill the record's {size} bytes"
        crc = crc32(memoryview(buffer)[topic_at - body_length : topic_at]) & 0x7FFFFFFF
        return f"body CRC {crc}, stored {body_crc}" if body_length and crc != body_crc else ""
    try:
        decode_message(memoryview(buffer)[at : at + size])
    except MessageDecodeError as error:
        return str(error)
    return ""


def head_fault(buffer: bytes, at: int, size: int, pos: int) -> str:
    """The part of record_fault that needs RECORD_SIZE_MIN bytes at most."""
    said_size, _, _, said_pos, _, _ = _RECORD_HEAD.unpack_from(buffer, at)
    if said_size != size:
        return f"the record says that it has {said_size} bytes, and has {size}"
    if said_pos != pos:
        return f"the record says that it is at {said_pos}"
    return ""


def _is_believable(header: EntryHeader, pos: int, bytes_left: int) -> bool:
    return (
        header.magic == ENTRY_MAGIC
        and header.pos == pos
        and 0 <= header.body_length == header.size - ENTRY_HEADER_SIZE
        and header.size <= bytes_left
        and header.index >= 0
    )


def _verify(view: memoryview, first_index: int, first_pos: int, chain: int, term: int) -> VerifiedRange:
    """The sound entries at the start."""
    try:
        return verify_entries(
            view, first_index=first_index, first_pos=first_pos, prev_chain=chain, prev_term=term
        )
    except RangeCorruptError as error:
        return error.verified
