"""What a run was worth: what was tried, which faults happened, and where it falls short of proving anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from faults.checkers.checker import Queue, Violation, queue_of
from faults.history import (
    READ_BACK,
    Commit,
    FaultBegun,
    FaultEnded,
    FaultVerified,
    Healed,
    LeaderSeen,
    Phase,
    Poll,
    QueueEnd,
    Record,
    Run,
    Send,
    SendBegun,
)
from faults.schedule import firings_wanted

PAIRS_MIN: Final = 3

_COUNTED: Final = (
    Run,
    SendBegun,
    Send,
    Poll,
    Commit,
    QueueEnd,
    LeaderSeen,
    FaultBegun,
    FaultVerified,
    FaultEnded,
    Phase,
    Healed,
)


@dataclass(slots=True)
class Fault:
    """One firing, as far as the history knows it."""

    begun: FaultBegun
    ended_ns: int | None = None
    evidence: str | None = None


@dataclass(slots=True)
class Coverage:
    """A checker's shape, and no verdict of its own: it counts."""

    name: str = "coverage"
    run: Run | None = None
    healed: bool = False
    stayed: bool = False  # consumers, until the end
    begun: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    acknowledged_ns: int = 0  # the last one
    delivered: Counter[str] = field(default_factory=Counter)  # messages by group
    commits: int = 0
    faults: dict[int, Fault] = field(default_factory=dict)
    terms: dict[tuple[str, int], LeaderSeen] = field(default_factory=dict)  # first seen of each
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)  # nemeses that were on at once
    acknowledged_in: Counter[Queue] = field(default_factory=Counter)
    read_to_end: set[Queue] = field(default_factory=set)

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return dict.fromkeys(_COUNTED, self._count)

    def finish(self) -> Iterator[Violation]:
        return iter(())

    def _count(self, record: Record) -> Iterator[Violation]:
        match record:
            case SendBegun():
                self.begun += 1
            case Send():
                self.outcomes[record.outcome] += 1
                self.retried += record.attempts > 1
                if record.outcome == "ok":
                    self.acknowledged_in[queue_of(record)] += 1
                    self.acknowledged_ns = record.at_ns
            case Poll():
                self.delivered[record.group] += len(record.messages)
            case Commit():
                self.commits += 1
            case QueueEnd() if record.group == READ_BACK:
                self.read_to_end.add(queue_of(record))
            case LeaderSeen():
                self.terms.setdefault((record.broker, record.term), record)
            case FaultBegun():
                for other in self.faults.values():
                    if other.ended_ns is None and other.begun.nemesis != record.nemesis:
                        first, second = sorted((other.begun.nemesis, record.nemesis))
                        self.pairs[first, second] += 1
                self.faults[record.fault] = Fault(record)
            case FaultVerified() if record.fault in self.faults:
                self.faults[record.fault].evidence = record.evidence
            case FaultEnded() if record.fault in self.faults:
                self.faults[record.fault].ended_ns = record.at_ns
            case Run():
                self.run = record
            case Phase():
                self.stayed = self.stayed or record.name == "level"
            case Healed():
                self.healed = True
        return iter(())

    def nemeses(self) -> dict[str, list[Fault]]:
        """Their firings, by name."""
        by_name: dict[str, list[Fault]] = {}
        for fault in self.faults.values():
            by_name.setdefault(fault.begun.nemesis, []).append(fault)
        return dict(sorted(by_name.items()))

    def not_looked_for(self) -> dict[Queue, int]:
        """Acknowledged messages, by queue, of the queues that nobody read to their ends."""
        return {
            queue: count for queue, count in self.acknowledged_in.items() if queue not in self.read_to_end
        }

    def shortfalls(self) -> list[str]:
        """Why this run proves less than it should; none if it is whole."""
        told = []
        if not self.outcomes["ok"]:
            told.append("nothing was acknowledged")
        if self.acknowledged_ns < max((fault.ended_ns or 0 for fault in self.faults.values()), default=0):
            told.append("nothing was acknowledged after the last fault had ended")
        if not self.healed:
            told.append("the group was not seen healed and level at the end")
        if unread := self.not_looked_for():
            told.append(
                f"{sum(unread.values()):,} acknowledged messages in {len(unread):,} queues were not looked for: nobody "
                f"read these to their ends ({', '.join(str(queue) for queue in list(unread)[:4])})"
            )
        told += [f"group {group} was given nothing" for group in self._given_nothing()]
        if self.run is not None and self.run.groups and not self.stayed:
            told.append("consumers ended before all was to have been given to them")
        if self.run is not None and len(self.faults) < self.run.faults:
            told.append(f"{len(self.faults)} of the {self.run.faults} faults of its schedule were begun")
        wanted = firings_wanted(round(self.run.minutes * 60_000)) if self.run is not None else 1
        nemeses = self.nemeses()
        for name, firings in nemeses.items():
            verified = sum(fault.evidence is not None for fault in firings)
            if verified < wanted:
                told.append(
                    f"{name} is known to have happened {verified} times, wanted are {wanted} "
                    f"(begun {len(firings)} times)"
                )
        possible = len(nemeses) * (len(nemeses) - 1) // 2
        if self.run is not None and self.run.pairs is not None:
            possible = min(possible, self.run.pairs)
        if len(self.pairs) < min(PAIRS_MIN, possible):
            told.append(
                f"{len(self.pairs)} pairs of nemeses were on at once, wanted are {min(PAIRS_MIN, possible)}"
            )
        return told

    def _given_nothing(self) -> list[str]:
        """Of the groups that were to get everything."""
        return [
            group for group in (self.run.groups if self.run is not None else ()) if not self.delivered[group]
        ]
