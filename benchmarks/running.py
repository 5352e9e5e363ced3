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
    def __init__(self, directory: Path, base_port: int, conf: dict[str, str]) -> None:
        self.directory = directory
        self.namesrv = f"127.0.0.1:{base_port}"
        self._up = ["up", "--base-port", str(base_port)]
        for key, value in conf.items():
            self._up += ["--conf", f"{key}={value}"]

    def up(self) -> float:
        """Starts what does not run. Seconds until clients can send."""
        began = time.monotonic()
        self.call(*self._up)
        return time.monotonic() - began

    def call(self, *arguments: str) -> str:
        command = [str(ROOT / "scripts" / "cluster"), *arguments, "--dir", str(self.directory)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

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
def local_cluster(base_port: int, conf: dict[str, str]) -> Iterator[LocalCluster]:
    """A fresh one in a temporary directory, not up yet."""
    work = Path(tempfile.mkdtemp(prefix="pydledger-bench-"))
    cluster = LocalCluster(work / "cluster", base_port, conf)
    try:
        yield cluster
    finally:
        if cluster.directory.exists():
            cluster.call("down")
        shutil.rmtree(work)
