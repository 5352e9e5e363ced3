"""Each member admits whom its log says: users and policies, and what the broker's check makes of them, are those of the
changes up to the entry that it has applied, whoever leads, and after any restart. What an administrator was told counts
is in the log.

A member whose log began anew knows what it knew before, and after a start nothing, until a full state has come.
"""

from typing import Final

from simulator.harness.access_log import QUESTIONS
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView

_STRIDE: Final = 37  # so that one round of questions asks all, and neighbours have little in common
_ASKED_COUNT: Final = 4  # questions, when something has changed
_LOOKS: Final = 8  # at a member in which nothing has, before one is asked


class AccessByLog:
    name = "access_by_log"

    def __init__(self) -> None:
        # By member: the life, the last entry that its tables were whole at, and how many changes it and the log had.
        self._seen: dict[str, tuple[int, int, tuple[int, int]]] = {}
        self._asked_count = 0
        self._look_count = 0

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        access = oracle.access
        if access is None:
            return None
        untrue = access.untrue(oracle.end_index)
        if untrue is not None:
            return untrue
        life, index, before = self._seen.get(member.member_id, (0, -1, (-1, -1)))
        if life != member.life:
            index, before = -1, (-1, -1)
        if member.is_state_whole:
            index = member.applied_index
        if index > oracle.end_index:
            return None  # it alone can tell what it has committed, and that is damaged there
        state = access.at(index)
        counts = (member.access.count, state.count)
        self._seen[member.member_id] = member.life, index, counts
        place = f"{member.member_id}, whose tables are at entry {index},"
        if counts != before:
            if counts[0] != counts[1]:
                return f"{place} has applied {counts[0]} changes of users and policies of {counts[1]}"
            rows = member.access.rows()
            if rows != state.rows:
                return f"{place} has users and policies {rows}, by the log {state.rows}"
            asked = _ASKED_COUNT
        else:
            self._look_count += 1
            asked = self._look_count % _LOOKS == 0
        for _ in range(asked):
            question = QUESTIONS[self._asked_count * _STRIDE % len(QUESTIONS)]
            self._asked_count += 1
            admits = member.access.admits(question)
            if admits != state.admits(question):
                return f"{place} {'admits' if admits else 'refuses'} {question}, against {state.rows}"
        return None
