"""Looks at entries one by one and says which of them are damaged, and where the next sound one lies.

The data files alone decide. A sound entry says where it lies and which one it is, so behind damage the next one is
found without the index, which may be damaged too; and index units that contradict sound entries are written anew, as
is the blank of a file whose entries are sound.

What the data files do not tell is that entries of an earlier history are back, in the place of those that came after a
cut: they are sound, and follow from those in front. Their units tell of others (of another term, later or earlier, or
after an append that was taken back even of the same), and the entry behind does not follow from them, or the last one
is not as it was remembered. Then they are the damage, and not the units. An entry behind that its unit tells of, and
that another one follows, says the contrary. Where damage comes before such, sound ones with damaged units go with it.
Their units may have come back as well. Then the terms tell that this process remembers: of no index there are two of
one term.

Of a unit or a blank for which a full disk has no space, in a file that has become shorter, the entries count as damaged
like others, and are repaired like others when there is some: a look ends nobody.
"""

import logging
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from disk.disk import NoSpaceError
from disk.mapped_file import MappedFile
from disk.readable import write_over
from dledger.entry import (
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    GENESIS_CHAIN,
    INDEX_UNIT,
    INDEX_UNIT_SIZE,
    EntryCorruptError,
    Index,
    IndexUnit,
    Pos,
    Term,
    VerifiedRange,
    blank,
    chain_after,
    index_units_of,
    is_exact_blank,
)
from dledger.log.data_files import DataFiles
from dledger.log.entry_reader import EntryReader, entry_alone, header_at, header_positions
from dledger.log.errors import LedgerDamagedError
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.index_files import IndexFiles, count_before_other, count_confirmed
from dledger.log.log_reader import LogReader, chain_crc_at
from dledger.log.term_runs import TermRuns

log = logging.getLogger(__name__)

_LED_TO_END_MAX = 4 * 1024 * 1024  # bytes, in front of the last entry


class Anchor(msgspec.Struct, frozen=True):
    """An entry that is known to be sound, or what was remembered of one: all that comes behind it is proved by it."""

    index: Index
    term: Term
    end_pos: Pos  # behind the entry
    chain: int


