"""What a leader commits is on the disks of a majority of the voters that its log names: a seat is held by a disk."""

from dledger.entry import Index, Term
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class CommitByVoters:
    name = "commit_by_voters"

    def __init__(self) -> None:
        # How far each disk ever held entries of a term, as far as its member called that durable. By term, for what was
        # cut since is no copy of what has taken its place.
        self._durable: dict[tuple[str, bytes], dict[Term, Index]] = {}
        self._committed: dict[tuple[str, int, int], int] = {}

    def note(self, member: MemberView) -> None:
        """Note what the member's disk holds: also where it falls in a step, after it has acknowledged that."""
        end = member.acknowledgeable_index
        if (term := member.term_at(end)) is not None:
            of_disk = self._durable.setdefault((member.member_id, member.disk_uuid), {})
            of_disk[term] = max(of_disk.get(term, end), end)

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        self.note(member)
        if not member.is_leader:
            return None
        leading = (member.member_id, member.life, member.curr_term)
        index = member.committed_index
        if self._committed.setdefault(leading, index) == index:
            return None
        self._committed[leading] = index
        voters = member.logged_membership.voters
        term = member.term_at(index)
        holders = [
            voter
            for voter, seat in voters.items()
            if term is not None and self._durable.get((voter, seat.disk), {}).get(term, -1) >= index
        ]
        if len(holders) < len(voters) // 2 + 1:
            return (
                f"{member.member_id} commits {index}, which {', '.join(sorted(holders)) or 'nobody'} of the voters "
                f"{', '.join(sorted(voters))} holds"
            )
        return None
