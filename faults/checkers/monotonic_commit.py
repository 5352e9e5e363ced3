"""What a group has committed stays committed: neither a consumer nor the broker goes back.

A commit that is under way may come into force at any moment until its end, so nothing is asked of the broker that a
lower one under way would explain. One that has no end, or an unknown one, counts as under way for UNKNOWN_FOR_NS. What
the broker has said of itself holds as well: where nobody is told of the end of a commit, that is all there is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from faults.checkers.checker import Queue, Violation, queue_of
from faults.history import Assigned, Commit, CommitBegun, Committed, Record

UNKNOWN_FOR_NS: Final = 30_000_000_000


@dataclass(slots=True)
class _Open:
    """A commit under way. `lowest`: of it and all that may come into force after it."""

    consumer: str
    offset: int
    lowest: int
    until_ns: int


@dataclass(slots=True)
class _Register:
    """What a query must at least answer, by time."""

    open: list[_Open] = field(default_factory=list)
    ended: list[tuple[int, int]] = field(default_factory=list)  # (time, offset) of those that ended lately
    times_ns: list[int] = field(default_factory=lambda: [0])
    floors: list[int] = field(default_factory=lambda: [-1])
    last: Commit | Committed | None = None

    def set_floor(self, at_ns: int, floor: int) -> None:
        if floor != self.floors[-1]:
            self.times_ns.append(at_ns)
            self.floors.append(floor)

    def was_under_way(self, offset: int, since_ns: int) -> bool:
        """A commit below `offset`, at some time since then."""
        return any(one.offset < offset and one.until_ns >= since_ns for one in self.open) or any(
            lower < offset and at_ns >= since_ns for at_ns, lower in self.ended
        )

    def floor_since(self, begun_ns: int) -> int:
        return min(self.floors[bisect_right(self.times_ns, begun_ns) - 1 :])


class MonotonicCommit:
    name = "monotonic_commit"

    def __init__(self) -> None:
        self._registers: dict[tuple[str, Queue], _Register] = {}
        # By group, consumer and queue, of the present assignment.
        self._last_begun: dict[tuple[str, str, Queue], CommitBegun] = {}

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {
            Assigned: self._assigned,
            CommitBegun: self._begun,
            Commit: self._ended,
            Committed: self._told,
        }

    def finish(self) -> Iterator[Violation]:
        return iter(())

    def _assigned(self, assigned: Assigned) -> Iterator[Violation]:
        self._last_begun.pop((assigned.group, assigned.consumer, queue_of(assigned)), None)
        return iter(())

    def _begun(self, commit: CommitBegun) -> Iterator[Violation]:
        key = commit.group, commit.consumer, queue_of(commit)
        before = self._last_begun.get(key)
        if before is not None and commit.offset < before.offset:
            yield Violation(
                self.name,
                f"{commit.consumer} of group {commit.group} commits offset {commit.offset} of {queue_of(commit)} "
                f"after {before.offset}",
                at_ns=commit.at_ns,
                records=(before, commit),
            )
        self._last_begun[key] = commit
        register = self._registers.setdefault((commit.group, queue_of(commit)), _Register())
        register.open = [one for one in register.open if one.until_ns > commit.at_ns]
        for one in register.open:
            one.lowest = min(one.lowest, commit.offset)
        lowest = min([commit.offset, *(one.offset for one in register.open)])
        until_ns = commit.at_ns + UNKNOWN_FOR_NS
        register.open.append(_Open(commit.consumer, commit.offset, lowest, until_ns))
        register.set_floor(commit.at_ns, min(register.floors[-1], commit.offset))

    def _ended(self, commit: Commit) -> Iterator[Violation]:
        register = self._registers.setdefault((commit.group, queue_of(commit)), _Register())
        mine = [
            one for one in register.open if (one.consumer, one.offset) == (commit.consumer, commit.offset)
        ]
        if not mine:
            return iter(())
        if commit.outcome == "unknown":
            mine[0].until_ns = commit.at_ns + UNKNOWN_FOR_NS
            return iter(())
        register.open.remove(mine[0])
        register.ended = [one for one in register.ended if one[0] + UNKNOWN_FOR_NS > commit.at_ns]
        register.ended.append((commit.at_ns, commit.offset))
        if commit.outcome == "ok" and mine[0].lowest >= register.floors[-1]:
            register.set_floor(commit.at_ns, mine[0].lowest)
            register.last = commit
        return iter(())

    def _told(self, told: Committed) -> Iterator[Violation]:
        register = self._registers.setdefault((told.group, queue_of(told)), _Register())
        floor = register.floor_since(told.begun_ns)
        if told.offset < floor:
            yield Violation(
                self.name,
                f"group {told.group} had committed offset {floor} of {queue_of(told)}, and the broker "
                f"says {told.offset}",
                at_ns=told.at_ns,
                records=(register.last, told) if register.last is not None else (told,),
            )
        elif told.offset >= register.floors[-1] and not register.was_under_way(told.offset, told.begun_ns):
            register.set_floor(told.at_ns, told.offset)
            register.last = told