class FaultFinder:
    """Reads only, but for index units and blanks, in files that `repaired` names: they need a sync."""

    def __init__(
        self, data: DataFiles, index: IndexFiles, begin: Anchor, end: Anchor, term_runs: TermRuns
    ) -> None:
        """`begin`: the entry in front of the log, whose `end_pos` is where the first one lies. `end`: the last entry
        that counts, as it was remembered; nothing behind it is looked at. `term_runs`: what is remembered of terms.
        """
        self.repaired: list[MappedFile] = []
        self.reached = begin  # the last sound entry that examine() came to
        self._found: list[FaultyRange] = []  # by this look
        self._data = data
        self._index = index
        self._begin = begin
        self._end = end
        self._term_runs = term_runs

    def examine(self, first_index: int, last_index: int, until_pos: int | None = None) -> list[FaultyRange]:
        """Damage among these entries, or those that begin before `until_pos`; each range goes up to the next sound
        entry, which may lie behind.
        """
        self._found = []
        last_index = min(last_index, self._end.index)
        until_pos = self._end.end_pos if until_pos is None else until_pos
        anchor = self._anchor_before(max(first_index, self._begin.index + 1))
        while anchor.index < last_index and anchor.end_pos < until_pos:
            before = anchor
            anchor, stale_end = self._walk(anchor, last_index, until_pos)
            if stale_end is not None:
                stale, anchor = self._stale_behind(anchor, stale_end)
                if stale is not None:
                    self._found.append(stale)
                continue
            if anchor.index >= last_index or (anchor != before and anchor.end_pos >= until_pos):
                break
            faulty, anchor = self._fault_behind(anchor)
            if faulty is not None:
                self._found.append(faulty)
        self.reached = anchor
        return self._found

    # -- sound entries -------------------------------------------------------------------------------------------

    def _anchor_before(self, index: int) -> Anchor:
        """A proven entry in front of `index`: the one before, if that is sound."""
        step = 1
        while index - step > self._begin.index:
            anchor = self._proven_at(index - step)
            if anchor is not None:
                return anchor
            step *= 2
        if self._begin.index >= 0 and self._begin.chain == GENESIS_CHAIN:
            # Java's retention tells nobody what lay before: the first entry is taken as it stands.
            return self._first_alone() or self._begin
        return self._begin

    def _first_alone(self) -> Anchor | None:
        """The first entry of the log, if it is sound by its own word; then its unit is made right."""
        first = self._alone(self._begin.end_pos)
        if first is not None and self._linked_pos(first) is not None:
            self._correct_units(
                first.index, index_units_of(entry_alone(self._data, self._begin.end_pos, None))
            )
        return first

    def _proven_at(self, index: int) -> Anchor | None:
        """The entry, if it is sound and linked to the one in front of it."""
        try:
            unit = self._index.unit(index)
            if index - 1 == self._begin.index:
                prev_chain = self._begin.chain
            else:
                prev_chain = header_at(self._data, self._index.unit(index - 1).pos).chain_crc
        except LedgerDamagedError:
            return None
        anchor = self._alone(unit.pos)
        if anchor is None or anchor.index != index or not _is_of(unit, unit.pos, anchor):
            return None  # one of an earlier history may have another index in the same place
        if not self._is_possible(anchor):
            return None
        return anchor if self._is_linked(unit.pos, prev_chain) else None

    def _alone(self, pos: int) -> Anchor | None:
        """The entry at `pos` by its own word, its chain as it stands."""
        if self._data.queue.find_mapped_file_by_offset(pos) is None:
            return None
        try:
            entry = entry_alone(self._data, pos, None)
        except EntryCorruptError:
            return None
        return anchor_of(entry)

    def _is_linked(self, pos: int, prev_chain: int) -> bool:
        """Whether the header at `pos` is that of the entry behind the one with this chain: then all in it is right."""
        raw = self._data.read(pos, ENTRY_HEADER_SIZE)
        return len(raw) == ENTRY_HEADER_SIZE and chain_crc_at(raw, 0) == chain_after(raw, prev_chain)

    def _linked_pos(self, anchor: Anchor) -> Pos | None:
        """Where the header of the entry behind `anchor` lies, if it is sound."""
        for pos in (anchor.end_pos, self._next_file(anchor.end_pos)):
            header = header_at(self._data, pos)
            is_next = (header.magic, header.index, header.pos) == (ENTRY_MAGIC, anchor.index + 1, pos)
            if is_next and self._is_linked(pos, anchor.chain):
                return Pos(pos)
        return None

    def _next_file(self, end_pos: int) -> int:
        """The file behind the one in which an entry ends; itself where the log begins."""
        return self._data.file_end(end_pos - 1)

    def _walk(self, anchor: Anchor, last_index: int, until_pos: int) -> tuple[Anchor, Anchor | None]:
        """The last sound entry behind `anchor` without a gap, or one behind `last_index`; and if stale ones follow it,
        the last of them.
        """
        reader = EntryReader(self._data, anchor.index, anchor.term, anchor.end_pos, anchor.chain)
        sound = last = anchor
        # Units of entries behind `sound` in the place of which others are told.
        suspects: list[tuple[int, bytes]] = []
        for verified in reader.ranges():
            before, last = last, Anchor(reader.index, reader.term, reader.end_pos, reader.chain)
            count = min(verified.last_index, self._end.index) - verified.first_index + 1
            possible = self._count_possible(verified, count)
            are_all_possible, count = possible == count, possible
            units = index_units_of(verified)[: count * INDEX_UNIT_SIZE]
            found = self._index.read(verified.first_index, len(units))
            confirmed = count_confirmed(found, units)
            if confirmed:
                self._correct_suspects(suspects)
            if not suspects:
                at = confirmed * INDEX_UNIT_SIZE
                undoubted = confirmed + count_before_other(found[at:], units[at:])
                sound = _anchor_at(verified, undoubted, before)
                self._correct_units(verified.first_index, units[: undoubted * INDEX_UNIT_SIZE])
                if undoubted < count:
                    suspects = [(sound.index + 1, units[undoubted * INDEX_UNIT_SIZE :])]
            else:
                suspects.append((verified.first_index, units))
            if not are_all_possible:
                return sound, last
            if reader.index >= self._end.index:
                sound = self._end
            elif suspects and self._is_confirmed(last):
                sound = last
            if sound.index >= min(reader.index, self._end.index):
                self._correct_suspects(suspects)
                if reader.index >= last_index or reader.end_pos >= until_pos:
                    break
        return sound, last if suspects else None

    def _count_possible(self, verified: VerifiedRange, count: int) -> int:
        """How many of the first `count` may be of this log."""
        other = self._term_runs.first_other(verified.first_index, verified.terms[:count])
        count = count if other is None else other
        while count and not self._has_room_behind(_anchor_at(verified, count, self._end)):
            count -= 1
        return count

    def _is_possible(self, anchor: Anchor) -> bool:
        """Whether an entry may be of this log, by its term and by where it ends."""
        is_of_other_term = self._term_runs.first_other(anchor.index, [anchor.term]) is not None
        return not is_of_other_term and self._has_room_behind(anchor)

    def _has_room_behind(self, anchor: Anchor) -> bool:
        """For all up to the end. The last one is as it was remembered."""
        if anchor.index >= self._end.index:
            return anchor == self._end
        return anchor.end_pos + (self._end.index - anchor.index) * ENTRY_HEADER_SIZE <= self._end.end_pos

    def _is_confirmed(self, anchor: Anchor) -> bool:
        """Whether what follows from an entry, and a unit, of one or the other, say that it is the one that counts."""
        pos = self._linked_pos(anchor)
        if pos is None or not self._is_possible(anchor):
            return False
        with suppress(LedgerDamagedError):
            unit = self._index.unit(anchor.index)
            if (unit.pos + unit.size, unit.term) == (anchor.end_pos, anchor.term):
                return True
        with suppress(LedgerDamagedError):
            unit, header = self._index.unit(anchor.index + 1), header_at(self._data, pos)
            return (unit.pos, unit.size, unit.term) == (pos, header.size, header.term)
        return False

    def _correct_suspects(self, suspects: list[tuple[int, bytes]]) -> None:
        """They are none: what is behind them says so."""
        for first_index, units in suspects:
            self._correct_units(first_index, units)
        suspects.clear()

    def _correct_units(self, first_index: int, units: bytes) -> None:
        if self._index.read(first_index, len(units)) != units:
            last_index = first_index + len(units) // INDEX_UNIT_SIZE - 1
            log.warning("index units rebuilt first=%d last=%d", first_index, last_index)
            try:
                for mapped_file in self._index.correct(first_index, units):
                    self._touch(mapped_file)
            except NoSpaceError as error:
                first = IndexUnit(*INDEX_UNIT.unpack_from(units))
                last = IndexUnit(*INDEX_UNIT.unpack_from(units, len(units) - INDEX_UNIT_SIZE))
                self._stays(FaultyRange(first.index, last.index, first.pos, Pos(last.pos + last.size)), error)

    def _touch(self, mapped_file: MappedFile) -> None:
        if mapped_file not in self.repaired:
            self.repaired.append(mapped_file)

    def _stays(self, faulty: FaultyRange, error: NoSpaceError) -> None:
        log.warning("not rebuilt: %s; %s", faulty, error)
        self._found.append(faulty)

    # -- damage --------------------------------------------------------------------------------------------------

    def _fault_behind(self, anchor: Anchor) -> tuple[FaultyRange | None, Anchor]:
        """What is wrong behind a sound entry, and where to go on. None where it was no more than a blank."""
        index, pos = Index(anchor.index + 1), self._linked_pos(anchor)
        if pos is None:
            return self._unlinked_behind(anchor)
        behind = self._by_header(pos)
        if pos > anchor.end_pos:
            is_unit_in_front = self._is_unit_at(index, anchor.end_pos) and not self._is_confirmed(behind)
            if is_unit_in_front or self._may_go_on_within(anchor, behind):
                return self._unlinked_behind(anchor)  # of an earlier history, and so is the blank
            self._correct_blank(FaultyRange(index, index, anchor.end_pos, behind.end_pos), pos)
        alone = self._alone(pos)
        if alone is not None and not self._is_possible(alone):
            return self._unlinked_behind(anchor)
        if alone is not None:
            return None, alone if pos == anchor.end_pos else replace(anchor, end_pos=pos)
        is_told_otherwise = self._is_told_otherwise(pos, behind) and not self._is_confirmed(behind)
        if is_told_otherwise or not self._is_possible(behind):
            return self._unlinked_behind(anchor)  # of an earlier history
        return FaultyRange(index, index, pos, behind.end_pos), behind  # proven: the damage is in the body

    def _by_header(self, pos: Pos) -> Anchor:
        header = header_at(self._data, pos)
        return Anchor(header.index, header.term, Pos(pos + header.size), header.chain_crc)

    def _may_go_on_within(self, anchor: Anchor, behind: Anchor) -> bool:
        """Whether something behind `anchor`, up to the end of its file, says of itself that it is an entry of this log.
        Then `behind`, in the next file, may be a stale one, with a unit that is back as well, and so may `anchor`,
        unless it leads to the last one, which is remembered. Written over by a blank, they would be lost unnoticed.
        """
        pos, file_end = anchor.end_pos, self._next_file(anchor.end_pos)
        if self._found and self._found[-1].last_index == anchor.index:
            # Of `anchor` no more than the header is proved: what lies in the place of its body may be entries as well.
            pos = Pos(max(self._found[-1].pos + ENTRY_HEADER_SIZE, file_end - self._data.file_size))
        headers = map(self._by_header, header_positions(self._data, pos, file_end))
        return any(map(self._is_possible, headers)) and not leads_to_end(self._data, behind, self._end)

    def _is_unit_at(self, index: int, pos: int) -> bool:
        """Whether the unit of an entry tells that it lies there."""
        with suppress(LedgerDamagedError):
            return self._index.unit(index).pos == pos
        return False

    def _unlinked_behind(self, anchor: Anchor) -> tuple[FaultyRange, Anchor]:
        first_index, pos = Index(anchor.index + 1), self._likely_pos(anchor)
        return self._up_to_sound(first_index, pos, first_index, pos)

    def _stale_behind(self, anchor: Anchor, stale_end: Anchor) -> tuple[FaultyRange | None, Anchor]:
        """Entries from the one behind `anchor` on are stale, up to `stale_end` at least; and where to go on. None where
        they lie in the place of a blank.
        """
        file_end = self._next_file(anchor.end_pos)
        first = self._alone(file_end) if file_end > anchor.end_pos else None
        if (
            first is not None
            and first.index == anchor.index + 1
            and self._is_linked(file_end, anchor.chain)
            and not self._is_told_otherwise(Pos(file_end), first)
            and not self._may_go_on_within(anchor, first)
        ):
            self._correct_blank(
                FaultyRange(first.index, first.index, anchor.end_pos, first.end_pos), file_end
            )
            return None, replace(anchor, end_pos=Pos(file_end))
        first_index, pos = Index(anchor.index + 1), self._likely_pos(anchor)
        if stale_end.index >= self._end.index:
            pos = Pos(min(pos, self._end.end_pos - ENTRY_HEADER_SIZE))
            return FaultyRange(first_index, self._end.index, pos, self._end.end_pos), self._end
        behind = self._likely_pos(stale_end)
        return self._up_to_sound(first_index, pos, Index(stale_end.index + 1), behind)

    def _up_to_sound(
        self, first_index: Index, first_pos: Pos, before_index: Index, pos: Pos
    ) -> tuple[FaultyRange, Anchor]:
        """Damage from `first_pos` on, and what to go on from: the entry in front of the first sound one, which lies
        behind `pos`, where the entry `before_index` would be.
        """
        before_chain = header_at(self._data, pos).chain_crc
        stale: set[int] = set()  # positions
        # Those passed over may be what counts, and the next one be stale, with its unit: it does not end the range.
        has_passed_some = False
        for candidate in header_positions(self._data, pos, self._end.end_pos):
            was_some_passed, has_passed_some = has_passed_some, has_passed_some or candidate != pos
            if candidate in stale:
                continue
            alone = self._alone(candidate)
            if alone is None or alone.index > self._end.index:
                continue
            if alone.index <= first_index:
                # None of this log, or damaged: what follows from a stale one is stale, too.
                stale |= self._stale_from(candidate, alone, is_other=alone.index < first_index)
                continue
            is_linked = alone.index == before_index + 1 and self._is_linked(candidate, before_chain)
            if alone == self._end:
                if alone.index == before_index + 1 and not is_linked:
                    break  # the chain in front is damaged, or what of this header is not remembered
                # Nothing follows the last one, which is remembered instead.
                last_one = entry_alone(self._data, candidate, None)
                self._correct_units(alone.index, index_units_of(last_one))
                return FaultyRange(first_index, Index(alone.index - 1), first_pos, candidate), alone
            stale |= self._stale_from(candidate, alone, is_other=not self._is_possible(alone))
            if candidate in stale:
                continue
            # The chain of the one in front may be all that is right of it.
            if is_linked and not was_some_passed:
                before = Anchor(before_index, alone.term, candidate, before_chain)
                return FaultyRange(first_index, before_index, first_pos, candidate), before
            before_index, before_chain, has_passed_some = alone.index, alone.chain, False
        return FaultyRange(first_index, self._end.index, first_pos, self._end.end_pos), self._end

    def _stale_from(self, pos: Pos, alone: Anchor, *, is_other: bool) -> set[int]:
        """Where the entry at `pos` lies, which is sound in itself, and those that follow from it: if it is of another
        history for certain (`is_other`), or its unit tells of another and nothing behind it confirms it.
        """
        if not is_other and not self._is_told_otherwise(pos, alone):
            return set()
        positions: set[int] = {pos}
        reader = EntryReader(self._data, alone.index, alone.term, alone.end_pos, alone.chain)
        for verified in reader.ranges():
            if not is_other:
                units = index_units_of(verified)
                if count_confirmed(self._index.read(verified.first_index, len(units)), units):
                    return set()
            positions.update(verified.first_pos + offset for offset in verified.offsets)
            if reader.index >= self._end.index:
                break
        last = Anchor(reader.index, reader.term, reader.end_pos, reader.chain)
        if not is_other and (last == self._end or self._is_confirmed(last)):
            return set()
        return positions

    def _is_told_otherwise(self, pos: Pos, anchor: Anchor) -> bool:
        """Whether the unit of the entry at `pos` tells of another, or what is remembered does."""
        if not self._is_possible(anchor):
            return True
        try:
            unit = self._index.unit(anchor.index)
        except LedgerDamagedError:
            return False
        return not _is_of(unit, pos, anchor)

    def _likely_pos(self, anchor: Anchor) -> Pos:
        """Where the entry behind `anchor` lies, although it is not readable. A blank is stale if the unit tells of
        an entry in its place.
        """
        end_pos = anchor.end_pos
        file_end = self._next_file(end_pos)
        if self._is_unit_at(anchor.index + 1, end_pos):
            return end_pos
        # Where the log ends in this file, a blank is a stale one as well.
        may_be_blank = end_pos < file_end <= self._end.end_pos - ENTRY_HEADER_SIZE
        is_blank = may_be_blank and is_exact_blank(self._data.read(end_pos, file_end - end_pos))
        return Pos(file_end if is_blank else end_pos)

    def _correct_blank(self, behind: FaultyRange, file_end: int) -> None:
        """`behind`: the entry behind it, with the blank."""
        pos = behind.pos
        if is_exact_blank(self._data.read(pos, file_end - pos)):
            return
        log.warning("blank rebuilt pos=%d size=%d", pos, file_end - pos)
        mapped_file = self._data.queue.find_mapped_file_by_offset(pos)
        assert mapped_file is not None, "an entry ends in it"
        try:
            write_over(mapped_file.file(), blank(file_end - pos), pos - mapped_file.file_from_offset)
            self._touch(mapped_file)
        except NoSpaceError as error:
            self._stays(behind, error)


