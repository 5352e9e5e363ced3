"""What a plain CommitLog on disk holds after a stop of any kind, of ours or of RocketMQ's.

The order of things is dledger.log.recovery's: below the synced mark nothing is ever cut, above it the log ends at the
first record that is not sound. A log without a mark is RocketMQ's. All of it is read once, and made durable; nothing in
it is written but what is cut. RocketMQ's own word says what may be: behind a clean stop nothing is torn.
"""

import logging
from bisect import bisect_left
from typing import Final

from disk.mapped_file import MappedFile
from dledger.entry import INDEX_UNIT_SIZE, Index, Pos, Term, VerifiedRange, index_units_of
from dledger.log.entry_reader import SequentialReader
from dledger.log.errors import LedgerConfigError, LedgerDamagedError
from dledger.log.recovery import Recovery
from dledger.log.synced_mark import SyncedMark
from message.decoder import decode_message
from message.errors import MessageDecodeError
from message.record_layout import (
    BLANK_HEADER,
    BLANK_MAGIC,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    RECORD_SIZE_MIN,
)
from store.plain.plain_log_config import PlainLogConfig
from store.plain.plain_records import RecordReader, record_size_at

log = logging.getLogger(__name__)

_MAGICS: Final = tuple(magic.to_bytes(4, "big") for magic in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2))
_SCAN_SIZE: Final = 64 << 20
_CHUNK_SIZE: Final = 4 << 20


