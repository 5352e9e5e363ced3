"""Runs that were worth little must not pass for proof."""

import pytest

from simulator.__main__ import main
from simulator.cluster import Counts
from simulator.run import Outcome, Result
from simulator.summary import FLOORS, FLOORS_COUNT_MIN, Summary


def _result(outcome: Outcome = Outcome.PASSED, **counts: int) -> Result:
    enough = {name: int(10 * floor) + 1 for name, floor in FLOORS.items()}
    return Result(1, outcome, "", "", Counts(**(enough | counts)), "")


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


def test_a_violation_of_safety_decides_the_exit_status():
    assert _summary(_result(Outcome.LIVENESS), _result(Outcome.SAFETY), _result()).outcome() is Outcome.SAFETY


@pytest.mark.parametrize(
    "arguments", [["--seeds", "5"], ["--seeds", "9..2"], ["--mutant", "none", "--seed", "1"], []]
)
def test_arguments_that_are_none_end_with_status_2_and_say_why(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "simulate" in capsys.readouterr().err
