"""Runs one seed and says how it ended."""

import traceback
from dataclasses import dataclass
from enum import IntEnum

from simulator.faults.calm import calm
from simulator.harness.options import draw_options
from simulator.harness.report import describe_failure
from simulator.harness.sim_cluster import Cluster, Counts
from simulator.harness.trace import without_logging
from simulator.invariants.invariant import ViolationError


class Outcome(IntEnum):
    """Exit codes."""

    PASSED = 0
    SAFETY = 10  # something happened that must never happen
    LIVENESS = 11  # nothing happened that should have
    HARNESS = 12  # the simulator itself is at fault


@dataclass(slots=True)
class Result:
    seed: int
    outcome: Outcome
    violated: str  # name of what is broken, empty if nothing is
    report: str  # for people
    counts: Counts
    digest: str


def run_seed(
    seed: int,
    *,
    member_count: int | None = None,
    is_calm: bool = False,
    with_digest: bool = False,
    trace_count: int = 40,
) -> Result:
    """`trace_count`: lines of the trace in the report of a failure."""
    outcome, violated, report = Outcome.PASSED, "", ""
    options = draw_options(seed, member_count)
    cluster = Cluster(seed, calm(options, seed) if is_calm else options, with_digest=with_digest)
    try:
        with without_logging():
            cluster.run()
    except ViolationError as violation:
        outcome = Outcome.LIVENESS if violation.is_liveness else Outcome.SAFETY
        violated = violation.name
        report = describe_failure(cluster, violation.name, violation.text, trace_count)
    except Exception as error:  # noqa: BLE001 (whatever the code under test lets out ends its process)
        raiser = traceback.extract_tb(error.__traceback__)[-1].filename
        outcome = Outcome.HARNESS if "/simulator/" in raiser else Outcome.SAFETY
        violated = "harness" if outcome is Outcome.HARNESS else "no_member_fails"
        report = describe_failure(cluster, violated, "".join(traceback.format_exception(error)), trace_count)
    return Result(seed, outcome, violated, report, cluster.summary(), cluster.trace.digest)
