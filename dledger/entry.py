"""An entry of the replicated log, bytes <-> values: the 48-byte header, the chain, the index unit, the blank.

Decides what a sound entry is. Leaves to others where entries lie (dledger/log), what they mean (the embedder:
a body is opaque here) and what is done about damage.

The layout is DLedger's. Two header fields that DLedger leaves 0 are filled: `body_crc` is the CRC-32 of
the body, `chain_crc` the CRC-32 over header[0:36], body_crc and body_length, seeded with the chain_crc of
the entry before (GENESIS_CHAIN for the first). So one chain value names a whole prefix of the log, to the
strength of 32 bits: it finds accidental damage and forks, and proves nothing against malice.

CRC values are signed 32-bit ints everywhere in this package's interface, as they are in the header.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import Enum, IntEnum
from typing import NewType

import msgspec
from msgspec.structs import replace
from zlib_ng.zlib_ng import crc32

Term = NewType("Term", int)
Index = NewType("Index", int)  # 0-based number of an entry
Pos = NewType("Pos", int)  # byte position in the whole log, equal on all members

ENTRY_HEADER = struct.Struct(
    ">i"  # magic
    "i"  # size of the whole entry, header included
    "q"  # index
    "q"  # term
    "q"  # pos
    "i"  # channel: the kind of the entry; DLedger keeps it reserved and writes 0
    "i"  # chain_crc: DLedger always writes 0
    "i"  # body_crc: likewise
    "i"  # body_length
)
ENTRY_HEADER_SIZE = ENTRY_HEADER.size
ENTRY_MAGIC = 1
BLANK_MAGIC = -1
BLANK_HEADER = struct.Struct(">ii")  # magic, space left in the file
# An entry leaves at least this much behind it in its file, so that a blank always fits.
BLANK_HEADER_SIZE = BLANK_HEADER.size
# RocketMQ's frames carry 16 MiB. Twice that is room for whatever a message becomes on its way, and little enough that a
# size that is damaged, or of a frame that is none, costs no gigabyte of memory.
ENTRY_SIZE_MAX = 32 * 1024 * 1024

INDEX_UNIT = struct.Struct(">iqiqq")  # magic, pos, size, index, term
INDEX_UNIT_SIZE = INDEX_UNIT.size

GENESIS_CHAIN = 0

# The same 48 bytes with the CRCs as zlib gives them, and the 44 of them that the chain covers.
_SEALED_HEADER = struct.Struct(">iiqqqiIIi")
_CHAIN_COVER = struct.Struct(">iiqqqiIi")
_CHAIN_CRC_AT = 36
_BODY_CRC_AT = 40
_CRC = struct.Struct(">I")


class EntryKind(IntEnum):
    """What the `channel` field says. Java reads each of them as an entry with a message in it."""

    MESSAGE = 0
    NO_OP = 1
    MEMBERSHIP = 2
    STATE = 3


class EntryFault(Enum):
    """The part of an entry that is not what it must be."""

    HEADER = "header"  # the magic, or less than a header is left
    SIZE = "size"  # size and body_length disagree, or the buffer ends before the entry does
    INDEX = "index"
    POS = "pos"
    TERM = "term"  # it fell
    BODY_CRC = "body crc"
    CHAIN = "chain"


class EntryHeader(msgspec.Struct, frozen=True):
    """The header as it lies on disk; nothing in it is checked."""

    magic: int
    size: int  # bytes, header included
    index: Index
    term: Term
    pos: Pos
    kind: int  # an EntryKind, unless a newer version wrote it
    chain_crc: int
    body_crc: int
    body_length: int  # bytes


class VerifiedRange(msgspec.Struct, frozen=True):
    """Whole entries one behind the other that passed every check, and the columns read on the way.

    An empty range has last_index = first_index - 1, last_term and chain as they were before it.
    """

    count: int
    first_index: Index
    last_index: Index
    first_pos: Pos
    next_pos: Pos  # of the byte behind the last entry
    last_term: Term
    chain: int  # chain_crc of the last entry
    offsets: list[int]  # of each entry's header in the buffer
    terms: list[int]
    kinds: list[int]
    # The bytes verified, for whoever appends them as they are; when the last entry failed they go on behind it.
    buffer: bytes | bytearray | memoryview = b""

    @property
    def size(self) -> int:
        """Bytes, headers included."""
        return self.next_pos - self.first_pos


class IndexUnit(msgspec.Struct, frozen=True):
    magic: int
    pos: Pos
    size: int  # of the entry, header included
    index: Index
    term: Term


class EntryCorruptError(ValueError):
    """Bytes that are no sound entry. `index` and `pos` are those that an entry here should have."""

    def __init__(self, kind: EntryFault, index: int, pos: int, reason: str) -> None:
        super().__init__(f"entry {index} at pos {pos}: {kind.value}: {reason}")
        self.kind = kind
        self.index = Index(index)
        self.pos = Pos(pos)
        self.reason = reason


class RangeCorruptError(EntryCorruptError):
    """The bad entry is not the first word: `verified` holds the sound ones in front of it."""

    def __init__(self, kind: EntryFault, index: int, pos: int, reason: str, verified: VerifiedRange) -> None:
        super().__init__(kind, index, pos, reason)
        self.verified = verified


def seal_entries(
    bodies: Sequence[bytes],
    positions: Sequence[int],
    first_index: int,
    term: int,
    kind: int,
    prev_chain: int,
) -> tuple[list[bytes], int]:
    """Headers for `bodies`, entry i at positions[i] with index first_index + i.

    Returns header and body in turn, ready for b"".join or pwritev, and the chain after the last entry.
    """
    buffers: list[bytes] = []
    push = buffers.append
    crc, cover, header = crc32, _CHAIN_COVER.pack, _SEALED_HEADER.pack
    chain, index = prev_chain, first_index
    for body, pos in zip(bodies, positions, strict=True):
        length = len(body)
        size = length + 48
        body_crc = crc(body)
        # Packing twice costs less than cutting the header around the chain field.
        chain = crc(cover(1, size, index, term, pos, kind, body_crc, length), chain)
        push(header(1, size, index, term, pos, kind, chain, body_crc, length))
        push(body)
        index += 1
    return buffers, _signed(chain)


def verify_entries(
    buffer: bytes | bytearray | memoryview,
    *,
    first_index: int,
    first_pos: int,
    prev_chain: int,
    prev_term: int = -1,
    accept_zero_crc: bool = False,
) -> VerifiedRange:
    """One pass over a buffer that must hold whole entries and nothing else, `first_index` at `first_pos`
    first.

    `accept_zero_crc`: of entries that Java wrote, each byte of the two CRC fields is 0, or right where
    fill_crcs() had been at work when the power failed; the chain goes on over the right ones. Raises
    RangeCorruptError, an EntryCorruptError with the sound entries in front of the fault: a reader of a torn
    tail learns in the same pass where it ends.
    """
    view = memoryview(buffer)
    end = len(view)
    offsets: list[int] = []
    terms: list[int] = []
    kinds: list[int] = []
    add_offset, add_term, add_kind = offsets.append, terms.append, kinds.append
    crc, read_header, cover = crc32, _SEALED_HEADER.unpack_from, _CHAIN_COVER.pack
    offset, pos, index, last_term, chain = 0, first_pos, first_index, prev_term, prev_chain
    fault: tuple[EntryFault, str] | None = None
    while offset < end:
        if end - offset < 48:
            fault = EntryFault.HEADER, f"{end - offset} bytes left, a header has 48"
            break
        magic, size, seen_index, term, seen_pos, kind, chain_crc, body_crc, length = read_header(view, offset)
        next_offset = offset + size
        if (
            magic != 1
            or size != length + 48
            or length < 0
            or next_offset > end
            or seen_index != index
            or seen_pos != pos
            or term < last_term
        ):
            fault = _header_fault(parse_header(view, offset), index, pos, last_term, end - offset)
            break
        body_crc_seen = crc(view[offset + 48 : next_offset])
        next_chain = crc(cover(1, size, index, term, pos, kind, body_crc_seen, length), chain)
        if (body_crc_seen != body_crc or next_chain != chain_crc) and not (
            accept_zero_crc and _is_part_of(chain_crc, next_chain) and _is_part_of(body_crc, body_crc_seen)
        ):
            if body_crc_seen != body_crc:
                fault = EntryFault.BODY_CRC, f"{body_crc:#010x} stored, {body_crc_seen:#010x} computed"
            else:
                fault = EntryFault.CHAIN, f"{chain_crc:#010x} stored, {next_chain:#010x} computed"
            break
        add_offset(offset)
        add_term(term)
        add_kind(kind)
        # One by one: a tuple of them would be made and taken apart.
        offset = next_offset
        pos += size
        index += 1
        last_term = term
        chain = next_chain
    verified = VerifiedRange(
        count=len(offsets),
        first_index=Index(first_index),
        last_index=Index(index - 1),
        first_pos=Pos(first_pos),
        next_pos=Pos(pos),
        last_term=Term(last_term),
        chain=_signed(chain),
        offsets=offsets,
        terms=terms,
        kinds=kinds,
        buffer=buffer,
    )
    if fault is not None:
        raise RangeCorruptError(fault[0], index, pos, fault[1], verified)
    return verified


def fill_crcs(verified: VerifiedRange, prev_chain: int) -> VerifiedRange:
    """A range that was accepted with zeros in its CRC fields, as it would be had we written it; a copy."""
    buffer = bytearray(memoryview(verified.buffer)[: verified.size])
    chain = prev_chain & 0xFFFFFFFF
    for start, end in zip(verified.offsets, [*verified.offsets[1:], verified.size], strict=True):
        body_crc = crc32(memoryview(buffer)[start + ENTRY_HEADER_SIZE : end])
        _CRC.pack_into(buffer, start + _BODY_CRC_AT, body_crc)
        chain = chain_after(memoryview(buffer)[start : start + ENTRY_HEADER_SIZE], chain) & 0xFFFFFFFF
        _CRC.pack_into(buffer, start + _CHAIN_CRC_AT, chain)
    assert _signed(chain) == verified.chain, "the same chain as when it was verified"
    return replace(verified, buffer=bytes(buffer))


def _is_part_of(stored: int, right: int) -> bool:
    """Whether each byte of a CRC is 0 or the right one: a sector may end within a field."""
    stored_bytes, right_bytes = _CRC.pack(stored), _CRC.pack(right)
    return all(byte in (0, right_byte) for byte, right_byte in zip(stored_bytes, right_bytes, strict=True))


def _header_fault(
    header: EntryHeader, index: int, pos: int, last_term: int, bytes_left: int
) -> tuple[EntryFault, str]:
    """What is wrong with a header that is known to be wrong."""
    if header.magic != ENTRY_MAGIC:
        return EntryFault.HEADER, f"magic {header.magic}"
    body_length_max = bytes_left - ENTRY_HEADER_SIZE
    if (
        header.size != header.body_length + ENTRY_HEADER_SIZE
        or not 0 <= header.body_length <= body_length_max
    ):
        return EntryFault.SIZE, f"size {header.size}, body {header.body_length}, {bytes_left} bytes left"
    if header.index != index:
        return EntryFault.INDEX, f"it says {header.index}"
    if header.pos != pos:
        return EntryFault.POS, f"it says {header.pos}"
    return EntryFault.TERM, f"{header.term} after {last_term}"


def chain_after(header: bytes | bytearray | memoryview, prev_chain: int) -> int:
    """The chain value that a 48-byte header, body_crc included, gives after `prev_chain`."""
    view = memoryview(header)
    return _signed(crc32(view[_BODY_CRC_AT:ENTRY_HEADER_SIZE], crc32(view[:_CHAIN_CRC_AT], prev_chain)))


def parse_header(buffer: bytes | bytearray | memoryview, offset: int = 0) -> EntryHeader:
    """Raises struct.error when less than a header is there."""
    return EntryHeader(*ENTRY_HEADER.unpack_from(buffer, offset))


def walk(buffer: bytes | bytearray | memoryview, start_pos: int) -> Iterator[tuple[EntryHeader, memoryview]]:
    """Entries and their bodies (views into `buffer`); `start_pos` is the position of the buffer's first byte.

    Ends at a blank, at zeros (nothing written yet) and where the buffer ends before the entry does. CRCs,
    indexes and terms are not looked at. Raises EntryCorruptError at bytes that are none of these.
    """
    view = memoryview(buffer)
    end = len(view)
    offset = 0
    index = -1  # unknown before the first entry
    while end - offset >= ENTRY_HEADER_SIZE:
        header = parse_header(view, offset)
        if header.magic in (BLANK_MAGIC, 0):
            return
        pos = start_pos + offset
        index = header.index if index < 0 else index + 1
        if header.magic != ENTRY_MAGIC:
            raise EntryCorruptError(EntryFault.HEADER, index, pos, f"magic {header.magic}")
        if header.body_length < 0 or header.size != header.body_length + ENTRY_HEADER_SIZE:
            reason = f"size {header.size}, body length {header.body_length}"
            raise EntryCorruptError(EntryFault.SIZE, index, pos, reason)
        if header.pos != pos:
            raise EntryCorruptError(EntryFault.POS, index, pos, f"it says {header.pos}")
        next_offset = offset + header.size
        if next_offset > end:
            return
        yield header, view[offset + ENTRY_HEADER_SIZE : next_offset]
        offset = next_offset


def index_units_of(verified: VerifiedRange) -> bytes:
    """The index units of a range of entries, for the index file."""
    first_pos, offsets = verified.first_pos, verified.offsets
    pack = INDEX_UNIT.pack
    return b"".join(
        [
            pack(1, first_pos + offset, end - offset, index, term)
            for index, (offset, end, term) in enumerate(
                zip(offsets, [*offsets[1:], verified.size], verified.terms, strict=False),
                verified.first_index,
            )
        ]
    )


def unit_of_sound_entry(entry: bytes, pos: int) -> tuple[Index, bytes] | None:
    """Index and unit of the one entry that `entry`, read at `pos`, must be. None if it is not sound in itself: its
    chain, which proves what is in front of it, is left out.
    """
    if len(entry) < ENTRY_HEADER_SIZE:
        return None
    magic, size, index, term, seen_pos, _, _, body_crc, length = _SEALED_HEADER.unpack_from(entry)
    if (
        magic != ENTRY_MAGIC
        or size != len(entry)
        or length != size - ENTRY_HEADER_SIZE
        or seen_pos != pos
        or term < -1
        or crc32(memoryview(entry)[ENTRY_HEADER_SIZE:]) != body_crc
    ):
        return None
    return index, INDEX_UNIT.pack(ENTRY_MAGIC, pos, size, index, term)


def parse_index_units(buffer: bytes | bytearray | memoryview) -> list[IndexUnit]:
    """Units up to the first that was never written (magic 0). `buffer` holds whole units."""
    units: list[IndexUnit] = []
    for values in INDEX_UNIT.iter_unpack(buffer):
        if values[0] == 0:
            break
        units.append(IndexUnit(*values))
    return units


def entry_size_max(data_file_size: int) -> int:
    """The largest entry with its header. Every limit on the way of an entry follows from this one number, and it is the
    same on all members, for their data files are: what a leader appends, each of them takes, keeps and gives on.
    """
    return min(ENTRY_SIZE_MAX, data_file_size - BLANK_HEADER_SIZE)


def blank(space_left: int) -> bytes:
    """The bytes that fill a data file to its end."""
    return BLANK_HEADER.pack(BLANK_MAGIC, space_left) + bytes(space_left - BLANK_HEADER_SIZE)


def is_exact_blank(rest: bytes | bytearray | memoryview) -> bool:
    """Whether `rest`, all bytes up to the end of a data file, is a blank as `blank` makes it."""
    size = len(rest)
    if size < BLANK_HEADER_SIZE or BLANK_HEADER.unpack_from(rest) != (BLANK_MAGIC, size):
        return False
    return bytes(rest[BLANK_HEADER_SIZE:]).count(0) == size - BLANK_HEADER_SIZE


def _signed(crc: int) -> int:
    crc &= 0xFFFFFFFF
    return crc - 0x1_0000_0000 if crc & 0x8000_0000 else crc
