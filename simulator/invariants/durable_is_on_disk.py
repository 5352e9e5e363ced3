"""What a member takes for durable is on its disk, also where a sync has failed and the kernel calls the pages clean."""

from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class DurableIsOnDisk:
    name = "durable_is_on_disk"

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        unwritten_pos = member.first_unwritten_pos()
        if unwritten_pos is None or unwritten_pos >= member.durable_pos:
            return None
        return (
            f"{member.member_id} takes its log for durable up to byte {member.durable_pos}, but byte {unwritten_pos} "
            "was never written back"
        )
