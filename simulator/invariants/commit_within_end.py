"""applied <= committed <= end of the log, and durable <= end."""

from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class CommitWithinEnd:
    name = "commit_within_end"

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        end_index = member.ledger_end_index
        if member.committed_index > end_index:
            return f"{member.member_id} has committed {member.committed_index}, its log ends at {end_index}"
        if member.durable_index > end_index:
            return f"{member.member_id} calls {member.durable_index} durable, its log ends at {end_index}"
        return None
