"""A term has one leader at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faults.checkers.checker import Violation
from faults.history import LeaderSeen, Record


class LeaderPerTerm:
    """Each term is named once."""

    name = "leader_per_term"

    def __init__(self) -> None:
        self._leaders: dict[tuple[str, int], LeaderSeen] = {}
        self._named: set[tuple[str, int]] = set()

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {LeaderSeen: self._seen}

    def finish(self) -> Iterator[Violation]:
        return iter(())

    def _seen(self, seen: LeaderSeen) -> Iterator[Violation]:
        term = seen.broker, seen.term
        first = self._leaders.setdefault(term, seen)
        if first.leader != seen.leader and term not in self._named:
            self._named.add(term)
            yield Violation(
                self.name,
                f"term {seen.term} of {seen.broker} is led by {first.leader}, says {first.seen_by}, and by "
                f"{seen.leader}, says {seen.seen_by}",
                at_ns=seen.at_ns,
                records=(first, seen),
            )
