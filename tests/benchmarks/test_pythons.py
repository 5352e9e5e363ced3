"""Which Python the brokers of a benchmark run on."""

import sys
from pathlib import Path

import pytest
from pythons import Python, PythonError, best_first, candidates, described


def python(path: str, probe_ms: float, *, is_optimized: bool = False) -> Python:
    return Python(Path(path), "3.11.7", is_optimized, probe_ms)


def test_one_built_with_optimization_comes_first_whatever_the_clock_says() -> None:
    slow, fast = python("/a", 14.0, is_optimized=True), python("/b", 11.0)
    assert best_first([fast, slow]) == [slow, fast]


def test_of_several_builds_the_fastest_comes_first_by_its_best_time() -> None:
    assert best_first([python("/a", 20.0), python("/b", 15.0), python("/a", 10.0)]) == [
        python("/a", 10.0),
        python("/b", 15.0),
    ]


def test_what_is_called_like_a_python_3_is_looked_at(tmp_path: Path) -> None:
    for name in ("python3", "python3.13", "python3-config", "python2", "pythonx"):
        (tmp_path / name).touch()
    found = candidates(f"{tmp_path}:/there/is/no/such/directory")
    assert found == [Path(sys.executable), tmp_path / "python3", tmp_path / "python3.13"]


@pytest.mark.slow
def test_this_python_says_its_version_and_how_it_was_built() -> None:
    this = described(Path(sys.executable))
    assert this.version == ".".join(map(str, sys.version_info[:3]))
    assert "optimiz" in str(this)


def test_program_that_is_no_python_is_refused_with_its_name() -> None:
    with pytest.raises(PythonError, match="/bin/false"):
        described(Path("/bin/false"))
