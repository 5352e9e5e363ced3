"""What a timeline shows of a history: sends by the second, who led when, and when the machine stood still. It grows
with the time, not with the sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from faults.checkers.checker import Violation
from faults.history import Healed, LeaderSeen, Phase, Record, Run, Send, Standstill
from faults.reigns import Reign, reigns_of

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
_PHASES: Final = {
    "faults": "faults begin",
    "calm": "faults healed",
    "drain": "producers end",
    "level": "consumers ended",
}


@dataclass(slots=True)
class Second:
    """Of the sends that ended in it. `slowest_ms`: of the acknowledged ones."""

    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    slowest_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """Some seconds of a timeline together; counts are per second."""

    acknowledged: float
    failed: float
    unknown: float
    slowest_ms: float


@dataclass(slots=True)
class Timeline:
    """A checker's shape, and no verdict of its own: it draws nothing and judges nothing, it counts."""

    name: str = "timeline"
    begin_ns: int | None = None
    seconds: dict[int, Second] = field(default_factory=dict)
    standstills: list[Standstill] = field(default_factory=list)
    phases: list[tuple[int, str]] = field(default_factory=list)  # when what of the run began, in words
    _seen: dict[tuple[str, int], LeaderSeen] = field(default_factory=dict)

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {
            Run: self._began,
            Send: self._ended,
            LeaderSeen: self._led,
            Standstill: self._stood_still,
            Phase: self._goes_on,
            Healed: self._healed,
        }

    def finish(self) -> Iterator[Violation]:
        return iter(())

    def _began(self, run: Run) -> Iterator[Violation]:
        self.begin_ns = run.at_ns
        return iter(())

    def _ended(self, send: Send) -> Iterator[Violation]:
        second = self.seconds.setdefault(send.at_ns // NS_PER_S, Second())
        match send.outcome:
            case "ok":
                second.acknowledged += 1
                second.slowest_ms = max(second.slowest_ms, (send.at_ns - send.begun_ns) / NS_PER_MS)
            case "fail":
                second.failed += 1
            case "unknown":
                second.unknown += 1
        return iter(())

    def _led(self, seen: LeaderSeen) -> Iterator[Violation]:
        self._seen.setdefault((seen.broker, seen.term), seen)
        return iter(())

    def _stood_still(self, standstill: Standstill) -> Iterator[Violation]:
        self.standstills.append(standstill)
        return iter(())

    def _goes_on(self, phase: Phase) -> Iterator[Violation]:
        self.phases.append((phase.at_ns, _PHASES[phase.name]))
        return iter(())

    def _healed(self, healed: Healed) -> Iterator[Violation]:
        self.phases.append((healed.at_ns, "all level, reading back"))
        return iter(())

    def buckets(self, begin_ns: int, end_ns: int, count_max: int) -> list[Bucket]:
        """Of equal length, whole seconds each, the first one from the second of `begin_ns` on."""
        first, last = begin_ns // NS_PER_S, -(-end_ns // NS_PER_S)
        width = max(1, -(-(last - first) // count_max))
        nothing = Second()
        buckets = []
        for start in range(first, last, width):
            seconds = [self.seconds.get(at, nothing) for at in range(start, min(start + width, last))]
            buckets.append(
                Bucket(
                    sum(second.acknowledged for second in seconds) / len(seconds),
                    sum(second.failed for second in seconds) / len(seconds),
                    sum(second.unknown for second in seconds) / len(seconds),
                    max(second.slowest_ms for second in seconds),
                )
            )
        return buckets

    def reigns(self, end_ns: int) -> dict[str, list[Reign]]:
        """By Raft group, in the order of the terms."""
        return reigns_of(self._seen, end_ns)
