"""Who a leader, or one that wants to lead, takes for the members is what the last membership entry of its log says,
committed or not. A follower may not have looked yet at what was just pushed to it.
"""

from dledger.core.output import Role
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class MembersByLog:
    name = "members_by_log"

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        if member.role is not Role.FOLLOWER and member.membership != member.logged_membership:
            return (
                f"{member.member_id} takes {member.membership} for the members, entry {member.membership_index} says "
                f"{member.logged_membership}"
            )
        return None
