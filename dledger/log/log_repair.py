"""Puts the bytes of a peer where entries are damaged here: proved first, up to the next sound entry, and then written.

The entry in front gives the chain that the peer's bytes must continue, and the entry behind must continue theirs: so
they are what lay there, or 32 bits of CRC agree by chance. A range that comes in several pieces is asked for twice,
once to prove it and once to write it, because the bytes that are there may still be the better part of what is left.
An entry that lost its chain takes the next one with it, of which nothing else is wrong: so the last of the range may be
what lies here already, if it follows from what a peer gave in front; what else the peer gave, of another history, is
passed over then.
Who is asked, and when, is dledger/repairer.py's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from disk.disk import File
from disk.mapped_file import MappedFile
from disk.readable import write_over
from dledger.core.messages import LedgerBegin
from dledger.entry import (
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    INDEX_UNIT_SIZE,
    EntryCorruptError,
    EntryFault,
    Index,
    Pos,
    Term,
    VerifiedRange,
    blank,
    chain_after,
    index_units_of,
    parse_header,
    verify_entries,
)
from dledger.log.data_files import DataFiles
from dledger.log.entry_reader import EntryReader, entry_alone, header_positions
from dledger.log.fault_finder import Anchor, anchor_of, end_anchor, leads_to_end
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.index_files import IndexFiles
from dledger.log.log_reader import LogReader, chain_crc_at

# Of what lies here already within the damage, the entries that begin within so many bytes are looked at: mostly it is
# one. All of it is read in one turn, and a long stretch of stale entries would hold up what else the member does.
_HERE_SIZE_MAX: Final = 1024 * 1024


class RepairRefusedError(Exception):
    """A peer's bytes are not what lay here, or what lies here is no longer what was proved; the text tells the
    difference. Nothing was written.
    """


class NotLinkedError(RepairRefusedError):
    """What lies behind does not continue a peer's bytes: they are others, or it has been damaged since."""


class NotContinuedError(RepairRefusedError):
    """A peer's entries do not follow from the entry in front of the damage: its history has parted from ours before."""


class RepairJob:
    """Writes proved entries over damaged ones, in place, and makes them durable.

    Its kind is that of cuts, for jobs of one kind run one behind the other: a cut that takes the range away begins only
    when this is done, or what is written here would lie behind the end of the log.

    A file that somebody has cut short gets its length back, but not while a start would not know what was lost behind:
    zeros in its place look like what was never written.
    """

    __slots__ = ("_known_ends", "_sizes", "_writes", "entries_size", "found_short", "held", "size")
    kind = "cut"

    def __init__(
        self,
        writes: Sequence[tuple[MappedFile, int, bytes]],
        entries_size: int,
        known_ends: Mapping[str, int],
    ) -> None:
        """`writes`: (file, offset in it, bytes). `entries_size`: of the entries alone, without units and blanks.
        `known_ends`: by path, the offset behind the last byte that is not noted as damaged; 0 if a start makes it anew.
        """
        self.entries_size = entries_size
        # Where files end that are shorter than that; nothing is written then.
        self.found_short: list[tuple[MappedFile, int]] = []
        self._known_ends = known_ends
        self.held = [mapped_file for mapped_file, _, _ in writes]
        self.size = sum(len(data) for _, _, data in writes)
        self._writes: list[tuple[File, int, bytes]] = [
            (mapped_file.hold(), offset, data) for mapped_file, offset, data in writes
        ]
        self._sizes = {mapped_file.path: mapped_file.file_size for mapped_file in self.held}

    def run(self) -> None:
        files = {file.path: file for file, _, _ in self._writes}
        sizes = {path: file.size() for path, file in files.items()}
        self.found_short = [
            (mapped_file, sizes[mapped_file.path])
            for mapped_file in {mapped_file.path: mapped_file for mapped_file in self.held}.values()
            if sizes[mapped_file.path] < self._known_ends[mapped_file.path]
        ]
        if self.found_short:
            return
        for path, file in files.items():
            if sizes[path] < self._sizes[path]:
                file.truncate(self._sizes[path])
        for file, offset, data in self._writes:
            write_over(file, data, offset)
        for file in files.values():
            file.fdatasync()


