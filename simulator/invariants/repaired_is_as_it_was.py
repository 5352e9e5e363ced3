"""Entries that a member does not call damaged any more are on its disk as the group has committed them."""

from dledger.entry import (
    ENTRY_HEADER_SIZE,
    GENESIS_CHAIN,
    EntryCorruptError,
    Index,
    VerifiedRange,
    chain_after,
    parse_header,
    verify_entries,
)
from dledger.log.faulty_ranges import FaultyRange
from simulator.invariants.invariant import MemberView
from simulator.oracle import Oracle


class RepairedIsAsItWas:
    name = "repaired_is_as_it_was"

    def __init__(self) -> None:
        # By member and life: what it called damaged, and since when, in virtual µs.
        self._faulty: dict[tuple[str, int], dict[FaultyRange, int]] = {}
        # Those of which some is repaired, not as the group has it, and some not yet.
        self._unproved: dict[tuple[str, int], dict[FaultyRange, int]] = {}

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        key = (member.member_id, member.life)
        before, now = self._faulty.get(key, {}), member.faulty_ranges
        if tuple(before) == now:
            return None
        self._faulty[key] = {faulty: before.get(faulty, member.now_us) for faulty in now}
        unproved = self._unproved.pop(key, {})
        for faulty, since_us in (before | unproved).items():
            other = _first_other(member, faulty, since_us, oracle)
            if other is None:
                continue
            if any(_touches(faulty, rest) for rest in now):
                self._unproved.setdefault(key, {})[faulty] = since_us
            elif not _leads_on(member, faulty, since_us):
                return f"{member.member_id} calls entry {other} repaired, and it is not as it was"
        return None


def _first_other(member: MemberView, faulty: FaultyRange, since_us: int, oracle: Oracle) -> int | None:
    """The first committed entry of the range that is not called damaged any more and not as the group has it."""
    first_index = max(faulty.first_index, member.ledger_begin_index)
    last_index = min(faulty.last_index, member.ledger_end_index, oracle.end_index)
    for index in range(first_index, last_index + 1):
        if any(rest.first_index <= index <= rest.last_index for rest in member.faulty_ranges):
            continue  # its unit may be as wrong, and lead anywhere
        # A range is written piece by piece. What is damaged anew behind the writer is for the next scrub.
        if not _is_as_committed(member.stored_entry(Index(index), since_us), index, oracle):
            return index
    return None


def _touches(faulty: FaultyRange, rest: FaultyRange) -> bool:
    return rest.first_index <= faulty.last_index + 1 and faulty.first_index <= rest.last_index + 1


def _leads_on(member: MemberView, faulty: FaultyRange, since_us: int) -> bool:
    """Whether what lies in the whole range follows from what is in front, and leads to what lies behind, or to the end
    as it is remembered. Then it is what lay there, of a history that the group has left and the member not yet.
    """
    first_index = max(faulty.first_index, member.ledger_begin_index)
    last_index = min(faulty.last_index, member.ledger_end_index)
    chain = member.chain_at(Index(first_index - 1)) if first_index else GENESIS_CHAIN
    for index in range(first_index, last_index + 1):
        verified = _verified(member.stored_entry(Index(index), since_us), index, chain)
        if verified is None:
            return False
        chain = verified.chain
    if last_index == member.ledger_end_index:
        return chain == member.chain_at(last_index)
    head = (member.stored_entry(Index(last_index + 1), since_us) or b"")[:ENTRY_HEADER_SIZE]
    return (
        chain is not None
        and len(head) == ENTRY_HEADER_SIZE
        and parse_header(head).chain_crc == chain_after(head, chain)
    )


def _is_as_committed(entry: bytes | None, index: int, oracle: Oracle) -> bool:
    verified = _verified(entry, index, oracle.chains[index - 1] if index else GENESIS_CHAIN)
    return verified is not None and verified.chain == oracle.chains[index]


def _verified(entry: bytes | None, index: int, prev_chain: int | None) -> VerifiedRange | None:
    """The one entry, sound and behind the one with that chain; None for another and where that is not known."""
    if entry is None or len(entry) < ENTRY_HEADER_SIZE or prev_chain is None:
        return None
    try:
        verified = verify_entries(
            entry, first_index=index, first_pos=parse_header(entry).pos, prev_chain=prev_chain
        )
    except EntryCorruptError:
        return None
    return verified if verified.count == 1 else None
