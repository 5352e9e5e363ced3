"""docs/reliability.md names tests, files and faults that are there."""

import re
from pathlib import Path

import pytest

from simulator.harness.summary import FAULT_FLOORS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
TESTS = "\n".join(
    path.read_text()
    for room in ("tests", "cluster_tests")
    for path in sorted((ROOT / room).rglob("test_*.py"))
)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", PAGE))))
def test_each_test_that_shows_a_promise_is_there(name: str) -> None:
    assert f"def {name}(" in TESTS


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:tests|cluster_tests|simulator)/[\w/.]+)`", PAGE)))
)
def test_each_file_that_is_named_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_faults_of_the_simulator_that_are_named_are_drawn() -> None:
    lists = re.findall(r"simulator ((?:`\w+`(?:, )?)+)", PAGE)
    named = {name for names in lists for name in re.findall(r"`(\w+)`", names)}
    assert named
    assert named <= FAULT_FLOORS.keys()
