"""A leader that hands over appends nothing, and tells its target only when all that it has is committed."""

from dledger.entry import Index, Term
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class HandOverIsWhole:
    name = "hand_over_is_whole"

    def __init__(self) -> None:
        # Of each life, as last seen: who is to lead after which term, and where the log ended.
        self._seen: dict[tuple[str, int], tuple[Term, str | None, Index]] = {}

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        key = member.member_id, member.life
        term, target, end_index = member.curr_term, member.transfer_target, member.ledger_end_index
        before = self._seen.get(key)
        self._seen[key] = term, target, end_index
        if (
            target is not None
            and before is not None
            and before[:2] == (term, target)
            and before[2] != end_index
        ):
            return (
                f"{member.member_id} hands over to {target} in term {term} and has appended {before[2] + 1} to "
                f"{end_index} meanwhile"
            )
        if member.told_at is not None:
            committed_index, told_end_index = member.told_at
            if committed_index != told_end_index:
                return (
                    f"{member.member_id} told its successor to campaign with {committed_index} committed of "
                    f"{told_end_index}"
                )
        return None
