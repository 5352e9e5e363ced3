"""Two logs that have an entry with the same index and term are equal up to it (Raft, figure 3).

The chain value of an entry names all that is before it, so one comparison per entry says it of the whole prefix.
"""

from dledger.entry import Index, Term
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class LogMatching:
    name = "log_matching"

    def __init__(self) -> None:
        self.chains: dict[tuple[Index, Term], int] = {}
        self._looked_at: dict[str, tuple[int, Index]] = {}  # life and end of each member's log

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        end_index = member.ledger_end_index
        life, looked_at = self._looked_at.get(member.member_id, (0, Index(-1)))
        # A log that was just recovered has nothing in it that was not looked at before it was written.
        first_index = end_index if life != member.life else min(looked_at, end_index) + 1
        self._looked_at[member.member_id] = (member.life, end_index)
        for index in range(max(first_index, member.ledger_begin_index), end_index + 1):
            term, chain = member.term_at(Index(index)), member.chain_at(Index(index))
            if term is None or chain is None:
                return f"{member.member_id} has no entry {index}, its log ends at {end_index}"
            known = self.chains.setdefault((Index(index), term), chain)
            if known != chain:
                return (
                    f"entry {term}/{index} of {member.member_id} has chain {chain:#x}, another log {known:#x}"
                )
        return None
