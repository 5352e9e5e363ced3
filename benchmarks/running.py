"""A cluster of ours under measurement: started, asked, weighed and taken away again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def end_on_sigterm() -> None:
    """From now on SIGTERM raises, as Ctrl-C does: whoever has started servers takes them away."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)  # a second one must not break that off
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_seconds() -> float:
    """CPU time of everything on this machine so far, and what its host took away."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")  # idle, and waiting for the disk


def pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def idle(pids: tuple[int, ...], seconds: float) -> dict[str, float]:
    """CPU in % of one core over `seconds` without requests, and the sum of Pss in MiB."""
    before = sum(map(cpu_seconds, pids))
    began = time.monotonic()
    time.sleep(seconds)
    spent = sum(map(cpu_seconds, pids)) - before
    percent = round(100 * spent / (time.monotonic() - began), 1)
    return {"cpu_pct": percent, "pss_mib": round(sum(map(pss_mib, pids)), 1)}


class LocalCluster:
    """Three brokers of the code in `tree`, run by `python`, which has what that code depends on.

    `environment`: of its processes, beside our own. `up_options`: more of `mq cluster up`.
    """

    def __init__(
        self,
        directory: Path,
        base_port: int,
        conf: dict[str, str],
        *,
        tree: Path = ROOT,
        python: Path = Path(sys.executable),
    ) -> None:
        self.directory = directory
        self.base_port = base_port
        self.namesrv = f"127.0.0.1:{base_port}"
        self.environment: dict[str, str] = {}
        self.up_options = [option for pair in conf.items() for option in ("--conf", "=".join(pair))]
        self._tree = tree
        self._python = python

    def up(self) -> float:
        """Starts what does not run. Seconds until clients can send."""
        began = time.monotonic()
        self.call("up", "--base-port", str(self.base_port), *self.up_options)
        return time.monotonic() - began

    def call(self, *arguments: str) -> str:
        command = [str(self._python), "-m", "mq", "cluster", *arguments, "--dir", str(self.directory)]
        environment = {**os.environ, **self.environment, "PYTHONPATH": str(self._tree)}
        # Where bytecode may not be written, each broker compiles all that it imports.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(
            command, cwd=self._tree, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.call("status", "--json")))

    def nodes(self) -> list[dict[str, Any]]:
        return list(self.status()["nodes"])

    def leader(self) -> dict[str, Any]:
        while True:
            leader = next((node for node in self.nodes() if node["serving"]), None)
            if leader is not None:
                return leader
            time.sleep(0.05)

    def pids(self) -> tuple[int, ...]:
        return tuple(int(node["pid"]) for node in self.nodes())

    def all_pids(self) -> tuple[int, ...]:
        """The NameServer's process counts as it does in a user's `ps`."""
        status = self.status()
        return (int(status["namesrv_pid"]), *(int(node["pid"]) for node in status["nodes"]))


@contextmanager
def local_cluster(
    base_port: int, conf: dict[str, str], *, tree: Path = ROOT, python: Path = Path(sys.executable)
) -> Iterator[LocalCluster]:
    """A fresh one in a temporary directory, not up yet."""
    work = Path(tempfile.mkdtemp(prefix="pydledger-bench-"))
    cluster = LocalCluster(work / "cluster", base_port, conf, tree=tree, python=python)
    try:
        yield cluster
    finally:
        if cluster.directory.exists():
            cluster.call("down")
        shutil.rmtree(work)
