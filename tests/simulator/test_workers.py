"""Processes that share the seeds: results in order, whoever is the first; none is left behind, whoever ends it."""

import os
import signal
import subprocess
import sys
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from simulator.harness.run import Outcome, Result
from simulator.harness.sim_cluster import Counts
from simulator.harness.workers import WorkerDiedError, results_of

JOBS = 3
DEADLINE_S = 60


def _result(seed: int) -> Result:
    return Result(seed, Outcome.PASSED, "", "", Counts(), str(os.getpid()))


def _dies_at_5(seed: int) -> Result:
    if seed == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return _result(seed)


def _raises_at_5(seed: int) -> Result:
    if seed == 5:
        raise ValueError("seed 5")
    return _result(seed)


def test_the_first_seed_comes_first_although_the_others_ended_before_it(tmp_path):
    os.mkfifo(gate := tmp_path / "gate")

    def run(seed: int) -> Result:
        if seed == 1:
            gate.read_bytes()
        if seed == 9:
            gate.write_bytes(b"")
        return _result(seed)

    results = list(results_of(run, range(1, 41), JOBS))
    assert [result.seed for result in results] == list(range(1, 41))
    pids = {result.digest for result in results}
    assert len(pids) <= JOBS
    assert str(os.getpid()) not in pids


def test_of_endless_seeds_no_more_are_taken_than_are_under_way():
    seeds = count(1)
    results = results_of(_result, seeds, JOBS)
    pids = {int(next(results).digest) for _ in range(10)}
    results.close()
    assert next(seeds) < 10 + 10 * JOBS
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_process_that_died_is_told_with_its_seed():
    with pytest.raises(WorkerDiedError, match=r"seed 5 ended .* --jobs"):
        list(results_of(_dies_at_5, range(1, 20), JOBS))


def test_what_a_seed_raises_comes_out_where_the_results_are_taken():
    with pytest.raises(ValueError, match="seed 5"):
        list(results_of(_raises_at_5, range(1, 20), JOBS))


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_process_group_ends_a_run_and_it_says_what_it_was_worth(signal_number):
    # The first report of a failure says that the processes are in the middle of their seeds.
    command = ["-m", "simulator", "--seeds", "3..9999", "--jobs", "2", "--keep-going", "--mutant"]
    with subprocess.Popen(
        [sys.executable, *command, "reput_past_commit"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        # Where these tests run in the background of a shell, they and their children ignore SIGINT.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("FAILED")
            os.killpg(process.pid, signal_number)
            # Its output ends only when no process holds it any more.
            output, errors = process.communicate(timeout=DEADLINE_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert (process.returncode, errors) == (130, "")
    assert "group-hours" in output
