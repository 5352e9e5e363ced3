"""Entries that a member does not call damaged any more are on its disk as the group has committed them."""

from dledger.entry import (
    ENTRY_HEADER_SIZE,
    GENESIS_CHAIN,
    EntryCorruptError,
    Index,
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

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        key = (member.member_id, member.life)
        before, now = self._faulty.get(key, {}), member.faulty_ranges
        if tuple(before) == now:
            return None
        self._faulty[key] = {faulty: before.get(faulty, member.now_us) for faulty in now}
        for faulty, since_us in before.items():
            first_index = max(faulty.first_index, member.ledger_begin_index)
            last_index = min(faulty.last_index, member.ledger_end_index, oracle.end_index)
            for index in range(first_index, last_index + 1):
                if any(other.first_index <= index <= other.last_index for other in now):
                    continue  # its unit may be as wrong, and lead anywhere
                # A range is written piece by piece. What is damaged anew behind the writer is for the next scrub.
                entry = member.stored_entry(Index(index), since_us)
                if not _is_as_committed(entry, index, oracle) and not _goes_another_way(
                    member, faulty, since_us, oracle
                ):
                    return f"{member.member_id} calls entry {index} repaired, and it is not as it was"
        return None


def _goes_another_way(member: MemberView, faulty: FaultyRange, since_us: int, oracle: Oracle) -> bool:
    """What lies behind the committed entries of the range, and proved what was written into it, does not follow from
    them: so the last ones of the range may be others as well, and are as they were if others hold the same.
    """
    last_index = min(faulty.last_index, oracle.end_index)
    behind = Index(last_index + 1)
    if last_index >= member.ledger_end_index:
        end_index = member.ledger_end_index
        return member.chain_at(end_index) != oracle.chains[end_index]  # as it is remembered
    if behind <= oracle.end_index:
        return member.chain_at(behind) not in (None, oracle.chains[behind])
    head = (member.stored_entry(behind, since_us) or b"")[:ENTRY_HEADER_SIZE]
    if len(head) < ENTRY_HEADER_SIZE:
        return False
    return parse_header(head).chain_crc != chain_after(head, oracle.chains[last_index])


def _is_as_committed(entry: bytes | None, index: int, oracle: Oracle) -> bool:
    if entry is None or len(entry) < ENTRY_HEADER_SIZE:
        return False
    prev_chain = oracle.chains[index - 1] if index else GENESIS_CHAIN
    try:
        verified = verify_entries(
            entry, first_index=index, first_pos=parse_header(entry).pos, prev_chain=prev_chain
        )
    except EntryCorruptError:
        return False
    return (verified.count, verified.chain) == (1, oracle.chains[index])
