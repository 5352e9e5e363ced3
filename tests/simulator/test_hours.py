"""A run of hours goes on where it was left, and a summary that cannot be trusted is no ground to go on from."""

import json

import pytest

from simulator.__main__ import main
from simulator.faults.calm import CALM_EVERY
from simulator.harness.hours import HoursRun, SummaryFileError, is_calm_seed
from simulator.harness.run import Outcome, Result
from simulator.harness.sim_cluster import Counts

SETTING = {"members": None, "mutant": None, "calm": False}


def _result(seed: int, outcome: Outcome = Outcome.PASSED) -> Result:
    counts = Counts(elections=3, virtual_ms=1_800_000)
    counts.faults["crash"] = 2
    return Result(seed, outcome, "election_safety" if outcome else "", "n0 and n1", counts, "")


def _add(run: HoursRun, *results: Result) -> None:
    for result in results:
        run.summary.add(result)
        run.done(result.seed, "ab12cd3")


def test_what_was_saved_goes_on_with_all_its_counts(tmp_path):
    path = tmp_path / "summary.json"
    run = HoursRun.load_or_begin(path, 5_000, SETTING)
    _add(run, _result(5_000), _result(5_001, Outcome.SAFETY))
    assert run.has_simulated(1)
    run.save(path)
    later = HoursRun.load_or_begin(path, None, SETTING)
    assert later == run
    assert next(later.seeds()) == 5_002
    _add(later, _result(5_002))
    assert (later.summary.runs, later.summary.kinds["faults"]["crash"]) == (3, 6)
    assert later.commits == {"ab12cd3": 3}
    assert [failure.seed for failure in later.summary.failures] == [5_001]
    assert later.summary.outcome() is Outcome.SAFETY


@pytest.mark.parametrize(
    ("text", "first_seed", "setting", "says"),
    [
        ("", None, SETTING, "is no summary"),
        ("[]", None, SETTING, "is no summary"),
        ('{"first_seed": 1}', None, SETTING, "is no summary"),
        (None, None, SETTING | {"members": 5}, "asked is"),
        (None, 9, SETTING, "goes on with 2"),
    ],
)
def test_a_file_that_cannot_be_gone_on_from_is_named_and_left_as_it_is(
    tmp_path, text, first_seed, setting, says
):
    path = tmp_path / "summary.json"
    run = HoursRun.load_or_begin(None, None, SETTING)
    _add(run, _result(1))
    run.save(path)
    if text is not None:
        path.write_text(text)
    before = path.read_bytes()
    with pytest.raises(SummaryFileError, match=says):
        HoursRun.load_or_begin(path, first_seed, setting)
    assert path.read_bytes() == before


def test_each_row_of_seeds_has_its_calm_ones():
    assert sum(is_calm_seed(seed) for seed in range(1, 10 * CALM_EVERY + 1)) == 10


def test_the_options_of_hours_alone_are_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--seeds", "1..2", "--summary", "x.json"])
    assert ended.value.code == 2
    assert "--hours" in capsys.readouterr().err


def test_a_broken_summary_ends_with_status_2(tmp_path, capsys):
    path = tmp_path / "summary.json"
    path.write_text("{")
    assert main(["--hours", "1", "--summary", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_an_interrupted_run_leaves_a_summary_and_goes_on_with_the_next_seed(tmp_path, monkeypatch, capsys):
    path = tmp_path / "summary.json"
    asked = []

    def results_of(run, seeds, jobs):
        for seed in seeds:
            if seed == 12 and 12 not in asked:
                asked.append(seed)
                raise KeyboardInterrupt
            asked.append(seed)
            yield _result(seed)

    monkeypatch.setattr("simulator.__main__.results_of", results_of)
    assert main(["--hours", "2", "--summary", str(path), "--first-seed", "10"]) == 130
    assert json.loads(path.read_text())["next_seed"] == 12
    assert main(["--hours", "2", "--summary", str(path)]) == 0
    assert asked == [10, 11, 12, 12, 13]
    assert json.loads(path.read_text())["group_hours"] == 2
    # All hours asked for are there: nothing is run any more.
    assert main(["--hours", "2", "--summary", str(path)]) == 0
    assert asked[-1] == 13
    assert "goes on with 14" in capsys.readouterr().out
