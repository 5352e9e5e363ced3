"""Bytes between sound entries: what they should have been, and what is wrong with them.

Looked at once the entries before and behind them are known, whichever units those were read in, so the verdict does not
depend on how the log was cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zlib_ng.zlib_ng import crc32

from dledger.entry import (
    BLANK_HEADER,
    BLANK_HEADER_SIZE,
    BLANK_MAGIC,
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    EntryHeader,
    parse_header,
)
from message.record_layout import BLANK_HEADER as RECORD_BLANK_HEADER
from message.record_layout import BLANK_MAGIC as RECORD_BLANK_MAGIC
from message.record_layout import MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, RECORD_SIZE_MIN
from verify.findings import Kind
from verify.log.data_file import DataFile, Layout
from verify.log.entry_scan import is_javas, record_fault
from verify.replica import Replica

_ZEROS = bytes(
    ENTRY_HEADER_SIZE
)  # behind what is read of a region, so that a header can be parsed at its end


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes pos .. end_pos of one file that are no sound entries and not all zero; they are from `nonzero_end` on.

    `is_tail`: nothing sound is behind it in the whole log.
    `expected_index`: of the entry that should begin at `pos`, -1 where the entry before is not known. `next_index`: of
    the sound entry that begins at end_pos, or at the next file's start if the region ends with its file; -1 if none
    does.
    """

    replica: Replica
    file: DataFile
    pos: int
    end_pos: int
    nonzero_end: int
    is_tail: bool = False
    expected_index: int = -1
    next_index: int = -1


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes pos .. end_pos; an index of -1 is not known from the region alone."""

    kind: Kind
    pos: int
    end_pos: int
    first_index: int
    last_index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Examined:
    """Of a region. `blank_pos`: where an exact blank up to the file's end begins, -1 for none."""

    replica: str
    pos: int
    faults: tuple[Fault, ...]
    blank_pos: int = -1


def examine(regions: tuple[Region, ...]) -> Iterator[Examined]:
    """A region that cannot be read is a fault of its own."""
    for region in regions:
        try:
            with open(region.file.path, "rb") as file:
                file.seek(region.pos - region.file.base)
                data = file.read(region.nonzero_end - region.pos)
                if len(data) < region.nonzero_end - region.pos:
                    raise OSError("it was cut while it was read")
        except OSError as error:
            fault = Fault(
                Kind.UNREADABLE_FILE, region.pos, region.end_pos, -1, -1, str(error.strerror or error)
            )
            yield Examined(region.replica.name, region.pos, (fault,))
            continue
        examiner = _EntryExaminer if region.replica.layout is Layout.DLEDGER else _RecordExaminer
        yield examiner(region, data).examine()


