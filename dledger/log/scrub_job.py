"""One step of the scrub over a ledger: some entries, the blank behind them and their index units, read back and proved.

A job reads through descriptors of its own and touches nothing of the ledger in memory, so it holds up no append, cut or
deletion. What came over it meanwhile is the walk's to reckon with (log_scrub.py), which also mends.
"""

from contextlib import suppress

import msgspec
from msgspec.structs import replace

from disk.disk import Disk, DiskError, File
from disk.mapped_file_queue import file_name
from disk.readable import read_what_there_is, unreadable
from dledger.entry import (
    BLANK_HEADER,
    BLANK_HEADER_SIZE,
    BLANK_MAGIC,
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    GENESIS_CHAIN,
    INDEX_UNIT,
    INDEX_UNIT_SIZE,
    EntryFault,
    EntryHeader,
    Index,
    IndexUnit,
    Pos,
    RangeCorruptError,
    Term,
    VerifiedRange,
    chain_after,
    index_units_of,
    parse_header,
    verify_entries,
)
from dledger.log.config import LogConfig
from dledger.log.entry_reader import whole_entries_size
from dledger.log.index_files import count_confirmed

_ZERO_CHUNK = bytes(1024 * 1024)


class Place(msgspec.Struct, frozen=True):
    """How far a walk has come: behind the entry `index`, sound or not."""

    index: Index
    term: Term  # of the last sound entry, a stale one perhaps
    end_pos: Pos  # where the next entry lies, unless a blank does; -1: only its unit knows
    chain: int | None  # of the entry; None: it was not sound
    is_proven: bool = True  # the chain, by that of the entry before
    is_unit_right: bool = True  # of an entry whose chain is not proven yet; of others that is told already

    def is_before(self, begin: "Place") -> bool:
        """The log has come to begin behind it. Behind the same entry the end of a file may lie between the two."""
        return self.index < begin.index or (self.index == begin.index and self.end_pos < begin.end_pos)


class EntriesFault(msgspec.Struct, frozen=True):
    """Entries of both ends and all between are not what was appended."""

    first_index: Index
    last_index: Index
    pos: Pos  # where the first would lie, -1 if neither a unit nor an entry says it
    next_pos: Pos  # where the entry behind the last one lies, or -1
    reason: str


class UnitsFault(msgspec.Struct, frozen=True):
    """Units of the index, of both ends and all between, disagree with sound entries."""

    first_index: Index
    last_index: Index


class BlankFault(msgspec.Struct, frozen=True):
    """A data file's rest is no exact blank, and nothing else belongs there."""

    last_index: Index  # before it
    pos: Pos
    size: int


LogFault = EntriesFault | UnitsFault | BlankFault


