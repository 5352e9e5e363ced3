"""Finds how far back entries are not the group's in front of damage into which a peer's entries do not lead.

Such entries came back with a lost write: sound in themselves, each follows from the one in front, and only the seam at
their end tells of them. Where they begin is found by asking the peer for single ones and comparing. Nobody's word is
taken for it: they are called damaged only when the peer's entries from there on follow from what lies in front here,
and what lies behind follows from them. So nothing sound is given up for a peer that is itself wrong, or that could not
give all that would have to be repaired then.
"""

from msgspec.structs import replace

from dledger.core.messages import LedgerBegin
from dledger.entry import ENTRY_HEADER_SIZE, Index, parse_header
from dledger.errors import FaultyEntryError
from dledger.log.checked_reads import CheckedReads
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.log_repair import RangeRepair


class FrontSearch:
    """Invariant: entry `_common`, or the log's begin, counts as the peer's as well; entry `_other` does not, or is
    damaged here.
    """

    def __init__(self, log: CheckedReads, faulty: FaultyRange, committed_index: Index | None) -> None:
        """The entry in front of `faulty` is not the peer's. `committed_index`: see RangeRepair. Raises FaultyEntryError
        if nothing more can be told: the log begins there, or what is in front of it is damaged, too; DiskError.
        """
        self.wider: FaultyRange | None = None  # with what is wrong in front of it, once that is proved
        self._faulty = faulty
        self._log = log
        self._begin_index = log.ledger_begin_index
        self._committed_index = committed_index
        self._common = Index(log.ledger_begin_index - 1)
        self._other = Index(faulty.first_index - 1)
        self._step = 1  # entries
        self._peer_begin: LedgerBegin | None = None
        self._proof: RangeRepair | None = None
        if self._other == self._common:
            raise FaultyEntryError(f"{faulty} begin where the log does")
        self._find_next()

    @property
    def is_outdated(self) -> bool:
        """The range has grown or is gone, or the log begins elsewhere: nothing that was found out counts."""
        log = self._log
        return self._faulty not in log.faulty.ranges or log.ledger_begin_index != self._begin_index

    @property
    def next_index(self) -> Index:
        """To be asked for; the answer goes to take(), or not_given()."""
        return self._next if self._proof is None else self._proof.next_index

    @property
    def last_index(self) -> Index:
        return self._next if self._proof is None else self._proof.last_index

    def take(self, first_pos: int, entries: bytes) -> None:
        """Raises RepairRefusedError where the peer's entries are not those that lay here either; FaultyEntryError as
        when it began; DiskError.
        """
        if self._proof is not None:
            if self._proof.proves(first_pos, entries):
                self.wider = self._log.wider(self._faulty, self._other)
            return
        header = parse_header(entries.ljust(ENTRY_HEADER_SIZE, b"\0"))
        if header.chain_crc == self._stored_chain(self._next):
            self._common = self._next
        else:
            self._other = self._next
            self._step *= 2
        self._find_next()

    def not_given(self, peer_begin: LedgerBegin | None) -> bool:
        """The peer has not got what it was asked for; `peer_begin` if that is since its log begins later. Whether there
        is something else to ask it for: of no use is what would have to be repaired from there on. Raises as take().
        """
        if self._proof is not None:
            return False
        self._common = self._next
        if peer_begin is not None and self._next <= peer_begin.before_index < self._faulty.first_index:
            self._peer_begin, self._common = peer_begin, peer_begin.before_index
        self._find_next()
        return True

    def _stored_chain(self, index: Index) -> int | None:
        try:
            return self._log.stored_end_at(index)[0]
        except FaultyEntryError:
            return None

    def _find_next(self) -> None:
        if self._other - self._common > 1:
            self._next = Index(max(self._other - self._step, (self._common + self._other) // 2))
        else:
            self._proof = self._start_proof()

    def _start_proof(self) -> RangeRepair:
        begin = self._peer_begin
        if begin is None or self._stored_chain(begin.before_index) == begin.before_chain:
            return self._log.range_repair(self._log.wider(self._faulty, self._other), self._committed_index)
        # The peer's log begins among what is wrong here, and how far back that goes another may tell.
        self._other = begin.before_index
        behind = replace(self._faulty, first_index=Index(begin.before_index + 1), pos=begin.pos)
        return self._log.range_repair(behind, self._committed_index, begin)
