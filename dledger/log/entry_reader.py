"""Reads entries of the data files in order and proves each of them, from a known one on or from the start of a file."""

import struct
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec
from msgspec.structs import replace

from dledger.entry import (
    BLANK_HEADER,
    BLANK_HEADER_SIZE,
    BLANK_MAGIC,
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    GENESIS_CHAIN,
    EntryCorruptError,
    EntryFault,
    EntryHeader,
    Index,
    Pos,
    RangeCorruptError,
    Term,
    VerifiedRange,
    fill_crcs,
    is_exact_blank,
    parse_header,
    verify_entries,
)
from dledger.log.data_files import DataFiles
from dledger.log.errors import LedgerConfigError

_CHUNK_SIZE = 4 * 1024 * 1024
_SEARCHED_SIZE = 1024 * 1024
_MAGIC = struct.pack(">i", ENTRY_MAGIC)

# Whether a body is whole, by its own word: the headers that Java writes have no CRC of it.
IsSoundBody = Callable[[memoryview], bool]


class SequentialReader(Protocol):
    """EntryReader, or that of another form of entries."""

    index: Index
    term: Term
    end_pos: Pos
    stopped_by: str | None
    blanks: list[tuple[int, int]]

    @property
    def chain(self) -> int: ...

    def ranges(self) -> Iterator[VerifiedRange]: ...


class EntryReader(msgspec.Struct):
    """Invariant: `index`, `term`, `end_pos` and `chain` are those of the last entry that was read and found sound."""

    data: DataFiles
    index: Index
    term: Term
    end_pos: Pos  # behind the entry
    chain: int
    # Given for entries that Java may have written: their CRCs are filled in the ranges.
    is_sound_body: IsSoundBody | None = None
    chunk_size: int = _CHUNK_SIZE  # read at once
    # The fault at which ranges() ended; None when it ended at zeros or at the end of the files.
    stopped_by: str | None = None
    blanks: list[tuple[int, int]] = []  # (position, size) of those passed

    def ranges(self) -> Iterator[VerifiedRange]:
        """The entries behind the last one, some MiB at a time, each range within one file."""
        data = self.data
        pos: int = self.end_pos
        size_wanted = self.chunk_size
        while data.queue.find_mapped_file_by_offset(pos) is not None:
            file_end = data.file_end(pos)
            chunk = data.read(pos, min(size_wanted, file_end - pos))
            size_wanted = self.chunk_size
            whole = whole_entries_size(chunk)
            if whole:
                verified = self._verify(memoryview(chunk)[:whole], pos)
                if verified.count:
                    yield verified
                if self.stopped_by is not None:
                    return
                pos = self.end_pos
                continue
            if len(chunk) < BLANK_HEADER_SIZE:
                return
            magic, size = BLANK_HEADER.unpack_from(chunk)
            if magic == ENTRY_MAGIC and len(chunk) < size <= file_end - pos - BLANK_HEADER_SIZE:
                size_wanted = size
            elif self._is_blank(pos, magic, size):
                self.blanks.append((pos, size))
                pos = file_end
            else:
                if any(chunk[:ENTRY_HEADER_SIZE]):
                    self.stopped_by = f"entry {self.index + 1} at pos {pos}: magic {magic}, size {size}"
                return

    def _is_blank(self, pos: int, magic: int, size: int) -> bool:
        # No file begins with a blank: whatever is too large for an empty file was never appended.
        return (
            magic == BLANK_MAGIC
            and pos % self.data.file_size > 0
            and size == self.data.file_end(pos) - pos
            and is_exact_blank(self.data.read(pos, size))
        )

    def _verify(self, entries: memoryview, pos: int) -> VerifiedRange:
        chain_before, is_java = self.chain, self.is_sound_body is not None
        try:
            verified = verify_entries(
                entries,
                first_index=self.index + 1,
                first_pos=pos,
                prev_chain=self.chain,
                prev_term=self.term,
                accept_zero_crc=is_java,
            )
        except RangeCorruptError as error:
            self.stopped_by = str(error)
            verified = error.verified
        if is_java and (sound_count := self._count_sound_bodies(verified)) < verified.count:
            if not sound_count:
                return replace(verified, count=0)
            return self._verify(entries[: verified.offsets[sound_count]], pos)
        if verified.count:
            if is_java:
                verified = fill_crcs(verified, chain_before)
            self.index, self.term = verified.last_index, verified.last_term
            self.end_pos, self.chain = verified.next_pos, verified.chain
        return verified

    def _count_sound_bodies(self, verified: VerifiedRange) -> int:
        """How many entries come before the first whose body is not whole. Raises LedgerConfigError."""
        assert self.is_sound_body is not None
        view = memoryview(verified.buffer)
        for number, start in enumerate(verified.offsets):
            end = verified.offsets[number + 1] if number + 1 < verified.count else verified.size
            if end - start > self.data.entry_size_max:
                raise LedgerConfigError(
                    f"{self.data.queue.directory}: entry {verified.first_index + number} has {end - start} bytes, and "
                    f"the members give each other {self.data.entry_size_max} at most. RocketMQ writes such entries "
                    "where its frame limit was raised; consume them there, and begin with an empty store here"
                )
            if not self.is_sound_body(view[start + ENTRY_HEADER_SIZE : end]):
                index, pos = verified.first_index + number, verified.first_pos + start
                self.stopped_by = f"entry {index} at pos {pos}: its body is not whole"
                return number
        return verified.count