class RangeRepair:
    """Invariant: entries faulty.first_index .. next_index - 1 are proved, or in the second round written."""

    def __init__(
        self,
        log: LogReader,
        data: DataFiles,
        index: IndexFiles,
        faulty: FaultyRange,
        known_end: Callable[[MappedFile], int],
        committed_index: Index | None = None,
        begin: LedgerBegin | None = None,
    ) -> None:
        """`known_end`: see RepairJob; of one file. `begin`: of the peer's log, with the first of these entries; what is
        here in front of it does not count. `committed_index`: only entries up to there, and those of the leader, which
        has all that is committed: then they need not lead to what lies behind the damage.

        Raises FaultyEntryError, DiskError: the entry in front must be sound, without `begin`.
        """
        self.faulty = faulty
        self.committed_index = committed_index
        self._known_end = known_end
        self._final_index = faulty.last_index if committed_index is None else committed_index
        self.is_done = False  # the last job has been given out
        self._log = log
        self._data = data
        self._index = index
        before = Index(faulty.first_index - 1)
        if begin is not None:
            self._before_term, self._before_chain = begin.before_term, begin.before_chain
            self._before_end_pos = begin.pos
        else:
            term = log.term_at(before)
            assert term is not None, "damage lies within the log"
            self._before_term = term
            self._before_chain, self._before_end_pos = log.stored_end_at(before)
        self._borders: dict[Index, int] = {}  # last index of a piece -> chain, when it was proved
        self._here_index: Index | None = None  # from there on, what was proved lies here already
        # That goes on in the next file as soon as it can: what follows in this one, too, is back from another history.
        self._leaves_early = False
        self.is_proved = False  # all that a peer sent, and what goes on here behind it, is what lay here
        self._start_round()

    def _start_round(self) -> None:
        self.next_index = self.faulty.first_index
        self._term: Term = self._before_term
        self._chain = self._before_chain
        self._end_pos: Pos = self._before_end_pos

    @property
    def last_index(self) -> Index:
        """Up to which entry to ask next; a piece may end before, in the first round."""
        if not self.is_proved:
            return self._final_index
        return min(index for index in self._borders if index >= self.next_index)

    def take(self, first_pos: int, entries: bytes) -> RepairJob | None:
        """Bytes of entries from next_index on. A job to write them, once all are proved. Raises RepairRefusedError."""
        verified = self._verify(first_pos, entries)
        if not self.is_proved:
            try:
                self._prove(verified)
            except NotLinkedError:
                if self._parts_from(verified):
                    return None
                raise
            if not self.is_proved or verified.first_index != self.faulty.first_index:
                return None
        elif verified.last_index not in self._borders:
            raise RepairRefusedError(f"it ends with entry {verified.last_index}, and went on before")
        elif self._borders[verified.last_index] != verified.chain:
            raise RepairRefusedError(f"entries up to {verified.last_index} are others than before")
        writes = self._writes(verified)
        known_ends = {mapped_file.path: self._known_end(mapped_file) for mapped_file, _, _ in writes}
        job = RepairJob(writes, verified.size, known_ends)
        self._advance(verified)
        self.is_done = verified.last_index == self._final_index
        return job

    def proves(self, first_pos: int, entries: bytes) -> bool:
        """As take() in the first round, and nothing is to be written: whether all is proved with these."""
        self._prove(self._verify(first_pos, entries))
        return self.is_proved

    def goes_on_here(self) -> bool:
        """The peer gives no more than what was proved so far. Whether that is all, for what lies here behind it is
        sound in itself, follows from it, and leads to what lies behind the damage. Raises DiskError.
        """
        if self.is_proved or self.committed_index is not None:
            return False
        return self._leads_on_here(leaves_early=False) or self._leads_on_here(leaves_early=True)

    def _leads_on_here(self, *, leaves_early: bool) -> bool:
        self._leaves_early = leaves_early
        here_index, borders, size = self.next_index, dict(self._borders), 0
        before = self._term, self._chain, self._end_pos
        try:
            while not self.is_proved and size < _HERE_SIZE_MAX and (piece := self._lying_here()) is not None:
                size += len(piece[1])
                self._prove(self._verify(*piece))
        except NotLinkedError:
            pass
        if self.is_proved:
            self._here_index = here_index
        else:
            self.next_index, self._borders = here_index, borders
            self._term, self._chain, self._end_pos = before
        return self.is_proved

    def _parts_from(self, verified: VerifiedRange) -> bool:
        """The last of these do not lead to what lies behind the damage. Whether some in front do, with what lies here:
        then the peer has others than we from where its history parts from ours, and all is proved by those. DiskError.
        """
        before = self._term, self._chain, self._end_pos
        borders = dict(self._borders)
        for count in self._counts_gone_on_here(verified):
            self.next_index = Index(verified.first_index + count)
            if count:
                last = count - 1
                self._term = Term(verified.terms[last])
                self._chain = chain_crc_at(verified.buffer, verified.offsets[last])
                self._end_pos = Pos(verified.first_pos + verified.offsets[count])
                self._borders[Index(verified.first_index + last)] = self._chain
            if self.goes_on_here():
                return True
            self._term, self._chain, self._end_pos = before
            self._borders = dict(borders)
        self.next_index = verified.first_index
        return False

    def _counts_gone_on_here(self, verified: VerifiedRange) -> Iterator[int]:
        """Behind how many of these, not all, lies an entry that follows. Looked for within the last bytes of them.

        Where one lies in the peer's place behind each of several counts in a row, what goes on behind a lower one comes
        to that behind the highest, or ends before, as long as it is the peer's own: the highest is the one to try. All
        of them would take a time that grows with their square. But one that is not the peer's may go on elsewhere, and
        what is the peer's behind it be back from another history. In the next file one alone can follow, and from it
        on all is another's.
        """
        begins_in_front = not self.is_at_begin
        file_end = self._data.file_end(verified.first_pos)
        start = max(verified.first_pos, verified.next_pos - _HERE_SIZE_MAX)
        here = self._data.read(start, min(verified.next_pos + ENTRY_HEADER_SIZE, file_end) - start)
        in_next_file = self._data.read(file_end, ENTRY_HEADER_SIZE)
        in_run = False
        for count in reversed(range(1, verified.count)):
            index, pos = verified.first_index + count, verified.first_pos + verified.offsets[count]
            if pos < start:
                break
            chain = chain_crc_at(verified.buffer, verified.offsets[count - 1])
            follows = _is_next(here, pos - start, index, pos, chain)
            is_to_try = follows and (
                not in_run
                or chain_crc_at(here, pos - start) != chain_crc_at(verified.buffer, verified.offsets[count])
            )
            in_run = follows
            if is_to_try or _is_next(in_next_file, 0, index, file_end, chain):
                yield count
        if begins_in_front:
            yield 0

    @property
    def is_here_next(self) -> bool:
        """In the second round: the next piece comes from take_here(), and nobody is asked for it."""
        return self._here_index is not None and self.next_index >= self._here_index

    def take_here(self) -> RepairJob:
        """As take(), of what lies here: with it go the blank in front and the index units, which may be wrong. Raises
        RepairRefusedError if it has been damaged since; DiskError.
        """
        piece = self._lying_here()
        if piece is None:
            raise RepairRefusedError(f"entry {self.next_index} has been damaged since")
        job = self.take(*piece)
        assert job is not None, "all is proved"
        return job

    def _lying_here(self) -> tuple[Pos, bytes] | None:
        """Sound entries that follow from what was proved, up to `last_index` and of one file, and where they lie."""
        before = Index(self.next_index - 1)
        file_end = self._data.file_end(self._end_pos - 1)
        places = (file_end, self._end_pos) if self._leaves_early else (self._end_pos, file_end)
        for end_pos in places:
            reader = EntryReader(
                self._data, before, self._term, Pos(end_pos), self._chain, chunk_size=_HERE_SIZE_MAX
            )
            for verified in reader.ranges():
                if end_pos != self._end_pos and not self._may_pass_over(
                    self._end_pos, file_end, anchor_of(verified)
                ):
                    break
                count = min(self.last_index - before, verified.count)
                if self._leaves_early:
                    count = min(count, self._count_left_behind(verified))
                size = verified.offsets[count] if count < verified.count else verified.size
                return verified.first_pos, bytes(memoryview(verified.buffer)[:size])
        return None

    def _may_pass_over(self, pos: Pos, file_end: int, behind: Anchor) -> bool:
        """Whether a blank may come there, by what lies here: else entries that a peer has not shown may be what counts,
        and `behind`, in the next file, be back from another history, as far as the damage and farther. Only what the
        log ends with is remembered.
        """
        log = self._log
        if self.faulty.last_index == log.ledger_end_index:
            return True
        if next(header_positions(self._data, pos, file_end), None) is None:
            return True
        return leads_to_end(self._data, behind, end_anchor(log))

    def _count_left_behind(self, verified: VerifiedRange) -> int:
        """Behind how many of these the next file goes on; all, if it does behind none."""
        file_end = self._data.file_end(verified.first_pos)
        raw = self._data.read(file_end, ENTRY_HEADER_SIZE)
        if len(raw) == ENTRY_HEADER_SIZE:
            index = parse_header(raw, 0).index
            count = index - verified.first_index
            if 0 < count < verified.count:
                chain = chain_crc_at(verified.buffer, verified.offsets[count - 1])
                if _is_next(raw, 0, index, file_end, chain):
                    return count
        return verified.count

    def _prove(self, verified: VerifiedRange) -> None:
        """When all is proved, the second round begins. Raises NotLinkedError."""
        is_last = verified.last_index == self._final_index
        if is_last and self.committed_index is None:
            self._check_link(verified)
        self._borders[verified.last_index] = verified.chain
        if is_last:
            self.is_proved = True
            self._start_round()
        else:
            self._advance(verified)

    @property
    def next_pos(self) -> Pos:
        """Behind the last entry that was proved, or in the second round written."""
        return self._end_pos

    @property
    def is_at_begin(self) -> bool:
        """Nothing is proved yet, or in the second round written."""
        return self.next_index == self.faulty.first_index

    def _verify(self, first_pos: int, entries: bytes) -> VerifiedRange:
        if first_pos not in (self._end_pos, self._data.file_end(self._end_pos - 1)):
            text = f"entry {self.next_index} lies at {first_pos}, not behind {self._end_pos}"
            raise NotContinuedError(text) if self.is_at_begin else RepairRefusedError(text)
        try:
            verified = verify_entries(
                entries,
                first_index=self.next_index,
                first_pos=first_pos,
                prev_chain=self._chain,
                prev_term=self._term,
            )
        except EntryCorruptError as error:
            if (
                self.is_at_begin
                and error.kind in (EntryFault.CHAIN, EntryFault.TERM)
                and error.index == self.next_index
            ):
                raise NotContinuedError(str(error)) from error
            raise RepairRefusedError(str(error)) from error
        if not verified.count or verified.last_index > self._final_index:
            raise RepairRefusedError(
                f"entries {verified.first_index}..{verified.last_index} were not asked for"
            )
        if verified.next_pos > self._data.file_end(first_pos):
            raise RepairRefusedError(
                f"entries from pos {first_pos} to {verified.next_pos} lie across a file end"
            )
        return verified

    def _check_link(self, verified: VerifiedRange) -> None:
        """Raises NotLinkedError unless what is sound here goes on behind these entries."""
        log, index = self._log, verified.last_index
        if index == log.ledger_end_index:
            is_linked = (verified.chain, verified.next_pos) == (log.ledger_end_chain, log.ledger_end_pos)
        else:
            is_linked = self._is_behind(verified)
        if not is_linked:
            raise NotLinkedError(
                f"entry {index} of the peer is not the one that entry {index + 1} follows here"
            )

    def _is_behind(self, verified: VerifiedRange) -> bool:
        """Whether these end where the entry behind the damage lies, or in front of the next file where that lies in it,
        and it continues their chain. An entry within the damage may follow from them as well, and be of their history.
        """
        next_pos = self.faulty.next_pos
        places = {next_pos, self._data.file_end(next_pos - 1)}
        for pos in sorted(places & {verified.next_pos, self._data.file_end(verified.next_pos - 1)}):
            try:
                entry = entry_alone(self._data, pos, None)
            except EntryCorruptError:
                continue
            linked = chain_after(memoryview(entry.buffer)[:ENTRY_HEADER_SIZE], verified.chain) == entry.chain
            if entry.first_index == verified.last_index + 1 and linked:
                is_next = pos == verified.next_pos
                return is_next or self._may_pass_over(verified.next_pos, pos, anchor_of(entry))
        return False

    def _advance(self, verified: VerifiedRange) -> None:
        self.next_index = Index(verified.last_index + 1)
        self._term, self._chain, self._end_pos = verified.last_term, verified.chain, verified.next_pos

    def _writes(self, verified: VerifiedRange) -> list[tuple[MappedFile, int, bytes]]:
        """The entries, their units, and the blank where a file ends in front of them or behind."""
        parts = [(verified.first_pos, bytes(memoryview(verified.buffer)[: verified.size]))]
        # The log may have come to begin behind that since.
        if verified.first_pos != self._end_pos and self._end_pos >= self._log.ledger_begin_pos:
            parts.append((self._end_pos, blank(verified.first_pos - self._end_pos)))
        file_end = self._data.file_end(verified.next_pos - 1)
        is_last_of_file = verified.last_index == self.faulty.last_index and self.faulty.next_pos == file_end
        if is_last_of_file and verified.last_index < self._log.ledger_end_index:
            parts.append((Pos(verified.next_pos), blank(file_end - verified.next_pos)))
        writes: list[tuple[MappedFile, int, bytes]] = []
        for pos, data in parts:
            mapped_file = self._data.queue.find_mapped_file_by_offset(pos)
            assert mapped_file is not None, "damage lies within the log"
            writes.append((mapped_file, pos - mapped_file.file_from_offset, data))
        units = index_units_of(verified)
        offset = verified.first_index * INDEX_UNIT_SIZE
        while units:
            mapped_file = self._index.ensure_file(offset // INDEX_UNIT_SIZE)
            part = units[: mapped_file.end_offset - offset]
            writes.append((mapped_file, offset - mapped_file.file_from_offset, part))
            units, offset = units[len(part) :], offset + len(part)
        return writes


def _is_next(raw: bytes, offset: int, index: int, pos: int, prev_chain: int) -> bool:
    """Whether the header in `raw` is of the entry with this index, at this position, behind one with this chain."""
    if len(raw) < offset + ENTRY_HEADER_SIZE:
        return False
    header = parse_header(raw, offset)
    return (header.magic, header.index, header.pos) == (
        ENTRY_MAGIC,
        index,
        pos,
    ) and header.chain_crc == chain_after(memoryview(raw)[offset : offset + ENTRY_HEADER_SIZE], prev_chain)
