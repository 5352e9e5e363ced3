"""After a whole round of the scrub nothing is damaged that was so when the round began, unless the member knows of it.

A cut may shorten a round: what was not reached then has the next one.
"""

from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class ScrubFindsDamage:
    name = "scrub_finds_damage"

    def __init__(self) -> None:
        self._rounds: dict[tuple[str, int], int] = {}
        # What was damaged and not known at the end of a round: of which round, and of which history of the log.
        self._unknown: dict[tuple[str, int], dict[object, tuple[int, int]]] = {}

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        key, rounds = (member.member_id, member.life), member.scrub_rounds
        if self._rounds.get(key, 0) == rounds:
            return None
        self._rounds[key] = rounds
        before, now = self._unknown.get(key, {}), (rounds, member.log_generation)
        self._unknown[key] = {place: before.get(place, now) for place in member.unknown_damage()}
        for place, (seen_rounds, log_generation) in self._unknown[key].items():
            if log_generation != member.log_generation:
                self._unknown[key][place] = now
            elif seen_rounds < rounds:
                return f"{member.member_id} has read all it has, and does not know that {place} is damaged"
        return None
