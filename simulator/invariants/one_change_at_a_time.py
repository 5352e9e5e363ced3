"""A leader makes the next change of the members only when the last one is committed, and each moves one voter.

Then any majority of the voters before and any of those after have a member in common: no two can decide alone.
"""

from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class OneChangeAtATime:
    name = "one_change_at_a_time"

    def __init__(self) -> None:
        self._of_leader: dict[tuple[str, int, int], tuple[int, frozenset[tuple[str, bytes]]]] = {}

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        if not member.is_leader:
            return None
        leading = (member.member_id, member.life, member.curr_term)
        index, value = member.membership_index, member.logged_membership
        voters = frozenset((voter, seat.disk) for voter, seat in value.voters.items())
        before = self._of_leader.get(leading)
        self._of_leader[leading] = (index, voters)
        if before is None or before[0] == index:
            return None
        if before[0] > oracle.end_index:
            return (
                f"{member.member_id} changes the members by entry {index}, and entry {before[0]}, which does so too, "
                "is not committed"
            )
        if len(before[1] ^ voters) > 1:
            moved = sorted(voter for voter, _ in before[1] ^ voters)
            return f"{member.member_id} moves {', '.join(moved)} by entry {index} at once"
        return None
