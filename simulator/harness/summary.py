"""What many runs were worth together, and the floors below which they prove nothing."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from simulator.harness.options import FAULT_KINDS
from simulator.harness.run import Outcome, Result
from simulator.harness.sim_cluster import Counts

# Averages per run. A change that makes faults rarer must not pass for a safer one.
FLOORS = {
    "elections": 2.0,
    "truncations": 0.2,
    "crashes_with_loss": 2.0,
    "acknowledged": 100.0,
    "found_by_key": 2.0,
    "delivered": 5.0,
    "transactions_ended": 3.0,
    "popped": 30.0,
    "popped_acknowledged": 20.0,
    "revived": 5.0,
    "dead": 0.1,
    "access_changes": 4.0,
    "access_cut": 0.5,
    "fired": 5.0,
    "recalled": 1.0,
    "files_deleted": 1.0,
    "transfers": 0.05,
    "scrub_rounds": 5.0,
    "hand_overs": 0.1,
    "taken_over": 0.05,
    "repaired": 0.2,
    "read_index_reads": 20.0,
    "follower_reads": 4.0,
}
# Of the simulated time; a group without a leader proves little. Under the usual faults one leads for some 40 %.
LED_SHARE_FLOOR = 0.25
FLOORS_COUNT_MIN = 20  # runs; of fewer the averages say nothing
_EXPECTED_MIN = 10  # what a floor asks of all runs together; below that a few more or less are chance
# Likewise for each kind of fault, of those that the options can draw unless it says otherwise here.
_FAULT_FLOOR = 0.05
FAULT_FLOORS = dict.fromkeys(FAULT_KINDS, _FAULT_FLOOR) | {
    "crash": 1.0,
    "power_loss": 1.0,
    "partition": 1.0,
    "pause": 0.5,
    "isolate_leader": 0.3,
    "leader_fell": 0.5,
    "voter_fell": 0.2,
    "long_absence": 0.2,
    "answers_repeated": 0.5,
    "begin_fell": 0.01,
    "delivery_fell": 0.1,
    "recovery_crash": 0.1,
    "clock_jump": 1.0,
    "stand_still": 0.05,
    "suspended": 0.02,
    "disk_hang": 0.1,
    "disks_full": 0.1,
    "all_disks_full": 0.03,
    "failed_write": 0.01,
    "failed_log_sync": 0.01,
    "full_leader": 0.03,
    "hung_leader": 0.02,
    "bit_flip": 0.1,
    "zeroed_block": 0.1,
    "stale_block": 0.05,
    "index_damage": 0.1,
    "unit_damage": 0.1,
    "repair_spoiled": 0.1,
    "quorum_state_lost": 0.05,
    "quorum_state_damaged": 0.05,
    "synced_mark_lost": 0.05,
    "synced_mark_damaged": 0.05,
    "begin_mark_lost": 0.05,
    "data_file_lost": 0.02,
    "data_file_short": 0.02,
    "lost_write": 0.05,
    "lost_unit_write": 0.05,
    "member_added": 0.2,
    "member_removed": 0.2,
    "member_replaced": 0.05,
    "newcomer_votes": 0.05,
    "leader_cut": 0.1,
}
FAULT_FLOORS_COUNT_MIN = 200  # runs: some kinds are rare


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A seed that failed, as a summary keeps it."""

    seed: int
    outcome: int
    violated: str
    report: str