class PlainRecovery(Recovery):
    """One run over the files of a log that nobody else has open."""

    def _make_missing_files_anew(self, mark: SyncedMark) -> SyncedMark:
        """None is: there are no peers to repair it."""
        return mark

    def _load_data(self, mark: SyncedMark | None) -> None:
        try:
            super()._load_data(mark)
        except LedgerDamagedError as error:
            raise LedgerConfigError(
                f"{error.__cause__} Nothing was changed. Configure the size that the files have "
                "(mappedFileSizeCommitLog); if one is missing, restore it from a backup"
            ) from error

    def _begin_index(self, mark: SyncedMark | None) -> Index:
        if mark is None:
            return Index(0)
        begin_index = Index(mark.before_begin_index + 1)
        files = self._data.queue.mapped_files
        if mark.index >= begin_index and (not files or files[0].file_from_offset != mark.begin_pos):
            raise self._damaged(f"no file begins at {mark.begin_pos}, where the log began")
        return begin_index

    def _reader(self, mark: SyncedMark | None, begin_index: Index) -> SequentialReader:
        if mark is None:
            return RecordReader(self._data, Index(-1), Term(-1), Pos(self._data.queue.min_offset))
        return RecordReader(self._data, mark.index, mark.term, mark.end_pos)

    def _rewrite(self, verified: VerifiedRange) -> None:
        if self._mark_file.mark is not None:
            super()._rewrite(verified)
            return
        mapped_file = self._data.queue.find_mapped_file_by_offset(verified.first_pos)
        assert mapped_file is not None
        if mapped_file not in self._touched:
            log.info("records that another broker wrote are read path=%s", mapped_file.path)
        self._touch([mapped_file])
        self._touch(self._index.write(verified.first_index, index_units_of(verified)))

    # -- below the mark ----------------------------------------------------------------------------------------

    def _check_below(self, mark: SyncedMark) -> None:
        """As BelowMark: the edges of each file. The units are made anew where they contradict them."""
        if not self._units_are_right(mark):
            self._rebuild_index(mark)
            if not self._units_are_right(mark):
                raise self._damaged(f"record {mark.index} does not end at {mark.end_pos}, where it ended")

    def _units_are_right(self, mark: SyncedMark) -> bool:
        """Raises LedgerDamagedError where a record is not sound."""
        next_index = mark.before_begin_index + 1
        for mapped_file in self._files_below(mark):
            begin, end = mapped_file.file_from_offset, mapped_file.end_offset
            self._check_sound(begin)
            is_last = end >= mark.end_pos
            try:
                if self._index.unit(next_index).pos != begin:
                    return False
                last_index = (
                    mark.index if is_last else self._first_index_from(next_index, mark.index, end) - 1
                )
                unit = self._index.unit(last_index)
            except LedgerDamagedError:
                return False
            if unit.pos + self._check_sound(unit.pos) != unit.pos + unit.size:
                return False
            unit_end = unit.pos + unit.size
            if is_last:
                return unit_end == mark.end_pos and unit.term == mark.term
            if BLANK_HEADER.unpack(self._data.read(unit_end, BLANK_HEADER.size)) != (
                end - unit_end,
                BLANK_MAGIC,
            ):
                return False
            next_index = last_index + 1
        return False

    def _files_below(self, mark: SyncedMark) -> list[MappedFile]:
        files = self._data.queue.mapped_files
        covered = [mapped_file for mapped_file in files if mapped_file.file_from_offset < mark.end_pos]
        if not covered or covered[-1].end_offset < mark.end_pos:
            raise self._damaged(f"no file holds record {mark.index}, which ended at {mark.end_pos}")
        return covered

    def _first_index_from(self, low: int, high: int, pos: int) -> int:
        """The first index of low .. high + 1 whose record begins at `pos` or behind."""
        return low + bisect_left(range(low, high + 1), pos, key=lambda index: self._index.unit(index).pos)

    def _check_sound(self, pos: int) -> int:
        """The size of the record at `pos`."""
        size = record_size_at(self._data.read(pos, RECORD_SIZE_MIN), pos)
        try:
            if size is None:
                raise MessageDecodeError("no record begins there")
            decode_message(self._data.read(pos, size))
        except MessageDecodeError as error:
            raise self._damaged(f"the record at {pos} is not sound: {error}") from error
        return size

    def _rebuild_index(self, mark: SyncedMark) -> None:
        log.warning("record units made anew from=%s", self._data.queue.directory)
        reader = RecordReader(
            self._data, mark.before_begin_index, mark.before_begin_term, Pos(self._data.queue.min_offset)
        )
        for verified in reader.ranges():
            count = mark.index - verified.first_index + 1
            units = index_units_of(verified)[: count * INDEX_UNIT_SIZE]
            self._touch(self._index.write(verified.first_index, units))
            if reader.index >= mark.index:
                return
        raise self._damaged(
            f"record {reader.index + 1} at {reader.end_pos} is not readable ({reader.stopped_by or 'zeros'})"
        )

    def _damaged(self, fault: str) -> LedgerDamagedError:
        return LedgerDamagedError(
            f"{self._config.data_directory}: {fault}, although it was durable. Nothing was changed. "
            "Restore the directory from a backup"
        )

    # -- RocketMQ's --------------------------------------------------------------------------------------------

    def _refuse_foreign_tail(self, mark: SyncedMark | None, reader: SequentialReader) -> None:
        """Records behind one that is not sound: after RocketMQ's clean stop that is damage, and not a torn tail."""
        if mark is not None:
            return
        end_pos = reader.end_pos
        last = self._data.queue.find_mapped_file_by_offset(max(end_pos - 1, 0))
        for mapped_file in self._data.queue.mapped_files:
            begin = mapped_file.file_from_offset
            if begin >= end_pos and (last is None or mapped_file is not last) and self._is_sound(begin):
                raise self._unsound(reader, begin)
        assert isinstance(self._config, PlainLogConfig)
        if not self._disk.exists(self._config.abort_file):
            found = self._find_sound(end_pos + 1, self._data.file_end(end_pos))
            if found is not None:
                raise self._unsound(reader, found)

    def _unsound(self, reader: SequentialReader, found: int) -> LedgerDamagedError:
        return LedgerDamagedError(
            f"{self._config.data_directory}: no sound record at {reader.end_pos} "
            f"({reader.stopped_by or 'zeros'}), but one at {found} behind it. Nothing was changed. Restore the files "
            f"from a backup. To give up all records from {reader.end_pos} on instead, remove later files and make an "
            "empty file named abort beside the directory: then the log ends there, as after a crash of RocketMQ"
        )

    def _is_sound(self, pos: int) -> bool:
        size = record_size_at(self._data.read(pos, RECORD_SIZE_MIN), pos)
        if size is None:
            return False
        try:
            decode_message(self._data.read(pos, size))
        except MessageDecodeError:
            return False
        return True

    def _find_sound(self, start: int, end: int) -> int | None:
        """A sound record that begins in start .. end, the first in `_SCAN_SIZE`."""
        end = min(end, start + _SCAN_SIZE)
        for at in range(start, end, _CHUNK_SIZE):
            chunk = self._data.read(at, min(_CHUNK_SIZE + 8, end - at))
            for magic in _MAGICS:
                found = chunk.find(magic)
                while found >= 0:
                    if self._is_sound(at + found - 4):
                        return at + found - 4
                    found = chunk.find(magic, found + 1)
        return None
