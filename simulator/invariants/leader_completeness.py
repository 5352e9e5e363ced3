"""What was committed in a term is in the log of the leader of every later term (Raft, figure 3)."""

from dledger.core.output import Role
from dledger.entry import Term
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class LeaderCompleteness:
    name = "leader_completeness"

    def __init__(self) -> None:
        self._looked_at: set[tuple[str, Term]] = set()

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        if member.role is not Role.LEADER:
            return None
        key = (member.member_id, member.curr_term)
        if key in self._looked_at:
            return None
        self._looked_at.add(key)
        index = oracle.committed_before(member.curr_term)
        # What its log has lost to retention was committed: begin_is_committed.py.
        if index >= max(member.ledger_begin_index - 1, 0) and member.chain_at(index) != oracle.chains[index]:
            return (
                f"{member.member_id} leads term {member.curr_term} with a log that ends at "
                f"{member.ledger_end_index} and does not hold the committed entry {index}"
            )
        return None