@dataclass(slots=True)
class Summary:
    runs: int = 0
    wall_s: float = 0.0  # one clock for all processes together
    totals: Counter[str] = field(default_factory=Counter)
    # By what is counted kind by kind: "faults", and each other Counter among the counts of a run.
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.runs += 1
        for item in fields(Counts):
            value = getattr(result.counts, item.name)
            if isinstance(value, Counter):
                self.kinds.setdefault(item.name, Counter()).update(value)
            else:
                self.totals[item.name] += value
        if result.outcome is not Outcome.PASSED:
            self.failures.append(
                Failure(
                    seed=result.seed,
                    outcome=result.outcome,
                    violated=result.violated,
                    report=result.report,
                )
            )

    @property
    def virtual_s(self) -> float:
        return self.totals["virtual_ms"] / 1000

    @property
    def led_share(self) -> float:
        """Of the simulated time, how much somebody led in."""
        return self.totals["led_ms"] / max(1, self.totals["virtual_ms"])

    @property
    def speed(self) -> float:
        """Simulated seconds per second, all processes together."""
        return self.virtual_s / max(self.wall_s, 0.001)

    def below_floor(self) -> list[str]:
        """Names of the averages that are too low."""
        low = []
        if self.runs >= FLOORS_COUNT_MIN:
            if self.led_share < LED_SHARE_FLOOR:
                low.append("led_ms")
            low += [
                name
                for name, floor in FLOORS.items()
                if self.runs * floor >= _EXPECTED_MIN and self.totals[name] / self.runs < floor
            ]
        if self.runs >= FAULT_FLOORS_COUNT_MIN:
            faults = self.kinds["faults"]
            low += [kind for kind, floor in FAULT_FLOORS.items() if faults[kind] / self.runs < floor]
        return low

    def outcome(self) -> Outcome:
        """The worst: a violation of safety, then the harness, then liveness and floors."""
        outcomes = {failure.outcome for failure in self.failures}
        for outcome in (Outcome.SAFETY, Outcome.HARNESS, Outcome.LIVENESS):
            if outcome in outcomes:
                return outcome
        return Outcome.LIVENESS if self.below_floor() else Outcome.PASSED

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; from_dict() reads them."""
        return {
            "runs": self.runs,
            "group_hours": round(self.virtual_s / 3600, 2),
            "wall_s": round(self.wall_s, 1),
            "simulated_s_per_s": round(self.speed, 1),
            "violations": len(self.failures),
            "failed_seeds": [failure.seed for failure in self.failures],
            "totals": dict(self.totals),
            "kinds": {name: dict(sorted(counts.items())) for name, counts in self.kinds.items()},
            "below_floor": self.below_floor(),
            "failures": [asdict(failure) for failure in self.failures],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Summary":
        """Raises KeyError, TypeError for what as_dict() did not make."""
        return cls(
            values["runs"],
            values["wall_s"],
            Counter(values["totals"]),
            {name: Counter(counts) for name, counts in values["kinds"].items()},
            [Failure(**failure) for failure in values["failures"]],
        )

    def lines(self) -> Iterable[str]:
        runs = max(1, self.runs)
        yield f"{self.runs} runs, {len(self.failures)} violations, {self.wall_s:.0f} s"
        yield (
            f"  {self.virtual_s:,.0f} simulated seconds ({self.virtual_s / 3600:,.2f} group-hours), "
            f"{self.speed:,.0f} per second"
        )
        yield f"  somebody led in {self.led_share:.0%} of them (floor {LED_SHARE_FLOOR:.0%})"
        for name, total in self.totals.items():
            floor = f"  (floor {FLOORS[name]:g})" if name in FLOORS else ""
            yield f"  {name:<18} {total:>13,}  per run {total / runs:,.1f}{floor}"
        for name, counts in self.kinds.items():
            floors = FAULT_FLOORS if name == "faults" else {}
            kinds = sorted(counts.keys() | floors.keys())
            shown = (
                f"{kind} {counts[kind]:,}" + (f" (floor {floors[kind]:g})" if kind in floors else "")
                for kind in kinds
            )
            yield f"  {name} and their floors per run: " + ", ".join(shown)
        for name in self.below_floor():
            yield f"  BELOW ITS FLOOR: {name}; these runs prove too little"
        if self.failures:
            yield f"  failed seeds: {', '.join(str(failure.seed) for failure in self.failures)}"