def leads_to_end(data: DataFiles, anchor: Anchor, end: Anchor) -> bool:
    """Whether the last entry, as it is remembered, proves this one: it follows from it, not too far behind."""
    if anchor.index >= end.index:
        return anchor == end
    reader = EntryReader(data, anchor.index, anchor.term, anchor.end_pos, anchor.chain)
    for verified in reader.ranges():
        if reader.index >= end.index:
            return _anchor_at(verified, end.index - verified.first_index + 1, anchor) == end
        if reader.end_pos - anchor.end_pos > _LED_TO_END_MAX:
            break
    return False


def end_anchor(log: LogReader) -> Anchor:
    """The last entry of a log, as it is remembered."""
    return Anchor(log.ledger_end_index, log.ledger_end_term, log.ledger_end_pos, log.ledger_end_chain)


def anchor_of(entry: VerifiedRange) -> Anchor:
    """The last of these entries, its chain as it stands."""
    return Anchor(entry.last_index, entry.last_term, entry.next_pos, entry.chain)


def _is_of(unit: IndexUnit, pos: Pos, anchor: Anchor) -> bool:
    """Whether a unit with the index of an entry at `pos` tells of that one."""
    return (unit.pos, unit.pos + unit.size, unit.term) == (pos, anchor.end_pos, anchor.term)


def _anchor_at(verified: VerifiedRange, count: int, before: Anchor) -> Anchor:
    """The last of the first `count` entries, or the one in front of them."""
    if not count:
        return before
    number = count - 1
    is_last = count == verified.count
    return Anchor(
        Index(verified.first_index + number),
        Term(verified.terms[number]),
        Pos(verified.next_pos if is_last else verified.first_pos + verified.offsets[count]),
        chain_crc_at(verified.buffer, verified.offsets[number]),
    )
