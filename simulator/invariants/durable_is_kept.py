"""What a disk held durably, and its member knew to be committed, is in the log of every later life on that disk."""

from dledger.entry import Index
from simulator.invariants.invariant import MemberView
from simulator.oracle import Oracle


class DurableIsKept:
    name = "durable_is_kept"

    def __init__(self) -> None:
        self._held: dict[bytes, Index] = {}  # by disk uuid

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        held = self._held.get(member.disk_uuid, Index(-1))
        if member.ledger_end_index < held:
            return f"{member.member_id} held entry {held} durably, and its log ends with {member.ledger_end_index}"
        if not member.is_cutting:
            self._held[member.disk_uuid] = max(held, min(member.durable_index, member.committed_index))
        return None
