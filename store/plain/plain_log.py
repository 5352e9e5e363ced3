"""A plain CommitLog (no Raft) as the log of a group of one: its entries are records and nothing else.

All but the bytes of an entry is LogStore's: where entries lie, what is durable, the synced mark, retention. What an
entry's header says elsewhere comes from the record (its kind: of our own system topics), from no-ops (the term of what
follows) and from units of our own (the index: the count of records). An entry is known by its index and term alone, so
the term stands for the chain.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from dledger.entry import EntryKind, Index, IndexUnit, Pos, Term
from dledger.log.data_files import DataFiles
from dledger.log.errors import LedgerDamagedError
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.log_store import LogStore
from dledger.log.range_read import RangeRead
from dledger.log.recent_batches import RecentBatch
from dledger.log.scrub_job import Place
from message.record_layout import BLANK_HEADER, BLANK_MAGIC, RECORD_SIZE_MIN
from store.plain.plain_records import kind_at, next_records, record_size_at
from store.plain.plain_recovery import PlainRecovery


class PlainDataFiles(DataFiles):
    head_size = 0

    def blank_header(self, space_left: int) -> bytes:
        return BLANK_HEADER.pack(space_left, BLANK_MAGIC)

    def read(self, pos: int, size: int) -> bytes:
        """Raises DiskError: no peer has what the disk does not give now, and perhaps will."""
        return self.read_unproved(pos, size)


class PlainLog(LogStore):
    """Invariant: as LogStore's. Entries are only ever cut by recovery, for a group of one has no other history."""

    data_files = PlainDataFiles
    recovery = PlainRecovery

    def kinds_of(self, batch: RecentBatch) -> list[int]:
        buffer = batch.buffer
        return [kind_at(buffer, offset) for offset in batch.offsets]

    def body_size_at(self, pos: int) -> int | None:
        batch = self.recent.find_by_pos(pos)
        if batch is not None and not batch.begins_at(pos):
            return None
        return record_size_at(self.read(pos, RECORD_SIZE_MIN), pos)

    def fault_found(self, first_index: int, last_index: int) -> list[FaultyRange]:
        """Notes the entries as damaged. There is no peer that could repair them: they are refused until a backup is put
        back.
        """
        first, last = max(Index(first_index), self.ledger_begin_index), Index(last_index)
        faulty = FaultyRange(first, last, self.pos_at(first), self.end_pos_at(last))
        self.faulty.add(faulty)
        return [faulty]

    def _unit(self, index: int) -> IndexUnit:
        return self._index.unit(index)

    def _verify(self, first_index: int, last_index: int, pos: int, entries: bytes) -> None:
        """Records have no CRC but those of their bodies, which their readers look at; the units are taken at their
        word.
        """

    def _next_range(self, data: DataFiles, place: Place, size_max: int) -> RangeRead:
        return next_records(data, place, size_max)

    def _refuse_unreadable(self, pos: int) -> None:
        """As fault_found(); and what a disk does not give now it may give later."""

    def _cold_bodies(self, places: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        return (self.read(pos, size) for pos, size in places)

    def chain_at(self, index: Index) -> int | None:
        return self.term_at(index)

    @property
    def first_file_last_index(self) -> Index | None:
        files = self._data.queue.mapped_files
        if len(files) < 2 or self.ledger_end_pos <= files[1].file_from_offset:
            return None
        next_pos = files[1].file_from_offset
        indexes = range(self.ledger_begin_index, self.ledger_end_index + 1)
        number = bisect_left(indexes, next_pos, key=lambda index: self.pos_at(Index(index)))
        index = Index(self.ledger_begin_index + number)
        if number == 0 or index > self.ledger_end_index or self.pos_at(index) != next_pos:
            raise LedgerDamagedError(f"{files[1].path}: begins with a record of which no unit is there")
        return Index(index - 1)

    def _seal(
        self,
        bodies: Sequence[bytes],
        positions: Sequence[Pos],
        first_index: int,
        term: Term,
        kind: EntryKind,
        head_kind: EntryKind | None,
    ) -> tuple[Sequence[bytes], int]:
        return bodies, term