def header_at(data: DataFiles, pos: int) -> EntryHeader:
    """What lies at `pos` read as a header; nothing in it is checked."""
    return parse_header(data.read(pos, ENTRY_HEADER_SIZE).ljust(ENTRY_HEADER_SIZE, b"\0"))


def entry_alone(data: DataFiles, pos: int, prev_chain: int | None) -> VerifiedRange:
    """The entry at `pos`, with the index it claims. Raises EntryCorruptError.

    Without `prev_chain` the chain is taken as it stands, as for the first entry that retention has left; for index 0
    it is always known.
    """
    header = header_at(data, pos)
    size = header.size if ENTRY_HEADER_SIZE <= header.size <= data.file_end(pos) - pos else ENTRY_HEADER_SIZE
    entry = data.read(pos, size)
    if header.index < 0:
        raise EntryCorruptError(EntryFault.INDEX, 0, pos, f"it says {header.index}")
    try:
        return verify_entries(
            entry,
            first_index=header.index,
            first_pos=pos,
            prev_chain=GENESIS_CHAIN if prev_chain is None else prev_chain,
        )
    except RangeCorruptError as error:
        if error.kind is not EntryFault.CHAIN or prev_chain is not None or header.index == 0:
            raise
        return VerifiedRange(
            count=1,
            first_index=header.index,
            last_index=header.index,
            first_pos=header.pos,
            next_pos=Pos(pos + size),
            last_term=header.term,
            chain=header.chain_crc,
            offsets=[0],
            terms=[header.term],
            kinds=[header.kind],
            buffer=entry,
        )


def whole_entries_size(chunk: bytes) -> int:
    """Bytes of the entries, by their own word, that lie wholly in `chunk`."""
    offset, end = 0, len(chunk)
    read = BLANK_HEADER.unpack_from
    while end - offset >= ENTRY_HEADER_SIZE:
        magic, size = read(chunk, offset)
        if magic != ENTRY_MAGIC or size < ENTRY_HEADER_SIZE or size > end - offset:
            break
        offset += size
    return offset


def header_positions(data: DataFiles, pos: int, until_pos: int) -> Iterator[Pos]:
    """Where between these bytes say of themselves that an entry lies there; nothing else of them is proved."""
    while pos < until_pos:
        file_end = data.file_end(pos)
        size = min(_SEARCHED_SIZE, file_end - pos, until_pos - pos)
        # A header that begins in this chunk may end in the next.
        chunk = data.read(pos, min(size + ENTRY_HEADER_SIZE, file_end - pos))
        offset = chunk.find(_MAGIC)
        while 0 <= offset < size and len(chunk) - offset >= ENTRY_HEADER_SIZE:
            if parse_header(chunk, offset).pos == pos + offset:
                yield Pos(pos + offset)
            offset = chunk.find(_MAGIC, offset + 1)
        pos += size
