"""Runs that were worth little must not pass for proof."""

from collections import Counter

import pytest

from simulator.__main__ import main
from simulator.harness.options import FAULT_KINDS
from simulator.harness.run import Outcome, Result
from simulator.harness.sim_cluster import Counts
from simulator.harness.summary import FAULT_FLOORS, FAULT_FLOORS_COUNT_MIN, FLOORS, FLOORS_COUNT_MIN, Summary


def _result(outcome: Outcome = Outcome.PASSED, **counts: int) -> Result:
    enough = {name: int(10 * floor) + 1 for name, floor in FLOORS.items()}
    enough |= {"virtual_ms": 4_000, "led_ms": 1_000}
    faults = Counter(dict.fromkeys(FAULT_FLOORS, 1))
    return Result(1, outcome, "", "", Counts(faults=faults, **(enough | counts)), "")


def _summary(*results: Result) -> Summary:
    summary = Summary()
    for result in results:
        summary.add(result)
    return summary


def test_runs_below_a_floor_do_not_pass():
    quiet = [_result(elections=1)] * FLOORS_COUNT_MIN
    assert _summary(*quiet).below_floor() == ["elections"]
    assert _summary(*quiet).outcome() is Outcome.LIVENESS
    assert _summary(*[_result()] * FLOORS_COUNT_MIN).outcome() is Outcome.PASSED


def test_runs_that_nobody_led_do_not_pass():
    leaderless = _summary(*[_result(led_ms=999)] * FLOORS_COUNT_MIN)
    assert leaderless.below_floor() == ["led_ms"]
    assert any("BELOW ITS FLOOR: led_ms" in line for line in leaderless.lines())


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_many_runs_without_one_kind_of_fault_do_not_pass(kind):
    summary = _summary(*[_result()] * FAULT_FLOORS_COUNT_MIN)
    assert summary.outcome() is Outcome.PASSED
    del summary.kinds["faults"][kind]
    assert summary.below_floor() == [kind]
    assert summary.outcome() is Outcome.LIVENESS
    assert any(kind in line and "BELOW ITS FLOOR" in line for line in summary.lines())


def test_a_violation_of_safety_decides_the_exit_status():
    assert _summary(_result(Outcome.LIVENESS), _result(Outcome.SAFETY), _result()).outcome() is Outcome.SAFETY


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seeds", "5"],
        ["--seeds", "9..2"],
        ["--seed", "-1"],
        ["--hours", "1", "--first-seed", "x"],
        ["--mutant", "none", "--seed", "1"],
        [],
        ["--seeds", "1..2", "--minutes", "-1"],
        ["--seeds", "1..2", "--minutes", "nan"],
        ["--seeds", "1..2", "--jobs", "0"],
        ["--hours", "0"],
        ["--quiet", "inf"],
    ],
)
def test_arguments_that_are_none_end_with_status_2_and_say_why(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "simulate" in capsys.readouterr().err
