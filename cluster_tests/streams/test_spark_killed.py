"""A streaming query while leaders, Python workers of Spark and its driver are killed: its table has each message once.

Between two lives of the driver its checkpoint loses the newest entry of its commit log, as by a crash.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kill_rounds import TOPIC, Sender, kill_leader
from local_cluster import ROOT, LocalCluster, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.long]

PATIENCE_S = 180.0  # a JVM starts, beside other work


class Program:
    """spark_program.py, started again whenever it was killed."""

    def __init__(self, namesrv: str, directory: Path) -> None:
        self.directory = directory
        self._arguments = [namesrv, TOPIC, str(directory)]
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()

    def start(self) -> None:
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    str(ROOT / "cluster_tests" / "streams" / "spark_program.py"),
                    *self._arguments,
                ],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(self.directory), "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def wait_batches(self, count: int) -> None:
        """So many more than now."""
        wanted = self.batch() + count
        self._wait(lambda: self.batch() >= wanted, "batches")

    def batch(self) -> int:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int((self.directory / "batch").read_text())
        return -1

    def kill_worker(self) -> None:
        """kill -9 of one Python worker, forked by Spark's daemon."""
        killed: list[int] = []

        def kill_one() -> bool:
            workers = [pid for pid, parent in self._pythons().items() if parent in self._pythons()]
            with contextlib.suppress(ProcessLookupError):
                for pid in workers[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            return bool(killed)

        self._wait(kill_one, "a Python worker")

    def kill_driver(self) -> None:
        """kill -9 of the program, its JVM and all Python of it. The newest commit of a batch is lost."""
        pythons = self._pythons()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pid in pythons:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        commits = self.directory / "checkpoint" / "commits"
        numbers = sorted(int(path.name) for path in commits.glob("[0-9]*") if path.name.isdigit())
        for name in (f"{numbers[-1]}", f".{numbers[-1]}.crc") if numbers else ():
            (commits / name).unlink(missing_ok=True)

    def end(self) -> None:
        """By itself, when it has read all."""
        (self.directory / "end").touch()
        self._wait(lambda: self.process.poll() is not None, "the end", alive=False)
        assert self.process.returncode == 0, self._output()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _wait(self, condition: Callable[[], bool], what: str, *, alive: bool = True) -> None:
        wait_for(lambda: condition() or (alive and self.process.poll() is not None), PATIENCE_S, what)
        if alive:
            assert self.process.poll() is None, self._output()

    def _pythons(self) -> dict[int, int]:
        """Of Spark's daemon and its workers: pid to parent."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                if (
                    int(fields[3]) == self.process.pid
                    and b"pyspark.daemon" in (path / "cmdline").read_bytes()
                ):
                    found[int(path.name)] = int(fields[1])
        return found

    def _output(self) -> str:
        return (self.directory / "output").read_text()[-4000:]


@pytest.fixture
def program(cluster: LocalCluster, tmp_path: Path) -> Iterator[Program]:
    made = Program(cluster.namesrv, tmp_path / "program")
    yield made
    made.close()


@pytest.mark.parametrize("rounds", [1, 20])
def test_table_has_each_acknowledged_message_once_whatever_is_killed(
    cluster: LocalCluster, program: Program, tmp_path: Path, rounds: int
) -> None:
    cluster.up()
    with Sender(cluster.namesrv, tmp_path / "history.jsonl", batch_size=20, interval_s=0.02) as sender:
        sender.wait_acknowledged(100)
        program.start()
        for _ in range(rounds):
            program.wait_batches(2)
            kill_leader(cluster, sender)
            program.kill_worker()
            program.wait_batches(2)
            program.kill_driver()
            program.start()
        program.wait_batches(2)
    program.end()
    # The sink's own log says which files count: what a killed task has left is in none of them.
    rows = table_rows(program.directory / "table")
    places = [(queue, offset) for _, queue, offset in rows]
    assert len(set(places)) == len(places), "no offset twice"
    found = {(key, (queue, offset)) for key, queue, offset in rows}
    assert [key for key, place in sender.places.items() if (key, place) not in found] == []
    print(
        f"{len(sender.places)} acknowledged, {len(rows)} rows, {rounds} kills each of leader, worker and driver"
    )


def table_rows(table: Path) -> list[tuple[str, int, int]]:
    names: list[str] = []
    logs = sorted(
        (path for path in (table / "_spark_metadata").glob("[0-9]*") if path.name.split(".")[0].isdigit()),
        key=lambda path: int(path.name.split(".")[0]),
    )
    compacted = [path for path in logs if path.name.endswith(".compact")]
    if compacted:
        logs = logs[logs.index(compacted[-1]) :]
    for path in logs:
        names += [json.loads(line)["path"] for line in path.read_text().splitlines()[1:]]
    rows: list[tuple[str, int, int]] = []
    for name in names:
        columns = pq.read_table(name.removeprefix("file:").replace("//", "/"), partitioning=None).to_pydict()
        rows += zip(columns["keys"], columns["queue_id"], columns["queue_offset"], strict=True)
    return rows
