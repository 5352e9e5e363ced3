"""What a run had of each kind of message beside the plain ones, and where that falls short of showing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from faults.checkers.checker import Violation
from faults.history import (
    READ_BACK,
    FilteredGroup,
    Poll,
    Recall,
    Record,
    Request,
    Run,
    Timer,
    TimerBegun,
    Transaction,
    TransactionBegun,
    TransactionSaid,
)


class KindRow(NamedTuple):
    """Of one kind, for a person. `outcomes`: of what was sent. `told`: what became of it."""

    name: str
    outcomes: Counter[str]
    told: str


@dataclass(slots=True)
class Kinds:
    """A checker's shape, and no verdict of its own: it counts."""

    name: str = "kinds"
    run: Run | None = None
    prepared: Counter[str] = field(default_factory=Counter)  # outcomes
    said: Counter[tuple[str, bool]] = field(default_factory=Counter)  # (state, whether the broker had asked)
    timers: Counter[str] = field(default_factory=Counter)  # outcomes
    recalls: Counter[str] = field(default_factory=Counter)  # outcomes
    requests: Counter[str] = field(default_factory=Counter)  # outcomes
    given: Counter[str] = field(default_factory=Counter)  # by filtered group
    matching: Counter[str] = field(default_factory=Counter)  # read back, by filtered group
    visible: Counter[str] = field(default_factory=Counter)  # read back, by topic
    _topics: dict[type[Record], str] = field(default_factory=dict)  # by what begins a message

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        kinds = (
            Run,
            TransactionBegun,
            TransactionSaid,
            Transaction,
            TimerBegun,
            Timer,
            Recall,
            Request,
            Poll,
        )
        return dict.fromkeys(kinds, self._count)

    def finish(self) -> Iterator[Violation]:
        return iter(())

    def _count(self, record: Record) -> Iterator[Violation]:
        match record:
            case Run():
                self.run = record
            case TransactionBegun() | TimerBegun():
                self._topics[type(record)] = record.topic
            case TransactionSaid():
                self.said[record.state, record.asked] += 1
            case Transaction():
                self.prepared[record.outcome] += 1
            case Timer():
                self.timers[record.outcome] += 1
            case Recall():
                self.recalls[record.outcome] += 1
            case Request():
                self.requests[record.outcome] += 1
            case Poll() if record.group == READ_BACK:
                self.visible[record.topic] += len(record.messages)
                for one in self._filtered():
                    if one.topic == record.topic:
                        self.matching[one.group] += sum(one.takes(each.sequence) for each in record.messages)
            case Poll():
                self.given[record.group] += len(record.messages)
        return iter(())

    def rows(self) -> list[KindRow]:
        """Of the kinds that the run has."""
        said, recalls = self.said, self.recalls
        of_transactions = (
            f"{said['commit', False]:,} committed and {said['rollback', False]:,} rolled back at once, "
            f"{said['commit', True]:,} and {said['rollback', True]:,} when the broker asked; "
            f"{self._visible(TransactionBegun):,} visible"
        )
        of_timers = (
            f"{recalls['ok']:,} recalls acknowledged, {recalls['unknown']:,} not, as too late or unknown; "
            f"{self._visible(TimerBegun):,} delivered"
        )
        of_filters = ", ".join(
            f"{self.given[one.group]:,} given to {one.group}, {self.matching[one.group]:,} read back that match"
            for one in self._filtered()
        )
        of_kind: dict[str, tuple[Counter[str], str]] = {
            "transactions": (self.prepared, of_transactions),
            "timers": (self.timers, of_timers),
            "filters": (Counter(), of_filters),
            "requests": (self.requests, "acknowledged: the reply came in time"),
        }
        return [KindRow(kind, *of_kind[kind]) for kind in self._kinds()]

    def shortfalls(self) -> list[str]:
        """Why what the run had of a kind shows too little."""
        seen = {
            "transactions": {
                "no transaction was prepared": self.prepared["ok"],
                "no transaction was committed at once": self.said["commit", False],
                "no transaction was rolled back at once": self.said["rollback", False],
                "no transaction was committed by an answer to the broker": self.said["commit", True],
                "no transaction was rolled back by an answer to the broker": self.said["rollback", True],
                "no transaction's message was read back": self._visible(TransactionBegun),
            },
            "timers": {
                "no timer was acknowledged": self.timers["ok"],
                "no timer was recalled": self.recalls["ok"],
                "no timer was read back": self._visible(TimerBegun),
            },
            "requests": {"no request was answered": self.requests["ok"]},
        }
        told = [text for kind in self._kinds() for text, count in seen.get(kind, {}).items() if not count]
        return told + [
            f"group {filtered.group} was given nothing"
            for filtered in self._filtered()
            if not self.given[filtered.group]
        ]

    def _kinds(self) -> tuple[str, ...]:
        return self.run.kinds if self.run is not None else ()

    def _filtered(self) -> tuple[FilteredGroup, ...]:
        return self.run.filtered if self.run is not None else ()

    def _visible(self, begins: type[Record]) -> int:
        return self.visible[self._topics.get(begins, "")]
