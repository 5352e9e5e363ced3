"""No two members commit different entries at one index (Raft, figure 3), and a commit is never taken back."""

from dledger.entry import Index
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView, is_forgotten


class StateMachineSafety:
    name = "state_machine_safety"

    def __init__(self) -> None:
        self._committed: dict[tuple[str, int], Index] = {}

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        index = member.committed_index
        key = (member.member_id, member.life)
        before = self._committed.get(key, Index(-1))
        self._committed[key] = index
        if index < before:
            return f"{member.member_id} takes back its commit of {before}: now {index}"
        if index >= 0 and member.chain_at(index) != oracle.chains[index] and not is_forgotten(member, index):
            return f"{member.member_id} has committed another entry {index} than the group"
        return None
