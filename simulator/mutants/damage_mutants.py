"""Known bugs in what is done about damaged entries, put back like those of mutants.py, which lists them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from dledger.core.candidacy import Candidacy
from dledger.entry import (
    ENTRY_HEADER_SIZE,
    INDEX_UNIT_SIZE,
    EntryCorruptError,
    EntryFault,
    EntryHeader,
    Index,
    Pos,
    RangeCorruptError,
    VerifiedRange,
    chain_after,
    verify_entries,
    walk,
)
from dledger.log import fault_finder, scrub_job
from dledger.log.begin_mark import BeginMark, BeginMarkFile
from dledger.log.checked_reads import CheckedReads
from dledger.log.entry_reader import SequentialReader, entry_alone
from dledger.log.log_repair import RangeRepair, RepairRefusedError
from dledger.log.missing_files import MissingFiles
from dledger.log.recovery import Recovery
from dledger.log.synced_mark import SyncedMark
from simulator.mutants.patched import patched


@contextmanager
def fault_taken_for_the_end() -> Iterator[None]:
    """A start ends the log in front of the first damaged entry, as if that were a torn tail."""
    old = Recovery._reader

    def reader(self: Recovery, mark: SyncedMark | None, begin_index: Index) -> SequentialReader:
        faulty = next(iter(self._faulty_file.ranges), None)
        if mark is not None and faulty is not None and begin_index < faulty.first_index <= mark.index:
            unit = self._index.unit(Index(faulty.first_index - 1))
            last = entry_alone(self._data, unit.pos, None)
            mark = replace(
                mark,
                index=last.last_index,
                term=last.last_term,
                end_pos=last.next_pos,
                chain_crc=last.chain,
            )
        return old(self, mark, begin_index)

    with patched(Recovery, "_reader", reader):
        yield


@contextmanager
def repair_bytes_not_checked() -> Iterator[None]:
    """What a peer sends for damaged entries is written as it comes."""

    def verify(self: RangeRepair, first_pos: int, entries: bytes) -> VerifiedRange:
        try:
            headers = [header for header, _ in walk(entries, first_pos)]
        except EntryCorruptError as error:
            raise RepairRefusedError(str(error)) from error
        if not headers or self.next_index + len(headers) - 1 > self.faulty.last_index:
            raise RepairRefusedError("entries that were not asked for")
        return _as_verified(headers, entries)

    def check_link(self: RangeRepair, verified: VerifiedRange) -> None:
        return

    with patched(RangeRepair, "_verify", verify), patched(RangeRepair, "_check_link", check_link):
        yield


@contextmanager
def damaged_member_leads() -> Iterator[None]:
    """A member with damaged entries campaigns like any other."""

    def can_give_its_entries(self: Candidacy, now_ms: int) -> bool:
        return True

    with patched(Candidacy, "_can_give_its_entries", can_give_its_entries):
        yield


@contextmanager
def lost_tail_not_doubted() -> Iterator[None]:
    """Damage up to the last entry that is known, or in the file behind it, is no reason to ask what may have been
    acknowledged there.
    """
    with (
        patched(CheckedReads, "ends_in_damage", property(lambda self: False)),
        patched(MissingFiles, "hides_what_was_behind", property(lambda self: False)),
    ):
        yield


@contextmanager
def scrub_skips_bodies() -> Iterator[None]:
    """The scrub reads headers only: what they say of their bodies it takes for true."""

    def verify_headers(
        buffer: bytes | memoryview, *, first_index: int, first_pos: int, prev_chain: int, prev_term: int
    ) -> VerifiedRange:
        try:
            return verify_entries(
                buffer,
                first_index=first_index,
                first_pos=first_pos,
                prev_chain=prev_chain,
                prev_term=prev_term,
            )
        except RangeCorruptError as error:
            if error.kind is not EntryFault.BODY_CRC:
                raise
            try:
                headers = [header for header, _ in walk(buffer, first_pos)]
            except EntryCorruptError:
                raise error from None
            view, chain = memoryview(buffer), prev_chain
            for header in headers:
                at = header.pos - first_pos
                chain = chain_after(view[at : at + ENTRY_HEADER_SIZE], chain)
                if chain != header.chain_crc:
                    raise
        return _as_verified(headers, buffer)

    with patched(scrub_job, "verify_entries", verify_headers):
        yield


def _as_verified(headers: Sequence[EntryHeader], buffer: bytes | memoryview) -> VerifiedRange:
    """Entries as their headers have them."""
    first, last = headers[0], headers[-1]
    return VerifiedRange(
        count=len(headers),
        first_index=first.index,
        last_index=last.index,
        first_pos=first.pos,
        next_pos=Pos(last.pos + last.size),
        last_term=last.term,
        chain=last.chain_crc,
        offsets=[header.pos - first.pos for header in headers],
        terms=[header.term for header in headers],
        kinds=[header.kind for header in headers],
        buffer=buffer,
    )


@contextmanager
def stale_entries_believed() -> Iterator[None]:
    """Whatever entry is sound in itself counts, and its unit is written anew if it tells of another."""

    def count_before_other(found: bytes, right: bytes) -> int:
        return len(right) // INDEX_UNIT_SIZE

    with patched(fault_finder, "count_before_other", count_before_other):
        yield


@contextmanager
def begin_known_to_the_mark_alone() -> Iterator[None]:
    """Where the log begins, and who the members were there, is lost with the synced mark."""
    with patched(BeginMarkFile, "mark", property(lambda self: BeginMark())):
        yield
