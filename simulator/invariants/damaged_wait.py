"""A member that knows of damage on its disk does not campaign before the others have had their time to lead, unless it
is the only voter.
"""

from dledger.core.output import Role
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView

# A member counts from its own steps, and this from those that were looked at.
_SLACK_US = 100_000


class DamagedWait:
    name = "damaged_wait"

    def __init__(self, patience_ms: int) -> None:
        self._patience_us = patience_ms * 1_000 - _SLACK_US
        self._before: dict[tuple[str, int], tuple[Role, bool]] = {}
        self._led_us: dict[tuple[str, int], int] = {}  # when there was a leader for it, or its life began

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        key, role = (member.member_id, member.life), member.role
        role_before, had_faults = self._before.get(key, (role, False))
        self._before[key] = role, member.has_faults
        led_us = max(self._led_us.get(key, member.now_us), member.leader_heard_us or 0)
        self._led_us[key] = member.now_us if role is Role.LEADER else led_us
        leaderless_us = member.now_us - led_us
        begins = role_before is Role.FOLLOWER and role is Role.CANDIDATE
        has_others = member.membership.voters.keys() != {member.member_id}
        if begins and has_others and had_faults and member.has_faults and leaderless_us < self._patience_us:
            return f"{member.member_id} campaigns with damaged entries, {leaderless_us} us after there was a leader"
        return None
