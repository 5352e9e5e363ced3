"""The part of a ledger that was durable when it stopped: looked at lightly, never cut.

Looked at are the entry of the synced mark and, at each file end, the last entry, the blank and the first entry behind
it, with their chains. A member that finds damage here stops and says so: the entries may be committed, and the peers
have them. The index alone is repaired on the spot, for everything in it follows from the data.
"""

import logging

from disk.mapped_file import MappedFile
from dledger.entry import (
    INDEX_UNIT_SIZE,
    EntryCorruptError,
    Index,
    VerifiedRange,
    index_units_of,
    is_exact_blank,
)
from dledger.log.data_files import DataFiles
from dledger.log.entry_reader import EntryReader, entry_alone, header_at
from dledger.log.errors import LedgerDamagedError, what_to_do
from dledger.log.index_files import IndexFiles
from dledger.log.synced_mark import SyncedMark

log = logging.getLogger(__name__)


class BelowMark:
    """check() reads; the only writes are index units that disagreed with sound data, in `repaired` files."""

    def __init__(
        self,
        data: DataFiles,
        index: IndexFiles,
        mark: SyncedMark,
        *,
        directory: str,
    ) -> None:
        """`directory` is the member's `dledger-<id>`, for what errors say."""
        self._what_to_do = f"although it was durable. Nothing was changed. {what_to_do(directory)}"
        self.repaired: list[MappedFile] = []  # index files that need a sync
        self._data = data
        self._index = index
        self._mark = mark

    def check(self) -> None:
        """Raises LedgerDamagedError."""
        mark = self._mark
        files = self._data.queue.mapped_files
        covered = [mapped_file for mapped_file in files if mapped_file.file_from_offset < mark.end_pos]
        if not covered or covered[-1].end_offset < mark.end_pos:
            raise LedgerDamagedError(
                f"{self._data.queue.directory}: no file holds entry {mark.index} that ends at pos {mark.end_pos}, "
                + self._what_to_do
            )
        prev_chain: int | None = None
        for number, mapped_file in enumerate(covered):
            first = self._sound(mapped_file, mapped_file.file_from_offset, prev_chain)
            if number + 1 < len(covered):
                last_index = Index(header_at(self._data, covered[number + 1].file_from_offset).index - 1)
                last = self._last_entry(mapped_file, first, last_index)
                self._check_blank(mapped_file, last)
            else:
                last = self._last_entry(mapped_file, first, mark.index)
                self._check_mark(mapped_file, last)
            prev_chain = last.chain

    def _sound(self, mapped_file: MappedFile, pos: int, prev_chain: int | None) -> VerifiedRange:
        try:
            return entry_alone(self._data, pos, prev_chain)
        except EntryCorruptError as error:
            raise LedgerDamagedError(f"{mapped_file.path}: {error}, {self._what_to_do}") from error

    def _last_entry(self, mapped_file: MappedFile, first: VerifiedRange, last_index: Index) -> VerifiedRange:
        """The entry that must be the last of the file. The index is rebuilt for the file if it points elsewhere."""
        if not (
            self._unit_is_right(mapped_file, first.first_index)
            and self._unit_is_right(mapped_file, last_index)
        ):
            self._rebuild_index(mapped_file, first, last_index)
        prev_chain = None if last_index > first.first_index else first.chain
        if prev_chain is not None:
            return first
        return self._sound(mapped_file, self._index.unit(last_index).pos, None)

    def _unit_is_right(self, mapped_file: MappedFile, index: int) -> bool:
        try:
            unit = self._index.unit(index)
        except LedgerDamagedError:
            return False
        if not mapped_file.file_from_offset <= unit.pos < mapped_file.end_offset:
            return False
        header = header_at(self._data, unit.pos)
        return (header.index, header.pos, header.size, header.term) == (index, unit.pos, unit.size, unit.term)

    def _rebuild_index(self, mapped_file: MappedFile, first: VerifiedRange, last_index: Index) -> None:
        log.warning("index rebuilt from=%s", mapped_file.path)
        reader = EntryReader(self._data, first.last_index, first.last_term, first.next_pos, first.chain)
        self._write_units(first, last_index)
        if last_index > first.last_index:
            for verified in reader.ranges():
                self._write_units(verified, last_index)
                if reader.index >= last_index or reader.end_pos > mapped_file.end_offset:
                    break
        if reader.index < last_index or self._index.unit(last_index).pos >= mapped_file.end_offset:
            raise LedgerDamagedError(
                f"{mapped_file.path}: entry {reader.index + 1} at pos {reader.end_pos} is not readable "
                f"({reader.stopped_by or 'zeros'}), {self._what_to_do}"
            )

    def _write_units(self, verified: VerifiedRange, last_index: Index) -> None:
        count = last_index - verified.first_index + 1
        units = index_units_of(verified)[: count * INDEX_UNIT_SIZE]
        files = self._index.write(verified.first_index, units)
        self.repaired += [mapped_file for mapped_file in files if mapped_file not in self.repaired]

    def _check_blank(self, mapped_file: MappedFile, last: VerifiedRange) -> None:
        space_left = mapped_file.end_offset - last.next_pos
        if not is_exact_blank(self._data.read(last.next_pos, space_left)):
            raise LedgerDamagedError(
                f"{mapped_file.path}: entry {last.last_index} ends at pos {last.next_pos} and no blank of {space_left} "
                f"bytes follows, {self._what_to_do}"
            )

    def _check_mark(self, mapped_file: MappedFile, last: VerifiedRange) -> None:
        mark = self._mark
        seen = (last.last_term, last.next_pos, last.chain)
        wanted = (mark.term, mark.end_pos, mark.chain_crc)
        if seen != wanted:
            raise LedgerDamagedError(
                f"{mapped_file.path}: entry {mark.index} has (term, end, chain) {seen}, remembered are {wanted}, "
                + self._what_to_do
            )
