"""Entries that a member does not call damaged any more are on its disk as the group has committed them.

Or they are others, of a history that the group has left and the member has not cut yet: where what lies behind the
range is of that one, it proves those. Nothing else looks at bytes that were written below the end of a log.
"""

from collections.abc import Iterator

from dledger.entry import (
    ENTRY_HEADER_SIZE,
    GENESIS_CHAIN,
    EntryCorruptError,
    EntryFault,
    Index,
    VerifiedRange,
    chain_after,
    parse_header,
    verify_entries,
)
from dledger.log.faulty_ranges import FaultyRange, FaultyRanges
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView, is_forgotten


class RepairedIsAsItWas:
    name = "repaired_is_as_it_was"

    def __init__(self) -> None:
        # By member and life: what it called damaged, and since when, in virtual µs.
        self._faulty: dict[tuple[str, int], dict[FaultyRange, int]] = {}
        # Some of them is repaired and not as the group has it. What it leads to is to be seen once all of it is.
        self._unproved: dict[tuple[str, int], dict[FaultyRange, int]] = {}

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        key = (member.member_id, member.life)
        before, known = self._faulty.get(key, {}), member.faulty_ranges
        if tuple(before) == known:
            return None
        unproved: dict[FaultyRange, int] = {}
        for faulty, since_us in (self._unproved.get(key, {}) | before).items():
            other = _first_other(member, faulty, since_us, oracle)
            if other is None:
                continue
            if not _follows(member, faulty, since_us, oracle):
                return f"{member.member_id} calls entry {other} repaired, and it is not as it was"
            if _is_damaged(member, faulty.first_index, faulty.last_index):
                unproved[faulty] = since_us
            elif not _leads_on(member, faulty, since_us):
                return f"{member.member_id} calls entry {other} repaired, and nothing behind tells of another"
        # Behind the looks, each of which may come upon damage and break off: then it is all to be judged again.
        self._unproved[key] = unproved
        self._faulty[key] = {faulty: before.get(faulty, member.now_us) for faulty in known}
        return None


def _first_other(member: MemberView, faulty: FaultyRange, since_us: int, oracle: Oracle) -> int | None:
    """The first entry of the range that is not called damaged any more, and not as the group has it by now."""
    # A range is written piece by piece. What is damaged anew behind the writer is for the next scrub.
    for index in _repaired_indexes(member, faulty):
        if not _is_as_committed(member.stored_entry(Index(index), since_us), index, oracle):
            return index
    return None


def _repaired_indexes(member: MemberView, faulty: FaultyRange) -> Iterator[int]:
    """Those of the range that the log has and does not call damaged any more."""
    last_index = min(faulty.last_index, member.ledger_end_index)
    for index in range(max(faulty.first_index, member.ledger_begin_index), last_index + 1):
        # Where one is still damaged its unit may be as wrong, and lead anywhere.
        if not _is_damaged(member, index, index):
            yield index


def _is_damaged(member: MemberView, first_index: int, last_index: int) -> bool:
    """Whether any of these entries is called damaged now."""
    return FaultyRanges(member.faulty_ranges).first_within(first_index, last_index) is not None


def _follows(member: MemberView, faulty: FaultyRange, since_us: int, oracle: Oracle) -> bool:
    """Whether each repaired entry of the range is sound and follows from the one in front, where that is known."""
    before, chain = None, None
    for index in _repaired_indexes(member, faulty):
        entry = member.stored_entry(Index(index), since_us)
        if before != index - 1:
            chain = _chain_in_front(member, index)
        if chain is None:
            chain = _chain_alone(entry, index, oracle)
        else:
            verified = _verified(entry, index, chain)
            chain = verified.chain if verified is not None else None
        if chain is None:
            return False
        before = index
    return True


def _chain_alone(entry: bytes | None, index: int, oracle: Oracle) -> int | None:
    """Of an entry that is sound by its own word, for what is in front of it is not known."""
    chain = _stored_chain(entry)
    if entry is None or chain is None or parse_header(entry).size != len(entry):
        return None
    try:
        verify_entries(entry, first_index=index, first_pos=parse_header(entry).pos, prev_chain=GENESIS_CHAIN)
    except EntryCorruptError as error:
        if error.kind is not EntryFault.CHAIN:
            return None
    is_of_group = index <= oracle.end_index and chain == oracle.chains[index]
    return chain if not is_of_group or _is_as_committed(entry, index, oracle) else None


def _chain_in_front(member: MemberView, index: int) -> int | None:
    if index == 0:
        return GENESIS_CHAIN
    in_front = Index(index - 1)
    is_unknown = _is_damaged(member, in_front, in_front) or is_forgotten(member, in_front)
    return None if is_unknown else member.chain_at(in_front)


def _leads_on(member: MemberView, faulty: FaultyRange, since_us: int) -> bool:
    """Whether what lies behind the range, or else the end of the log as it is remembered, follows from its last entry.
    They follow from each other already.
    """
    last_index = Index(min(faulty.last_index, member.ledger_end_index))
    chain = _stored_chain(member.stored_entry(last_index, since_us))
    if last_index == member.ledger_end_index:
        return chain == member.chain_at(last_index)
    behind = Index(last_index + 1)
    head = (member.stored_entry(behind, since_us) or b"")[:ENTRY_HEADER_SIZE]
    chain_behind = _stored_chain(head)
    if chain is None or chain_behind is None or chain_behind != chain_after(head, chain):
        return False
    return member.chain_at(behind) in (None, chain_behind)


def _is_as_committed(entry: bytes | None, index: int, oracle: Oracle) -> bool:
    if index > oracle.end_index:
        return False
    verified = _verified(entry, index, oracle.chains[index - 1] if index else GENESIS_CHAIN)
    return verified is not None and verified.chain == oracle.chains[index]


def _stored_chain(entry: bytes | None) -> int | None:
    """As its header says, whatever it is worth."""
    return parse_header(entry).chain_crc if entry is not None and len(entry) >= ENTRY_HEADER_SIZE else None


def _verified(entry: bytes | None, index: int, prev_chain: int) -> VerifiedRange | None:
    """The one entry, if it is sound and behind the one with that chain."""
    if entry is None or len(entry) < ENTRY_HEADER_SIZE:
        return None
    try:
        verified = verify_entries(
            entry, first_index=index, first_pos=parse_header(entry).pos, prev_chain=prev_chain
        )
    except EntryCorruptError:
        return None
    return verified if verified.count == 1 else None
