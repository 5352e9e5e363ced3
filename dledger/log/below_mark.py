"""The part of a ledger that was durable when it stopped: looked at lightly, never cut.

Looked at are the entry of the synced mark and, at each file end, the last entry, the blank and the first entry behind
it, with their chains. Where that finds damage, and where damage was known before, all entries around are read: what is
not sound is named, for the entries may be committed and the peers have them. The index and the blanks are repaired on
the spot, for everything in them follows from the entries. What is known as damaged and reads as sound is written once
more: after a repair whose sync failed, the page cache shows bytes that the disk never got.
"""

import logging
from collections.abc import Iterable

from disk.disk import NoSpaceError
from disk.mapped_file import MappedFile
from disk.readable import write_again
from dledger.entry import (
    EntryCorruptError,
    Index,
    is_exact_blank,
)
from dledger.log.data_files import DataFiles
from dledger.log.entry_reader import entry_alone, header_at
from dledger.log.errors import LedgerDamagedError, what_to_do
from dledger.log.fault_finder import Anchor, FaultFinder
from dledger.log.faulty_ranges import FaultyRange, FaultyRanges
from dledger.log.index_files import IndexFiles
from dledger.log.synced_mark import SyncedMark
from dledger.log.term_runs import TermRuns

log = logging.getLogger(__name__)


class _DamagedError(Exception):
    """A file edge is not what it must be."""


class BelowMark:
    """check() reads, and writes to files in `repaired`: index units and blanks that disagreed with sound entries, and
    what was known as damaged, as it reads.
    """

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
        self.repaired: list[MappedFile] = []  # files that need a sync
        self.faulty: list[FaultyRange] = []
        self._data = data
        self._index = index
        self._mark = mark
        begin = Anchor(
            mark.before_begin_index, mark.before_begin_term, mark.begin_pos, mark.before_begin_chain
        )
        self._end = Anchor(mark.index, mark.term, mark.end_pos, mark.chain_crc)
        self._finder = FaultFinder(data, index, begin, self._end, TermRuns(()))

    def check(self, known: Iterable[FaultyRange]) -> None:
        """Fills `faulty`. `known`: damage that was found before, of which some may be repaired since. Raises
        LedgerDamagedError where a file is missing.
        """
        mark = self._mark
        files = self._data.queue.mapped_files
        covered = [mapped_file for mapped_file in files if mapped_file.file_from_offset < mark.end_pos]
        if not covered or covered[-1].end_offset < mark.end_pos:
            raise LedgerDamagedError(
                f"{self._data.queue.directory}: no file holds entry {mark.index} that ends at pos {mark.end_pos}, "
                + self._what_to_do
            )
        last: Anchor | None = None  # sound, and checked up to there
        for number, mapped_file in enumerate(covered):
            if last is not None and last.end_pos > mapped_file.end_offset:
                continue  # damage reaches beyond it
            next_file = covered[number + 1] if number + 1 < len(covered) else None
            next_index = last.index + 1 if last is not None else mark.before_begin_index + 1
            try:
                last = self._check_file(mapped_file, next_file, next_index, last)
            except (EntryCorruptError, LedgerDamagedError, _DamagedError) as error:
                log.warning("damage suspected path=%s reason=%s", mapped_file.path, error)
                self.faulty += self._finder.examine(next_index, mark.index, mapped_file.end_offset)
                last = self._finder.reached
        for faulty in known:
            try:
                self._write_again(faulty)
            except NoSpaceError as error:
                log.warning("damage stays: %s; %s", faulty, error)
                self.faulty += self._within(faulty)
            else:
                self.faulty += self._finder.examine(faulty.first_index, faulty.last_index)
        self.repaired += self._finder.repaired

    def _within(self, faulty: FaultyRange) -> FaultyRanges:
        mark, ranges = self._mark, FaultyRanges((faulty,))
        ranges.keep_within(Index(mark.before_begin_index + 1), mark.begin_pos, mark.index, mark.end_pos)
        return ranges

    def _write_again(self, faulty: FaultyRange) -> None:
        pos, end_pos = faulty.pos, min(faulty.next_pos, self._mark.end_pos)
        for mapped_file in self._data.queue.mapped_files:
            start, end = max(pos, mapped_file.file_from_offset), min(end_pos, mapped_file.end_offset)
            if start < end:
                offset = start - mapped_file.file_from_offset
                write_again(mapped_file.file(), end - start, offset)
                self.repaired.append(mapped_file)

    def _check_file(
        self, mapped_file: MappedFile, next_file: MappedFile | None, next_index: int, before: Anchor | None
    ) -> Anchor:
        """The last entry of the file. Raises EntryCorruptError, LedgerDamagedError, _DamagedError."""
        if before is None or before.end_pos <= mapped_file.file_from_offset:
            prev_chain = before.chain if before is not None else None
            first_index = entry_alone(self._data, mapped_file.file_from_offset, prev_chain).first_index
            if first_index != next_index:
                raise _DamagedError(f"it begins with entry {first_index} instead of {next_index}")
            self._check_unit(first_index, mapped_file.file_from_offset)
        if next_file is None:
            last_index = self._end.index
        else:
            last_index = Index(entry_alone(self._data, next_file.file_from_offset, None).first_index - 1)
        last = entry_alone(self._data, self._index.unit(last_index).pos, None)
        self._check_unit(last_index, last.first_pos)
        anchor = Anchor(last.last_index, last.last_term, last.next_pos, last.chain)
        if next_file is None:
            if anchor != self._end:
                raise _DamagedError(f"it ends with {anchor}, remembered is {self._end}")
        elif not mapped_file.file_from_offset <= last.first_pos < mapped_file.end_offset:
            raise _DamagedError(f"its last entry {last_index} should lie at {last.first_pos}")
        elif not is_exact_blank(self._data.read(last.next_pos, mapped_file.end_offset - last.next_pos)):
            raise _DamagedError(f"no blank follows entry {last_index} at pos {last.next_pos}")
        return anchor

    def _check_unit(self, index: int, pos: int) -> None:
        unit, header = self._index.unit(index), header_at(self._data, pos)
        if (unit.index, unit.pos, unit.size, unit.term) != (header.index, pos, header.size, header.term):
            raise _DamagedError(f"the index points elsewhere for entry {index}")