class LogScrubJob:
    """Fulfils DiskJob. `place`, `size`, `faults` and `missing` are its result."""

    kind = "scrub"
    writes = False

    def __init__(
        self,
        disk: Disk,
        config: LogConfig,
        place: Place,
        last_index: Index,
        end_pos: Pos,
        end_chain: int,
        *,
        size_max: int,
        log_generation: int,
    ) -> None:
        """From `place` up to `last_index`, which ends at `end_pos` and has that chain, about `size_max` bytes."""
        self.start = place
        self.log_generation = log_generation
        self.place = place
        self.size = 0  # bytes read
        self.faults: list[LogFault] = []
        self.missing: str | None = None  # a file that was not there
        self._disk = disk
        self._config = config
        self._last_index = last_index
        self._end_pos = end_pos
        self._end_chain = end_chain
        self._size_max = size_max
        self._files: dict[str, File] = {}

    def run(self) -> None:
        try:
            while self.size < self._size_max and self.place.index < self._last_index:
                if self.place.chain is None:
                    self._find_sound_entry()
                else:
                    self._follow_chain(self.place.chain)
        except FileNotFoundError as error:
            self.missing = str(error.filename)
        finally:
            for file in self._files.values():
                file.close()
            self._files.clear()

    # -- behind a sound entry ------------------------------------------------------------------------------------

    def _follow_chain(self, chain: int) -> None:
        place = self.place
        pos, index = place.end_pos, Index(place.index + 1)
        file_end = self._file_end(pos)
        data_end = min(file_end, self._end_pos)
        chunk = self._read_data(pos, min(max(self._size_max - self.size, ENTRY_HEADER_SIZE), data_end - pos))
        whole = whole_entries_size(chunk)
        if not whole:
            if self._is_blank_next(chunk, pos, self._unit(index)):
                self._pass_blank(pos, file_end)
                return
            whole = self._size_in(chunk)
            if not self._is_possible(pos, whole):
                self._skip(index, pos, f"no entry begins at pos {pos}")
                return
            chunk = self._read_data(pos, whole)
        try:
            verified = self._verify(memoryview(chunk)[:whole], chain)
        except RangeCorruptError as error:
            self._take(error.verified)
            if error.kind is EntryFault.CHAIN and not self.place.is_proven:
                # Which of the two it is does not show: nothing but its own word stands for the one before.
                self._add_fault(
                    EntriesFault(place.index, place.index, Pos(-1), Pos(-1), "its chain leads nowhere")
                )
            self._skip(error.index, error.pos, str(error))
            return
        self._take(verified)

    def _verify(self, entries: memoryview, chain: int) -> VerifiedRange:
        """The entries behind `place`, none behind the last one: stale ones may have been more. Raises
        RangeCorruptError.
        """
        place = self.place
        index = Index(place.index + 1)
        try:
            verified = verify_entries(
                entries,
                first_index=index,
                first_pos=place.end_pos,
                prev_chain=chain,
                prev_term=place.term,
            )
        except RangeCorruptError as error:
            if error.index <= self._last_index:
                raise
            verified = error.verified
        count = self._last_index - place.index
        if verified.count > count:
            return self._verify(entries[: verified.offsets[count]], chain)
        return verified

    def _take(self, verified: VerifiedRange) -> None:
        if verified.count:
            if not self.place.is_unit_right:  # what follows proves the entry, and so that its unit is wrong
                self._add_fault(UnitsFault(self.place.index, self.place.index))
            self._check_units(verified)
            self.place = Place(verified.last_index, verified.last_term, verified.next_pos, verified.chain)

    def _is_blank_next(self, chunk: bytes, pos: int, unit: IndexUnit | None) -> bool:
        """Whether the file ends here, by the next entry's unit or else by the bytes. Where the log ends in it,
        a blank is a stale one.
        """
        file_end = self._file_end(pos)
        if pos % self._config.data_file_size == 0 or file_end > self._end_pos - ENTRY_HEADER_SIZE:
            return False
        if unit is not None and unit.pos in (pos, file_end):
            return unit.pos == file_end
        return chunk[:BLANK_HEADER_SIZE] == BLANK_HEADER.pack(BLANK_MAGIC, file_end - pos)

    def _check_blank(self, pos: int, file_end: int) -> None:
        if not self._is_blank(pos, file_end):
            self._add_fault(BlankFault(self.place.index, Pos(pos), file_end - pos))

    def _pass_blank(self, pos: int, file_end: int) -> None:
        self._check_blank(pos, file_end)
        self.place = replace(self.place, end_pos=Pos(file_end))

    def _is_blank(self, pos: int, file_end: int) -> bool:
        if self._read_data(pos, BLANK_HEADER_SIZE) != BLANK_HEADER.pack(BLANK_MAGIC, file_end - pos):
            return False
        at = pos + BLANK_HEADER_SIZE
        while at < file_end:
            size = min(len(_ZERO_CHUNK), file_end - at)
            if self._read_data(at, size) != _ZERO_CHUNK[:size]:
                return False
            at += size
        return True

    def _size_in(self, chunk: bytes) -> int:
        """Of the entry that begins with these bytes, by its own word; 0 if none does."""
        if len(chunk) < ENTRY_HEADER_SIZE:
            return 0
        magic, size = BLANK_HEADER.unpack_from(chunk)
        return int(size) if magic == ENTRY_MAGIC else 0

    # -- behind a damaged one ------------------------------------------------------------------------------------

    def _skip(self, index: Index, pos: int, reason: str) -> None:
        """The entry is damaged. The next is looked for where its unit says, or behind this one."""
        unit = self._unit(index)
        end_pos = -1
        if unit is not None:
            end_pos = unit.pos + unit.size
        elif pos >= 0:
            header = self._header_at(pos)
            if header is not None and header.index == index and self._is_possible(pos, header.size):
                end_pos = pos + header.size
        self._add_fault(EntriesFault(index, index, Pos(pos), Pos(self._pos_behind(index, end_pos)), reason))
        self.place = Place(index, self.place.term, Pos(end_pos), None, is_proven=False)

    def _pos_behind(self, index: Index, end_pos: int) -> int:
        """Where the entry behind `index` lies, which seems to end at `end_pos`."""
        if index == self._last_index:
            return self._end_pos
        unit = self._unit(index + 1)
        return unit.pos if unit is not None else end_pos

    def _find_sound_entry(self) -> None:
        """The next entry, whatever chain it has: the entries behind it prove it."""
        index = Index(self.place.index + 1)
        unit = self._unit(index)
        places = [unit.pos] if unit is not None else []
        behind = self.place.end_pos
        if unit is not None and 0 <= behind < unit.pos == self._file_end(behind):
            self._check_blank(behind, unit.pos)
        if behind >= 0 and self._end_pos > behind:
            chunk = self._read_data(behind, BLANK_HEADER_SIZE)
            places.append(Pos(self._file_end(behind)) if self._is_blank_next(chunk, behind, None) else behind)
        for pos in places:
            header = self._entry_alone(index, pos)
            # A unit that says something else may be right: the entry would be a stale one, sound in itself.
            if header is not None and (unit is None or (header.pos, header.term) == (unit.pos, unit.term)):
                self.place = Place(
                    index,
                    header.term,
                    Pos(pos + header.size),
                    header.chain_crc,
                    is_proven=False,
                    is_unit_right=unit is not None and unit.size == header.size,
                )
                if index == self._last_index:
                    self._check_last(header)
                return
        pos = places[0] if places else Pos(-1)
        self._skip(
            index, pos, f"no entry {index} begins at pos {pos}" if places else "nothing says where it lies"
        )

    def _check_last(self, header: EntryHeader) -> None:
        """Nothing follows the last one, which is remembered instead."""
        index, pos = header.index, header.pos
        if header.chain_crc != self._end_chain:
            self._add_fault(EntriesFault(index, index, pos, self._end_pos, "it is not the one remembered"))
        elif not self.place.is_unit_right:
            self._add_fault(UnitsFault(index, index))

    def _entry_alone(self, index: Index, pos: int) -> EntryHeader | None:
        """The header of a sound entry at `pos`; its chain may be any, and its term: stale ones in front may have had a
        later one.
        """
        header = self._header_at(pos)
        if header is None or not self._is_possible(pos, header.size):
            return None
        try:
            verify_entries(
                self._read_data(pos, header.size),
                first_index=index,
                first_pos=pos,
                prev_chain=GENESIS_CHAIN,
            )
        except RangeCorruptError as error:
            if error.kind is not EntryFault.CHAIN:
                return None
        return header

    def _is_possible(self, pos: int, size: int) -> bool:
        """Whether an entry of this size may lie at `pos`: a damaged size must not have a whole file read."""
        room = min(self._file_end(pos), self._end_pos) - pos
        return ENTRY_HEADER_SIZE <= size <= min(self._config.entry_size_max, room)

    # -- units -----------------------------------------------------------------------------------------------------

    def _check_units(self, verified: VerifiedRange) -> None:
        right = index_units_of(verified)
        found = self._read_units(verified.first_index, verified.count)
        is_end = verified.last_index == self._last_index
        if found == right and (not is_end or verified.chain == self._end_chain):
            return
        wrong = [
            number
            for number, at in enumerate(range(0, len(right), INDEX_UNIT_SIZE))
            if found[at : at + INDEX_UNIT_SIZE] != right[at : at + INDEX_UNIT_SIZE]
        ] or [verified.count - 1]
        confirmed = verified.count if self._leads_on(verified) else count_confirmed(found, right)
        units = [number for number in wrong if number < confirmed]
        if units:
            first_index = verified.first_index
            self._add_fault(UnitsFault(Index(first_index + units[0]), Index(first_index + units[-1])))
        stale = next((number for number in wrong if number >= confirmed), None)
        if stale is not None:
            # Stale entries go on from the same history as the right ones, which their units tell of.
            first_index = Index(verified.first_index + stale)
            pos = Pos(verified.first_pos + verified.offsets[stale])
            reason = "entries of an earlier history: what is behind the last one does not follow"
            self._add_fault(EntriesFault(first_index, verified.last_index, pos, verified.next_pos, reason))

    def _leads_on(self, verified: VerifiedRange) -> bool:
        """Whether the entry behind the last one has a header that follows from it."""
        if verified.last_index == self._last_index:
            return verified.chain == self._end_chain
        file_end = self._file_end(verified.next_pos)
        for pos in (verified.next_pos, file_end):
            room = min(self._file_end(pos), self._end_pos) - pos
            if room >= ENTRY_HEADER_SIZE:
                raw = self._read_data(pos, ENTRY_HEADER_SIZE)
                header = parse_header(raw)
                if (header.magic, header.index, header.pos) == (ENTRY_MAGIC, verified.last_index + 1, pos):
                    return chain_after(raw, verified.chain) == header.chain_crc
        return False

    def _unit(self, index: int) -> IndexUnit | None:
        """None if it is not sound by its looks."""
        unit = IndexUnit(*INDEX_UNIT.unpack(self._read_units(index, 1)))
        is_sound = (
            (unit.magic, unit.index) == (ENTRY_MAGIC, index)
            and unit.pos >= 0
            and self._is_possible(unit.pos, unit.size)
        )
        return unit if is_sound else None

    def _read_units(self, index: int, count: int) -> bytes:
        config = self._config
        offset, end = index * INDEX_UNIT_SIZE, (index + count) * INDEX_UNIT_SIZE
        parts: list[bytes] = []
        while offset < end:
            size = min(end - offset, config.index_file_size - offset % config.index_file_size)
            parts.append(self._read(config.index_directory, config.index_file_size, offset, size))
            offset += size
        return b"".join(parts)

    # -- bytes -----------------------------------------------------------------------------------------------------

    def _file_end(self, pos: int) -> int:
        size = self._config.data_file_size
        return pos - pos % size + size

    def _header_at(self, pos: int) -> EntryHeader | None:
        if self._file_end(pos) - pos < ENTRY_HEADER_SIZE:
            return None
        return parse_header(self._read_data(pos, ENTRY_HEADER_SIZE))

    def _read_data(self, pos: int, size: int) -> bytes:
        return self._read(self._config.data_directory, self._config.data_file_size, pos, size)

    def _read(self, directory: str, file_size: int, offset: int, size: int) -> bytes:
        """Bytes of one file of a queue, as they lie on the medium as far as the kernel can tell."""
        start = offset - offset % file_size
        path = f"{directory}/{file_name(start)}"
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self._disk.open(path, read_only=True)
        self.size += size
        return read_from_medium(file, size, offset - start)

    def _add_fault(self, fault: LogFault) -> None:
        last = self.faults[-1] if self.faults else None
        if (
            isinstance(fault, EntriesFault)
            and isinstance(last, EntriesFault)
            and fault.first_index == last.last_index + 1
        ):
            self.faults[-1] = replace(last, last_index=fault.last_index, next_pos=fault.next_pos)
        else:
            self.faults.append(fault)


def read_from_medium(file: File, size: int, offset: int) -> bytes:
    """What the disk has, not what is cached of it. What it does not give, or not that far, reads as what no record
    passes with.
    """
    with suppress(DiskError):
        file.forget_cached(offset, size)
    data = read_what_there_is(file, size, offset)
    return data + unreadable(size - len(data))
