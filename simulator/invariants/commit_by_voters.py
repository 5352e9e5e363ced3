"""What a leader commits is on the disks of a majority of the voters that its log names: a seat is held by a disk."""

from simulator.invariants.invariant import MemberView
from simulator.oracle import Oracle


class CommitByVoters:
    name = "commit_by_voters"

    def __init__(self) -> None:
        # How far each disk ever held the log, as far as its member called that durable.
        self._durable: dict[tuple[str, bytes], int] = {}
        self._committed: dict[tuple[str, int, int], int] = {}

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        held = self._durable
        own = (member.member_id, member.disk_uuid)
        held[own] = max(held.get(own, -1), member.acknowledgeable_index)
        if not member.is_leader:
            return None
        leading = (member.member_id, member.life, member.curr_term)
        index = member.committed_index
        if self._committed.setdefault(leading, index) == index:
            return None
        self._committed[leading] = index
        voters = member.logged_membership.voters
        holders = [voter for voter, seat in voters.items() if held.get((voter, seat.disk), -1) >= index]
        if len(holders) < len(voters) // 2 + 1:
            return (
                f"{member.member_id} commits {index}, which {', '.join(sorted(holders)) or 'nobody'} of the voters "
                f"{', '.join(sorted(voters))} holds"
            )
        return None
