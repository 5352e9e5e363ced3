"""Records of a plain CommitLog one behind the other: which are sound, which are ours, where they end."""

from collections.abc import Iterator
from typing import Final

import msgspec

from dledger.entry import BLANK_HEADER_SIZE, EntryKind, Index, Pos, Term, VerifiedRange
from dledger.log.data_files import DataFiles
from dledger.log.range_read import RangeRead, next_range
from dledger.log.scrub_job import Place
from message.decoder import MessageExt, decode_message
from message.errors import MessageDecodeError
from message.record_layout import (
    BLANK_HEADER,
    BLANK_MAGIC,
    HOSTS_V6_MASK,
    HOSTS_V6_SHIFT,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH_SIZE,
    RECORD_HEAD_V4,
    RECORD_HEADS,
    RECORD_SIZE_MIN,
    SYS_FLAG_AT,
)
from message.sys_flag import TRANSACTION_ROLLBACK_TYPE
from store.system_message import kind_of_record, no_op_term

_CHUNK_SIZE: Final = 4 << 20
# The least that a disk writes wholly or not at all.
_SECTOR_SIZE: Final = 512
_SYS_FLAG_LOW_BYTE_AT: Final = SYS_FLAG_AT + 3


def kind_at(buffer: bytes, offset: int) -> EntryKind:
    """Of the record that begins at `offset`, which must be sound."""
    if buffer[offset + _SYS_FLAG_LOW_BYTE_AT] & TRANSACTION_ROLLBACK_TYPE != TRANSACTION_ROLLBACK_TYPE:
        return EntryKind.MESSAGE
    record = decode_message(buffer, offset, read_body=False)
    return kind_of_record(record.sys_flag, record.topic.encode())


def record_size_at(head: bytes, pos: int) -> int | None:
    """Of the record whose first bytes `head` are, None if by its looks none begins at `pos`."""
    if len(head) < RECORD_SIZE_MIN:
        return None
    values = RECORD_HEAD_V4.unpack_from(head)
    size, magic, phy_offset = values[0], values[1], values[6]
    if magic not in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2) or phy_offset != pos or size < RECORD_SIZE_MIN:
        return None
    return int(size)


def _has_hole(buffer: bytes, offset: int, pos: int, record: MessageExt) -> bool:
    """Whether a sector behind the body is all zeros in this record: no CRC of RocketMQ's covers topic and properties,
    and a power cut may leave any sector as it was. `pos`: of the buffer.
    """
    head = RECORD_HEADS[(record.sys_flag & HOSTS_V6_MASK) >> HOSTS_V6_SHIFT]
    start = pos + offset + head.size + len(record.body)
    # What is last says how many bytes of properties there are, and of none it is zeros.
    end = pos + offset + record.store_size - (0 if record.properties else PROPERTIES_LENGTH_SIZE)
    for sector in range((start + _SECTOR_SIZE - 1) // _SECTOR_SIZE * _SECTOR_SIZE, end, _SECTOR_SIZE):
        if not any(buffer[sector - pos : min(sector + _SECTOR_SIZE, end) - pos]):
            return True
    return False


class RecordReader(msgspec.Struct):
    """Reads records in order and proves each of them, from a known place on. EntryReader's way, for records.

    Invariant: `index`, `term` and `end_pos` are those of the last record that was read and found sound.
    """

    data: DataFiles
    index: Index
    term: Term
    end_pos: Pos  # behind the record
    chunk_size: int = _CHUNK_SIZE  # read at once
    # The fault at which ranges() ended; None when it ended at zeros or at the end of the files.
    stopped_by: str | None = None
    blanks: list[tuple[int, int]] = msgspec.field(default_factory=list)  # (position, size) of those passed

    @property
    def chain(self) -> int:
        """A plain log has none."""
        return self.term

    def ranges(self) -> Iterator[VerifiedRange]:
        """The records behind the last one, some MiB at a time, each range within one file."""
        data = self.data
        pos: int = self.end_pos
        size_wanted = self.chunk_size
        while data.queue.find_mapped_file_by_offset(pos) is not None:
            file_end = data.file_end(pos)
            chunk = data.read(pos, min(size_wanted, file_end - pos))
            size_wanted = self.chunk_size
            verified, size_missing = self._verify(chunk, pos)
            if verified is not None:
                yield verified
                pos = self.end_pos
            if self.stopped_by is not None:
                return
            if verified is not None:
                continue
            if size_missing and size_missing <= file_end - pos - BLANK_HEADER_SIZE:
                size_wanted = size_missing
                continue
            if len(chunk) < BLANK_HEADER_SIZE:
                return
            size, magic = BLANK_HEADER.unpack_from(chunk)
            if magic == BLANK_MAGIC and size == file_end - pos and pos % data.file_size:
                self.blanks.append((pos, size))
                pos = file_end
                continue
            if any(chunk[:RECORD_SIZE_MIN]):
                self.stopped_by = f"record at {pos}: magic {magic:#010x}, size {size}"
            return

    def _verify(self, chunk: bytes, pos: int) -> tuple[VerifiedRange | None, int]:
        """The sound records at the start of `chunk`, and the size of the one behind them if it is only cut off."""
        offsets: list[int] = []
        terms: list[int] = []
        kinds: list[int] = []
        offset, term, size_missing = 0, max(self.term, Term(0)), 0
        while (size := record_size_at(chunk[offset : offset + RECORD_SIZE_MIN], pos + offset)) is not None:
            if offset + size > len(chunk):
                size_missing = size
                break
            try:
                record = decode_message(chunk, offset)
            except MessageDecodeError as error:
                self.stopped_by = f"record at {pos + offset}: {error}"
                break
            if _has_hole(chunk, offset, pos, record):
                self.stopped_by = f"record at {pos + offset}: a sector of it was never written"
                break
            kind = kind_of_record(record.sys_flag, record.topic.encode(errors="surrogateescape"))
            if kind is EntryKind.NO_OP:
                # It begins its term. What Java wrote belongs to the term before it.
                term = max(term, no_op_term(record.body) or term)
            offsets.append(offset)
            terms.append(term)
            kinds.append(kind)
            offset += size
        if not offsets:
            return None, size_missing
        first_index = Index(self.index + 1)
        self.index, self.term, self.end_pos = Index(self.index + len(offsets)), term, Pos(pos + offset)
        verified = VerifiedRange(
            count=len(offsets),
            first_index=first_index,
            last_index=self.index,
            first_pos=Pos(pos),
            next_pos=self.end_pos,
            last_term=term,
            chain=term,
            offsets=offsets,
            terms=terms,
            kinds=kinds,
            buffer=chunk,
        )
        return verified, size_missing


def next_records(data: DataFiles, place: Place, size_max: int) -> RangeRead:
    """As of entries, which records are without a chain."""
    return next_range(RecordReader(data, place.index, place.term, place.end_pos, max(size_max, 1)), place)
