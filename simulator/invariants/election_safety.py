"""At most one leader per term (Raft, figure 3). A second life of a member is another leader."""

from dledger.core.output import Role
from dledger.entry import Term
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class ElectionSafety:
    name = "election_safety"

    def __init__(self) -> None:
        self.leaders: dict[Term, tuple[str, int]] = {}

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        if member.role is not Role.LEADER:
            return None
        itself = (member.member_id, member.life)
        leader = self.leaders.setdefault(member.curr_term, itself)
        if leader != itself:
            return (
                f"{leader[0]} (life {leader[1]}) and {itself[0]} (life {itself[1]}) both lead "
                f"term {member.curr_term}"
            )
        return None
