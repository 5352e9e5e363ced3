"""The reading half of a ledger: entries by index or position, from memory while they are recent.

Knows nothing of durability; what is read may still be cut. Cold reads block and go through the page cache.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress

from dledger.core.messages import EntryRange
from dledger.entry import ENTRY_HEADER_SIZE, ENTRY_MAGIC, Index, IndexUnit, Pos, Term, parse_header
from dledger.log.data_files import DataFiles
from dledger.log.entry_reader import header_at
from dledger.log.errors import LedgerDamagedError
from dledger.log.index_files import IndexFiles
from dledger.log.recent_batches import RecentBatch, RecentBatches
from dledger.log.synced_mark import SyncedMark
from dledger.log.term_runs import TermRuns

_CHAIN_CRC = struct.Struct(">i")
_CHAIN_CRC_OFFSET = 36
_KIND_LOW_BYTE_AT = 35  # of the header's channel field

# Units read at once where a range is looked up that is no longer in memory: 1 MiB of entries is rarely more.
_UNITS_READ = 2048


class LogReader:
    """Invariant: entries ledger_begin_index .. ledger_end_index are in the files; `recent` holds the last of them."""

    def __init__(
        self,
        data: DataFiles,
        index: IndexFiles,
        recent: RecentBatches,
        term_runs: TermRuns,
        *,
        begin_index: Index,
        mark: SyncedMark,
    ) -> None:
        """`mark` is at the end of the log."""
        self.ledger_begin_index = begin_index
        self.ledger_begin_pos = mark.begin_pos  # the start of a data file
        self.ledger_end_index = mark.index
        self.ledger_end_term = mark.term
        self.ledger_end_pos = mark.end_pos
        self.ledger_end_chain = mark.chain_crc
        self.recent = recent
        self.head_size: int = data.head_size  # bytes of an entry in front of its body
        self._before_begin_term = mark.before_begin_term
        self._before_begin_chain = mark.before_begin_chain
        self._data = data
        self._index = index
        self._term_runs = term_runs

    def kinds_of(self, batch: RecentBatch) -> list[int]:
        """An EntryKind for each entry, unless a newer version wrote it."""
        buffer = batch.buffer
        return [buffer[offset + _KIND_LOW_BYTE_AT] for offset in batch.offsets]

    def body_size_at(self, pos: int) -> int | None:
        """Of the entry at `pos`, None if none begins there: by its looks, where it is not among the newest."""
        batch = self.recent.find_by_pos(pos)
        if batch is not None and not batch.begins_at(pos):
            return None
        raw = self.read(pos, ENTRY_HEADER_SIZE)
        if len(raw) < ENTRY_HEADER_SIZE:
            return None
        header = parse_header(raw)
        if header.magic != ENTRY_MAGIC or header.pos != pos:
            return None
        return header.body_length if header.size == ENTRY_HEADER_SIZE + header.body_length else None

    def term_at(self, index: Index) -> Term | None:
        """-1 before the first entry ever; None outside begin - 1 .. end."""
        if index == self.ledger_end_index:
            return self.ledger_end_term
        if not self.ledger_begin_index <= index < self.ledger_end_index:
            return self._before_begin_term if index == self.ledger_begin_index - 1 else None
        term = self._term_runs.term_at(index)
        return term if term is not None else self._unit(index).term

    def chain_at(self, index: Index) -> int | None:
        """chain_crc of the entry; 0 before the first entry ever; None outside begin - 1 .. end."""
        if index == self.ledger_end_index:
            return self.ledger_end_chain
        if not self.ledger_begin_index <= index < self.ledger_end_index:
            return self._before_begin_chain if index == self.ledger_begin_index - 1 else None
        batch = self.recent.find(index)
        if batch is not None:
            return chain_crc_at(batch.buffer, batch.offset_of(index))
        return self._cold_chain(index)

    def stored_end_at(self, index: Index) -> tuple[int, Pos]:
        """As chain_at() and end_pos_at(), of an entry before the last one, and as the disk has it: what is remembered
        may be another. One of an earlier history that has come back lies where its unit says, and the remembered one
        perhaps still where that lay.
        """
        chain = self.chain_at(index)
        assert chain is not None, "it is in the log, or in front of it"
        if index < self.ledger_begin_index or self.recent.find(index) is None:
            return chain, self.end_pos_at(index)
        with suppress(LedgerDamagedError):
            unit = self._index.unit(index)
            header = header_at(self._data, unit.pos)
            if (header.magic, header.index, header.size) == (ENTRY_MAGIC, index, unit.size):
                return header.chain_crc, Pos(unit.pos + unit.size)
        return header_at(self._data, self.pos_at(index)).chain_crc, self.end_pos_at(index)

    def pos_at(self, index: Index) -> Pos:
        """Position of the entry's header. The index must lie within begin .. end."""
        assert self.ledger_begin_index <= index <= self.ledger_end_index
        batch = self.recent.find(index)
        if batch is not None:
            return Pos(batch.pos + batch.offset_of(index))
        return self._unit(index).pos

    def end_pos_at(self, index: Index) -> Pos:
        """Position behind the entry; for begin - 1, where the first entry lies or would lie."""
        if index == self.ledger_end_index:
            return self.ledger_end_pos
        if index == self.ledger_begin_index - 1:
            return self.ledger_begin_pos
        batch = self.recent.find(index)
        if batch is not None:
            return Pos(batch.pos + batch.end_offset_of(index))
        unit = self._unit(index)
        return Pos(unit.pos + unit.size)

    def first_index_of_term_at(self, index: Index) -> Index:
        """First index (>= begin) of the run of entries with the term of the entry at `index`."""
        term = self.term_at(index)
        assert term is not None
        assert index >= self.ledger_begin_index
        first, may_begin_before = self._term_runs.first_index_of_run(index)
        before = Index(first - 1)
        if not may_begin_before or before < self.ledger_begin_index or self.term_at(before) != term:
            return max(first, self.ledger_begin_index)
        return self._index.first_index_of_term(term, self.ledger_begin_index, before)

    def range_from(self, first_index: Index, size_max: int) -> EntryRange | None:
        """At least one whole entry from `first_index` on, at most `size_max` bytes behind the first entry, all in one
        data file; None when there is nothing from there on."""
        last_index = self.ledger_end_index
        if not self.ledger_begin_index <= first_index <= last_index:
            return None
        batch = self.recent.find(first_index)
        if batch is None:
            return self._cold_range_from(first_index, size_max)
        offset = batch.offsets[first_index - batch.first_index]
        pos, size = Pos(batch.pos + offset), len(batch.buffer) - offset
        if batch.last_index == last_index and size <= size_max:
            # The rest of the newest batch, as dispatchers that keep up ask for it.
            return EntryRange(first_index, last_index, pos, size, self.ledger_end_term, self.ledger_end_chain)
        limit = min(batch.pos + batch.end_offset_of(first_index) + size_max, self._data.file_end(pos))
        for last in reversed(self.recent.run_from(first_index, limit)):
            last_index = last.last_index_within(limit)
            if last_index >= last.first_index:
                break
        return EntryRange(
            first_index=first_index,
            last_index=last_index,
            pos=pos,
            size=last.pos + last.end_offset_of(last_index) - pos,
            last_term=self._present_term(last_index),
            last_chain=chain_crc_at(last.buffer, last.offset_of(last_index)),
        )

    def read_range(self, entries: EntryRange) -> list[bytes]:
        """The bytes of a range that range_from() gave and no cut has touched since."""
        newest = self.recent.newest
        if newest is not None and entries.pos == newest.pos and entries.size == len(newest.buffer):
            return [newest.buffer]
        parts = self.recent.run_from(entries.first_index, entries.pos + entries.size)
        if not parts:
            return [self._read_entries(entries)]
        return [part.slice(entries.first_index, entries.last_index).buffer for part in parts]

    def read(self, pos: int, size: int) -> bytes:
        """Bytes that lie within one data file, from memory if the newest batches hold them all. Raises DiskError."""
        batch = self.recent.find_by_pos(pos)
        if batch is not None and pos + size <= batch.pos + len(batch.buffer):
            return batch.buffer[pos - batch.pos : pos - batch.pos + size]
        return self._data.read_unproved(pos, size)

    def batches_from(self, index: Index, last_index: Index, size_max: int) -> Iterator[RecentBatch]:
        """All entries from `index` to `last_index`, from memory or read back, by about `size_max` bytes.

        Raises LedgerDamagedError, DiskError.
        """
        assert index >= self.ledger_begin_index
        assert last_index <= self.ledger_end_index
        while index <= last_index:
            batch = self.recent.joined_from(index, last_index, size_max)
            yield (batch := batch or self._cold_batch(index, last_index, size_max))
            index = Index(batch.last_index + 1)

    def read_body(self, pos: int, size: int) -> bytes:
        """The body at `pos`, of this size."""
        return self.read(pos, size)

    def _unit(self, index: int) -> IndexUnit:
        return self._index.unit(index)

    def _cold_chain(self, index: Index) -> int:
        return chain_crc_at(self._data.read(self._unit(index).pos, ENTRY_HEADER_SIZE), 0)

    def _read_entries(self, entries: EntryRange) -> bytes:
        return self._data.read(entries.pos, entries.size)

    def body_at(self, index: Index) -> bytes:
        """Of the entry, which must lie within begin .. end."""
        pos = self.pos_at(index) + self.head_size
        return self.read_body(pos, self.end_pos_at(index) - pos)

    def _present_term(self, index: Index) -> Term:
        term = self.term_at(index)
        assert term is not None
        return term

    def _cold_batch(self, first_index: int, last_index: int, size_max: int) -> RecentBatch:
        units = self._range_units(first_index, last_index, size_max)
        pos = units[0].pos
        end_pos = units[-1].pos + units[-1].size
        return RecentBatch(
            Index(first_index),
            units[-1].index,
            pos,
            self._data.read(pos, max(0, end_pos - pos)),  # a damaged unit may say anything
            [unit.pos - pos for unit in units],
        )

    def _cold_range_from(self, first_index: Index, size_max: int) -> EntryRange:
        units = self._range_units(first_index, self.ledger_end_index, size_max)
        first, last = units[0], units[-1]
        size = last.pos + last.size - first.pos
        return EntryRange(first_index, last.index, first.pos, size, last.term, self._cold_chain(last.index))

    def _range_units(self, first_index: int, last_index: int, size_max: int) -> list[IndexUnit]:
        """The first one and those behind it, up to `last_index` and `size_max` bytes, all of one data file. Raises
        LedgerDamagedError where a unit is not sound, or the first one tells of an entry that no file could hold.
        """
        units = self._index.units(first_index, min(last_index, first_index + _units_within(size_max) - 1))
        first = units[0]
        file_end = self._data.file_end(first.pos)
        if first.pos + first.size > file_end:
            raise self._index.damaged(first_index)
        limit = min(first.pos + first.size + size_max, file_end)
        count, pos = 0, int(first.pos)
        for unit in units:
            # One that is not where the one in front ends may be damaged, and not be behind it at all.
            if unit.pos != pos or unit.pos + unit.size > limit:
                break
            count, pos = count + 1, pos + unit.size
        return units[:count]


def _units_within(size_max: int) -> int:
    """How many entries at most lie within `size_max` bytes behind a first one."""
    return min(_UNITS_READ, 1 + size_max // ENTRY_HEADER_SIZE)


def chain_crc_at(buffer: bytes | bytearray | memoryview, offset: int) -> int:
    """Of the entry whose header lies at `offset`."""
    value: int = _CHAIN_CRC.unpack_from(buffer, offset + _CHAIN_CRC_OFFSET)[0]
    return value