class _EntryExaminer:
    def __init__(self, region: Region, data: bytes) -> None:
        self._region = region
        self._length = region.end_pos - region.pos
        self._nonzero = len(data)
        self._data = data + _ZEROS[: self._length - len(data)]
        self._reaches_file_end = region.end_pos == region.file.base + region.file.size

    def examine(self) -> Examined:
        region = self._region
        wrong_base = self._wrong_base()
        if wrong_base is not None:
            return Examined(region.replica.name, region.pos, (wrong_base,))
        faults: list[Fault] = []
        at, index, blank_pos = 0, region.expected_index, -1
        while at < self._nonzero:
            if self._is_blank(at):
                blank_pos = region.pos + at
                break
            if self._is_damaged_blank(at, index):
                faults.append(self._fault(Kind.BAD_BLANK, at, self._length, -1, -1, self._blank_reason(at)))
                break
            size, fault = self._entry(at, index)
            faults.append(fault)
            at += size
            index = fault.last_index + 1 if fault.last_index >= 0 else -1
        else:
            if at < self._length and not region.is_tail:
                reason = f"{self._length - at} bytes are zero"
                faults.append(self._fault(Kind.DAMAGED_HEADER, at, self._length, index, -1, reason))
        return Examined(region.replica.name, region.pos, _with_ends(faults, region), blank_pos)

    def _entry(self, at: int, index: int) -> tuple[int, Fault]:
        """Bytes and fault of the entry at `at`, which should have `index`; of all up to the next believable header when
        this one does not say where it ends."""
        data, pos = self._data, self._region.pos + at
        header = parse_header(data, at) if len(data) - at >= ENTRY_HEADER_SIZE else None
        if header is None or not any(data[at : at + ENTRY_HEADER_SIZE]):
            size = self._next_header(at + 1) - at
            if self._region.is_tail and header is not None:
                reason = f"nothing begins at {pos}, and yet what follows is not all zero"
                return self._nonzero - at, self._fault(Kind.STALE_BYTES, at, self._nonzero, -1, -1, reason)
            reason = f"{size} bytes are no entries" if any(data[at : at + size]) else f"{size} bytes are zero"
            return size, self._fault(Kind.DAMAGED_HEADER, at, at + size, index, -1, reason)
        is_inside = at + header.size <= self._length
        if self._is_consistent(header, at) and (is_inside or header.index == index):
            # The size is believed, so its body is what is wrong.
            size, own = header.size, index if index >= 0 else int(header.index)
            return size, self._fault(Kind.BODY_CRC, at, at + size, own, own, self._body_reason(header, at))
        for size in sorted({header.size, header.body_length + ENTRY_HEADER_SIZE}):
            if self._is_end(at, size):
                break
        else:
            size = self._next_header(at + 1) - at
            reason = _header_reason(header, pos)
            last = index if self._is_one_entry(at, size, index) else -1
            return size, self._fault(Kind.DAMAGED_HEADER, at, at + size, index, last, reason)
        own = index if index >= 0 else header.index
        if header.magic == ENTRY_MAGIC and header.size == header.body_length + ENTRY_HEADER_SIZE:
            if header.pos != pos:
                return size, self._fault(Kind.WRONG_POS, at, at + size, own, own, f"it says {header.pos}")
            return size, self._fault(Kind.BODY_CRC, at, at + size, own, own, self._body_reason(header, at))
        return size, self._fault(Kind.DAMAGED_HEADER, at, at + size, own, own, _header_reason(header, pos))

    def _is_one_entry(self, at: int, size: int, index: int) -> bool:
        """Whether what comes behind says that just one entry is lost."""
        region = self._region
        if at + size >= self._nonzero:
            return region.next_index == index + 1 and index >= 0
        is_header = self._is_header(at + size)
        return index >= 0 and is_header and parse_header(self._data, at + size).index == index + 1

    def _is_consistent(self, header: EntryHeader, at: int) -> bool:
        """A header that says that it is here, and nothing against it but what lies behind it."""
        return (
            header.magic == ENTRY_MAGIC
            and header.pos == self._region.pos + at
            and 0 <= header.body_length == header.size - ENTRY_HEADER_SIZE
            and header.pos + header.size <= self._region.file.base + self._region.file.size
        )

    def _is_end(self, at: int, size: int) -> bool:
        """Whether an entry of `size` at `at` would end where something begins."""
        end = at + size
        if size < ENTRY_HEADER_SIZE or end > self._length:
            return False
        return self._is_edge(end) or self._is_blank(end) or self._is_header(end)

    def _is_edge(self, at: int) -> bool:
        """The region ends here, or the log does."""
        return at == self._length or (self._region.is_tail and at >= self._nonzero)

    def _is_header(self, at: int) -> bool:
        if len(self._data) - at < ENTRY_HEADER_SIZE:
            return False
        header = parse_header(self._data, at)
        # Sound entries lie behind the region: what claims their bytes is none.
        return at + header.size <= self._length and self._is_consistent(header, at)

    def _next_header(self, start: int) -> int:
        """Where the next believable header begins, or the blank, or the region ends."""
        magic = ENTRY_MAGIC.to_bytes(4, "big")
        at = self._data.find(magic, start)
        while at >= 0:
            if self._is_header(at):
                return at
            at = self._data.find(magic, at + 1)
        return self._blank_start(start)

    def _blank_start(self, start: int) -> int:
        at = self._data.find(BLANK_MAGIC.to_bytes(4, "big", signed=True), start)
        while at >= 0:
            if self._is_blank(at):
                return at
            at = self._data.find(BLANK_MAGIC.to_bytes(4, "big", signed=True), at + 1)
        return self._nonzero if self._region.is_tail else self._length

    def _is_blank(self, at: int) -> bool:
        left = self._length - at
        if not self._reaches_file_end or left < BLANK_HEADER_SIZE:
            return False
        return self._says_blank(at, left) and not self._data[at + BLANK_HEADER_SIZE :].strip(b"\0")

    def _says_blank(self, at: int, left: int) -> bool:
        return BLANK_HEADER.unpack(self._bytes(at, BLANK_HEADER_SIZE)) == (BLANK_MAGIC, left)

    def _is_damaged_blank(self, at: int, index: int) -> bool:
        """No entry is missing up to the next file, or half of the blank's header is what it must be."""
        left = self._length - at
        if not self._reaches_file_end:
            return False
        if index >= 0 and index == self._region.next_index:
            return True
        if left < BLANK_HEADER_SIZE or self._region.next_index > index:
            return False
        magic, space = BLANK_HEADER.unpack(self._bytes(at, BLANK_HEADER_SIZE))
        return bool(magic == BLANK_MAGIC or space == left)

    def _blank_reason(self, at: int) -> str:
        left = self._length - at
        if left < BLANK_HEADER_SIZE:
            return f"{left} bytes are left, a blank has {BLANK_HEADER_SIZE}"
        if not self._says_blank(at, left):
            magic, space = BLANK_HEADER.unpack(self._bytes(at, BLANK_HEADER_SIZE))
            return f"it says magic {magic} and {space} bytes, and has {left}"
        return "there is more than zeros in it"

    def _wrong_base(self) -> Fault | None:
        """The file holds entries that say, all by the same distance, that they belong elsewhere."""
        region, data = self._region, self._data
        if region.pos != region.file.base or len(data) < ENTRY_HEADER_SIZE:
            return None
        first = parse_header(data)
        shift = first.pos - region.pos
        at, count, last_index = 0, 0, -1
        while shift and len(data) - at >= ENTRY_HEADER_SIZE:
            header = parse_header(data, at)
            if (
                header.magic != ENTRY_MAGIC
                or header.pos != region.pos + at + shift
                or not 0 <= header.body_length == header.size - ENTRY_HEADER_SIZE
                or (count and header.index != last_index + 1)
            ):
                break
            at, count, last_index = at + header.size, count + 1, header.index
        if count < 2 and not (count and self._reaches_file_end and shift % region.file.size == 0):
            return None
        if not self._reaches_file_end and at < self._length:
            return None
        reason = f"its entries say that they belong to position {first.pos} and behind"
        return self._fault(Kind.WRONG_FILE_BASE, 0, self._length, first.index, last_index, reason)

    def _body_reason(self, header: EntryHeader, at: int) -> str:
        body = self._bytes(at + ENTRY_HEADER_SIZE, header.body_length)
        if is_javas(header):
            return record_fault(body, 0, len(body), header.pos + ENTRY_HEADER_SIZE) or "cut short"
        return f"{header.body_crc & 0xFFFFFFFF:#010x} stored, {crc32(body):#010x} computed"

    def _bytes(self, at: int, size: int) -> bytes:
        """Behind what was read all is zero."""
        return self._data[at : at + size].ljust(size, b"\0")

    def _fault(
        self, kind: Kind, start: int, end: int, first_index: int, last_index: int, reason: str
    ) -> Fault:
        pos = self._region.pos
        return Fault(kind, pos + start, pos + end, first_index, last_index, reason)


