"""What many runs were worth together, and the floors below which they prove nothing."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from simulator.run import Outcome, Result

# Averages per run. A change that makes faults rarer must not pass for a safer one.
FLOORS = {
    "elections": 2.0,
    "truncations": 0.2,
    "crashes_with_loss": 2.0,
    "acknowledged": 100.0,
    "found_by_key": 5.0,
    "delivered": 5.0,
    "files_deleted": 1.0,
    "transfers": 0.05,
}
FLOORS_COUNT_MIN = 20  # runs; of fewer the averages say nothing


@dataclass(slots=True)
class Summary:
    runs: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.runs += 1
        counts = result.counts
        for name in counts.__slots__:
            value = getattr(counts, name)
            if name == "faults":
                self.faults.update(value)
            else:
                self.totals[name] += value
        if result.outcome is not Outcome.PASSED:
            self.failures.append(result)

    def below_floor(self) -> list[str]:
        """Names of the averages that are too low."""
        if self.runs < FLOORS_COUNT_MIN:
            return []
        return [name for name, floor in FLOORS.items() if self.totals[name] / self.runs < floor]

    def outcome(self) -> Outcome:
        """The worst: a violation of safety, then the harness, then liveness and floors."""
        outcomes = {result.outcome for result in self.failures}
        for outcome in (Outcome.SAFETY, Outcome.HARNESS, Outcome.LIVENESS):
            if outcome in outcomes:
                return outcome
        return Outcome.LIVENESS if self.below_floor() else Outcome.PASSED

    def as_dict(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "violations": len(self.failures),
            "failed_seeds": [result.seed for result in self.failures],
            "totals": dict(self.totals),
            "faults": dict(sorted(self.faults.items())),
            "below_floor": self.below_floor(),
        }

    def lines(self, seconds: float) -> Iterable[str]:
        runs = max(1, self.runs)
        yield f"{self.runs} runs, {len(self.failures)} violations, {seconds:.0f} s"
        virtual_s = self.totals["virtual_ms"] / 1000
        yield f"  {virtual_s:,.0f} simulated seconds, {virtual_s / max(seconds, 0.001):,.0f} per second"
        for name, total in self.totals.items():
            floor = f"  (floor {FLOORS[name]:g})" if name in FLOORS else ""
            yield f"  {name:<18} {total:>13,}  per run {total / runs:,.1f}{floor}"
        yield "  faults: " + ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.faults.items()))
        for name in self.below_floor():
            yield f"  BELOW ITS FLOOR: {name}; these runs prove too little"
