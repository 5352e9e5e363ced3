"""How a benchmark ends that is told to."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
PROGRAM = """
import signal, running
running.end_on_sigterm()
running.LocalCluster.call = lambda cluster, *arguments: print(*arguments, flush=True)
with running.local_cluster(1, {}) as cluster:
    cluster.directory.mkdir()
    print(cluster.directory.parent, flush=True)
    signal.pause()
"""


@pytest.mark.slow
def test_a_benchmark_that_is_terminated_takes_its_cluster_away() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=BENCHMARKS, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        directory = Path(program.stdout.readline().strip())
        assert directory.is_dir()
        program.send_signal(signal.SIGTERM)
        assert program.stdout.read() == "down\n"
    assert program.returncode == 128 + signal.SIGTERM
    assert not directory.exists()
