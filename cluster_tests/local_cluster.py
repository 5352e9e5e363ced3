"""A three-broker cluster of real processes for one test.

It is started by scripts/cluster, and so with what its checkout has installed. It is looked at and broken through the
classes behind that command: a look or a kill that first starts a Python takes longer than an election.
"""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mq.cluster import STATE_FILE, Cluster
from mq.cluster_status import cluster_status
from mq.processes import send_signal, wait_gone

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = ROOT / "scripts" / "cluster"
PORTS_PER_CLUSTER = 100
FIRST_BLOCK = 12000
BLOCKS = 150

# Where bytecode may not be written, each broker compiles all that it imports: 0.3 s of CPU more for every start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


class ClusterCommandError(Exception):
    """scripts/cluster ended with another status than 0; the text is all that it printed."""


@contextlib.contextmanager
def port_block() -> Iterator[int]:
    """A base port whose whole block is free and stays nobody else's: the contract says blocks 100 apart never meet.
    Beside the ports of a cluster there are those of what tests put around it, and whatever a killed test has left.

    A socket on a port that no cluster uses marks the block as taken, so that tests side by side cannot draw the same
    one, and the kernel gives it back however the process ends. Stays below the kernel's range of ephemeral ports,
    where an outgoing connection could take one meanwhile.
    """
    start = os.getpid() * 7
    for step in range(BLOCKS):
        base = FIRST_BLOCK + (start + step) % BLOCKS * PORTS_PER_CLUSTER
        with socket.socket() as mark:
            try:
                mark.bind(("127.0.0.1", base + PORTS_PER_CLUSTER - 1))
            except OSError:
                continue
            if all(_is_free(port) for port in range(base, base + PORTS_PER_CLUSTER - 1)):
                yield base
                return
    raise RuntimeError("no block of free ports between 12000 and 27000")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """The first truthy value of `condition`, asked every 20 ms; AssertionError naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        pause.wait(0.02)


@dataclass
class LocalCluster:
    """One cluster in one directory. `up()` to `down()`; members are n0, n1, n2, of a second group n3 to n5."""

    directory: Path
    base_port: int
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.base_port}"

    def command(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(CLUSTER), *arguments, "--dir", str(self.directory)],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode:
            raise ClusterCommandError(
                f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done.stdout

    def up(self, *options: str, conf: dict[str, str] | None = None) -> None:
        pairs = [item for key, value in (conf or {}).items() for item in ("--conf", f"{key}={value}")]
        self.command("up", "--base-port", str(self.base_port), *pairs, *options)

    def down(self) -> None:
        """Also of a cluster that was never started, because its test was skipped."""
        if (self.directory / STATE_FILE).exists():
            self._processes().down()

    def start_missing(self) -> None:
        """As up() again, but without a Python of its own: what does not run is started. Returns once it listens."""
        before = {key: os.environ.get(key) for key in self.environment}
        os.environ.update(self.environment)
        try:
            Cluster.up(self._processes().layout)
        finally:
            for key, value in before.items():
                if value is None:
                    del os.environ[key]
                else:
                    os.environ[key] = value

    def start(self, name: str) -> None:
        self.command("start", name)

    def kill(self, name: str) -> None:
        """SIGKILL; returns when it is gone."""
        self._processes().kill(name)

    def kill_all(self) -> None:
        """SIGKILL to all brokers, and only then a wait; the NameServer lives."""
        processes = self._processes()
        brokers = [process for node in processes.layout.nodes if (process := processes.process(node.id))]
        for broker in brokers:
            send_signal(broker, signal.SIGKILL)
        left = wait_gone(brokers, 20)
        assert not left, f"still there after SIGKILL: {left}"

    def pid(self, name: str) -> int:
        """Of a member that runs."""
        process = self._processes().process(name)
        assert process is not None, f"{name} does not run"
        return process.pid

    def stop(self, name: str) -> None:
        """SIGTERM; returns when it has ended."""
        self._processes().stop(name)

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self._processes().pause(name)

    def resume(self, name: str) -> None:
        self._processes().resume(name)

    def status(self) -> dict[str, Any]:
        return cluster_status(self._processes())

    def _processes(self) -> Cluster:
        return Cluster.load(self.directory.resolve())

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["id"]: node for node in self.status()["nodes"]}

    def log_file(self, name: str) -> Path:
        return self._processes().log_file(name)

    def log_ends(self, lines: int = 12) -> str:
        """Of every member's log that there is, its last lines."""
        ends = []
        for path in sorted(self.directory.glob("*/*.log")):
            ends += [f"{path.parent.name}/{path.name}:", *path.read_text().splitlines()[-lines:]]
        return "\n".join(ends)

    def leader(self, seconds: float = 20, *, group: str = "RaftNode00") -> str:
        """The id of the member that leads the group and serves; waits for one."""

        def serving() -> str | None:
            found = [
                n["id"]
                for n in self.status()["nodes"]
                if n["group"] == group and n.get("serving") and n.get("role") == "LEADER"
            ]
            return found[0] if len(found) == 1 else None

        return wait_for(serving, seconds, "a serving leader")

    def wait_back(self, name: str) -> None:
        """Until the member has all that was committed when this was asked; a load may go on."""
        committed = max(node.get("committed") or 0 for node in self.nodes().values())
        wait_for(lambda: (self.nodes()[name].get("reput") or 0) >= committed, 60, f"{name} is back")

    def level(self, seconds: float = 30) -> None:
        """Waits until every member of a group has committed, applied and dispatched the same last entry."""

        def is_level() -> bool:
            nodes = self.status()["nodes"]
            ends: dict[str, set[int | None]] = {}
            for node in nodes:
                ends.setdefault(node["group"], set()).update(
                    map(node.get, ("ledger_end", "committed", "reput"))
                )
            return all(n.get("role") for n in nodes) and all(len(of_group) == 1 for of_group in ends.values())

        wait_for(is_level, seconds, "members at one level")
