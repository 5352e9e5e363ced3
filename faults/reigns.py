"""Who led when, by what was seen of leaders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from faults.history import LeaderSeen


@dataclass(frozen=True, slots=True)
class Reign:
    """A term, from when its leader was first seen to when that of the next one was."""

    broker: str
    term: int
    leader: str
    begin_ns: int
    end_ns: int


def reigns_of(seen: Mapping[tuple[str, int], LeaderSeen], end_ns: int) -> dict[str, list[Reign]]:
    """`seen`: the first of each Raft group and term. By Raft group, in the order of the terms."""
    reigns: dict[str, list[Reign]] = {}
    for (broker, term), first in sorted(seen.items(), reverse=True):
        of_group = reigns.setdefault(broker, [])
        # A term that nobody saw before its successor's has no length.
        until = min((reign.begin_ns for reign in of_group), default=end_ns)
        of_group.append(Reign(broker, term, first.leader, min(first.at_ns, until), until))
    return {broker: of_group[::-1] for broker, of_group in sorted(reigns.items())}