class _RecordExaminer(_EntryExaminer):
    """Of a plain CommitLog. Records have no indexes, so a finding names their position."""

    def _entry(self, at: int, index: int) -> tuple[int, Fault]:
        data, pos = self._data, self._region.pos + at
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if self._is_header(at) or self._is_end(at, size):
            kind, reason = (
                Kind.DAMAGED_HEADER,
                record_fault(self._bytes(at, size), 0, size, pos) or "cut short",
            )
            if reason.startswith("body CRC"):
                kind = Kind.BODY_CRC
            elif reason.startswith("the record says that it is at"):
                kind = Kind.WRONG_POS
            return size, self._fault(kind, at, at + size, -1, -1, reason)
        size = self._next_header(at + 1) - at
        reason = f"{size} bytes are no record"
        return size, self._fault(Kind.DAMAGED_HEADER, at, at + size, -1, -1, reason)

    def _is_header(self, at: int) -> bool:
        size = int.from_bytes(self._data[at : at + 4], "big", signed=True)
        magic = int.from_bytes(self._data[at + 4 : at + 8], "big")
        said_pos = int.from_bytes(self._data[at + 28 : at + 36], "big", signed=True)
        return (
            RECORD_SIZE_MIN <= size <= self._length - at
            and magic in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)
            and said_pos == self._region.pos + at
        )

    def _next_header(self, start: int) -> int:
        at = self._data.find(b"\xda\xa3\x20", start + 4)
        while at >= 0:
            if self._is_header(at - 4):
                return at - 4
            at = self._data.find(b"\xda\xa3\x20", at + 1)
        return self._blank_start(start)

    def _is_end(self, at: int, size: int) -> bool:
        end = at + size
        if size < RECORD_SIZE_MIN or end > self._length:
            return False
        return self._is_edge(end) or self._is_blank(end) or self._is_header(end)

    def _blank_start(self, start: int) -> int:
        at = self._data.find(RECORD_BLANK_MAGIC.to_bytes(4, "big"), start + 4)
        while at >= 0:
            if self._is_blank(at - 4):
                return at - 4
            at = self._data.find(RECORD_BLANK_MAGIC.to_bytes(4, "big"), at + 1)
        return self._nonzero if self._region.is_tail else self._length

    def _says_blank(self, at: int, left: int) -> bool:
        return RECORD_BLANK_HEADER.unpack(self._bytes(at, BLANK_HEADER_SIZE)) == (left, RECORD_BLANK_MAGIC)

    def _is_damaged_blank(self, at: int, index: int) -> bool:
        left = self._length - at
        if not self._reaches_file_end or left < BLANK_HEADER_SIZE:
            return False
        space, magic = RECORD_BLANK_HEADER.unpack(self._bytes(at, BLANK_HEADER_SIZE))
        return bool(magic == RECORD_BLANK_MAGIC or space == left)

    def _blank_reason(self, at: int) -> str:
        left = self._length - at
        if not self._says_blank(at, left):
            space, magic = RECORD_BLANK_HEADER.unpack(self._bytes(at, BLANK_HEADER_SIZE))
            return f"it says magic {magic:#010x} and {space} bytes, and has {left}"
        return "there is more than zeros in it"

    def _wrong_base(self) -> Fault | None:
        return None


def _header_reason(header: EntryHeader, pos: int) -> str:
    if header.magic != ENTRY_MAGIC:
        return f"magic {header.magic}"
    if header.size != header.body_length + ENTRY_HEADER_SIZE:
        return f"size {header.size}, body length {header.body_length}"
    if header.pos != pos:
        return f"it says that it is at {header.pos}"
    return f"size {header.size} goes beyond what is there"


def _with_ends(faults: list[Fault], region: Region) -> tuple[Fault, ...]:
    """Fills in what the neighbours say about the indexes."""
    filled: list[Fault] = []
    following = region.next_index
    for fault in reversed(faults):
        first, last = fault.first_index, fault.last_index
        if fault.kind not in (Kind.BAD_BLANK, Kind.WRONG_FILE_BASE, Kind.STALE_BYTES):
            if last < 0 and following >= 0 and following - 1 >= first:
                last = following - 1
            following = first
        filled.append(Fault(fault.kind, fault.pos, fault.end_pos, first, last, fault.reason))
    return tuple(reversed(filled))
