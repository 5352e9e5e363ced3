"""A log begins behind an entry that the group has committed, and says of it what it was; and its begin never falls."""

from dledger.entry import Index
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView, is_forgotten


class BeginIsCommitted:
    name = "begin_is_committed"

    def __init__(self) -> None:
        self._begins: dict[tuple[str, int], Index] = {}

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        begin_index = member.ledger_begin_index
        key = (member.member_id, member.life)
        if self._begins.get(key) == begin_index:
            return None
        before = self._begins.get(key, Index(0))
        self._begins[key] = begin_index
        if begin_index < before:
            return f"the log of {member.member_id} began with {before}, now with {begin_index}"
        index = Index(begin_index - 1)
        if index < 0:
            return None
        if index > oracle.end_index:
            return f"the log of {member.member_id} begins with {begin_index}, committed is {oracle.end_index}"
        seen = (member.term_at(index), member.chain_at(index))
        if seen != (oracle.terms[index], oracle.chains[index]) and not is_forgotten(member, index):
            return f"the log of {member.member_id} begins behind {seen}, which is not the committed entry {index}"
        return None
