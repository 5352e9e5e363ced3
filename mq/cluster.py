"""A cluster of real processes on this machine: start, look, break, end.

State is one file, `cluster.json` in the cluster's directory: the layout and the processes that were started. Only
those are ever signalled, and only while id and start time are still theirs. Data stays in the directory: `up` after
`down` goes on with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from mq.cluster_layout import NAMESRV, PROXY, ClusterLayout, layout_of_json
from mq.processes import (
    ProcessId,
    command_line,
    deferred_interrupts,
    is_alive,
    is_stopped,
    listening_ports,
    port_holder,
    process_id_of,
    send_signal,
    take_exit_code,
    wait_gone,
)

STATE_FILE = "cluster.json"
LOCK_FILE = "cluster.lock"
STOP_TIMEOUT_S = 10.0
# One that ends is seen at once: this is for a machine with other work, where Python alone may take seconds to start.
LISTEN_TIMEOUT_S = 30.0
LOG_LINES_SHOWN = 15


class ClusterError(Exception):
    """The cluster cannot do that now; the text says why and what to do."""


class Cluster:
    """Invariant: what `cluster.json` lists as a process was started by this class in this directory.

    `environment`: of the processes that it starts, beside our own. No command sets it, and no file keeps it.
    """

    def __init__(self, layout: ClusterLayout, processes: Mapping[str, ProcessId] | None = None) -> None:
        self.layout = layout
        self.environment: Mapping[str, str] = {}
        self.dir = Path(layout.dir)
        self._processes = dict(processes or {})
        self._log_begins: dict[str, int] = {}  # where the log begins of what was started here

    @classmethod
    def load(cls, directory: Path) -> Cluster:
        """Raises ClusterError when no cluster was ever started there."""
        path = directory / STATE_FILE
        try:
            state = orjson.loads(path.read_bytes())
            layout = layout_of_json(state["layout"])
            processes = {name: ProcessId(**process) for name, process in state["processes"].items()}
        except FileNotFoundError:
            raise ClusterError(
                f"no cluster in {directory}: start one with `mq cluster up --dir {directory}`"
            ) from None
        except (KeyError, TypeError, ValueError) as error:
            raise ClusterError(
                f"{path} is not readable ({error}): remove {directory} to begin anew"
            ) from None
        return cls(layout, processes)

    @classmethod
    def conf_of(cls, directory: Path) -> Mapping[str, str]:
        """The conf lines of the last `up` there; none where no cluster was ever started."""
        return cls.load(directory).layout.conf if (directory / STATE_FILE).exists() else {}

    @classmethod
    def up(cls, layout: ClusterLayout, environment: Mapping[str, str] | None = None) -> Cluster:
        """Starts whatever of the cluster is not running. Returns once all processes listen; whether each group
        serves is for the caller to ask."""
        directory = Path(layout.dir)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise ClusterError(f"--dir {directory} is a file: name a directory") from None
        with _locked(directory):
            cluster = cls(layout)
            if (directory / STATE_FILE).exists():
                cluster = cls._resumed(cls.load(directory), layout)
            cluster.environment = environment or {}
            if cluster.layout.tls:
                from mq.tls_files import TlsDirectory

                TlsDirectory(cluster.layout.tls_dir).make([])
            cluster._start_missing()
        return cluster

    @classmethod
    def _resumed(cls, former: Cluster, layout: ClusterLayout) -> Cluster:
        # The proxy and TLS stay, as the conf does, and one may join a cluster that runs.
        layout = replace(
            layout, proxy=layout.proxy or former.layout.proxy, tls=layout.tls or former.layout.tls
        )
        if replace(former.layout, proxy=layout.proxy) == layout:
            return cls(layout, former._processes)
        if former.running():
            raise ClusterError(
                f"{layout.dir} runs a cluster with other options: `mq cluster down --dir {layout.dir}` first, "
                "or choose another --dir"
            )
        if [(n.id, n.group) for n in former.layout.nodes] != [(n.id, n.group) for n in layout.nodes]:
            raise ClusterError(
                f"{layout.dir} holds the data of a cluster of {former.layout.groups} x "
                f"{former.layout.nodes_per_group} brokers: choose another --dir, or remove it"
            )
        return cls(layout)

    def names(self) -> list[str]:
        proxy = [PROXY] if self.layout.proxy else []
        return [NAMESRV, *(node.id for node in self.layout.nodes), *proxy]

    def process(self, name: str) -> ProcessId | None:
        """The living process of a member, or None."""
        process = self._processes.get(name)
        return process if process is not None and is_alive(process) else None

    def running(self) -> list[str]:
        return [name for name in self.names() if self.process(name) is not None]

    def log_file(self, name: str) -> Path:
        if name == PROXY:
            return self.layout.proxy_log
        return self.layout.namesrv_log if name == NAMESRV else self.layout.node(name).log_file

    def is_paused(self, name: str) -> bool:
        process = self.process(name)
        return process is not None and is_stopped(process)

    def start(self, name: str) -> ProcessId:
        """Raises ClusterError when it is running already, or its ports are taken."""
        self._check_name(name)
        with _locked(self.dir):
            if self.process(name) is not None:
                raise ClusterError(f"{name} is running already (pid {self._processes[name].pid})")
            self._check_ports([name])
            process = self._spawn(name)
        # Members that are started at once need not wait for each other.
        self._wait_listening([name])
        return process

    def kill(self, name: str) -> None:
        """SIGKILL; returns when it is gone."""
        process = self._running(name)
        send_signal(process, signal.SIGKILL)
        self._expect_gone([process])

    def stop(self, name: str) -> None:
        """SIGTERM; returns when it has ended. A paused process is resumed, or it could not hear the signal."""
        process = self._running(name)
        send_signal(process, signal.SIGTERM)
        send_signal(process, signal.SIGCONT)
        self._expect_gone([process])

    def pause(self, name: str) -> None:
        process = self._running(name)
        send_signal(process, signal.SIGSTOP)
        self._wait_for(lambda: is_stopped(process) or not is_alive(process), f"{name} to pause")

    def resume(self, name: str) -> None:
        process = self._running(name)
        send_signal(process, signal.SIGCONT)
        self._wait_for(lambda: not is_stopped(process), f"{name} to resume")

    def down(self) -> list[str]:
        """Ends every process of the cluster, the NameServer last, so that the others can take leave of it.

        Those that do not end on SIGTERM are killed; returns their names.
        """
        with _locked(self.dir):
            others = [name for name in self.running() if name != NAMESRV]
            try:
                killed = self._end(others)
            finally:  # also where a broker outlives its SIGKILL for long, as one that waits for its disk may
                killed_name_server = self._end([name for name in self.running() if name == NAMESRV])
            self._processes = {}
            self._save()
        return killed + killed_name_server

    def _end(self, names: list[str]) -> list[str]:
        processes = {self._processes[name]: name for name in names}
        for process in processes:
            send_signal(process, signal.SIGTERM)
            send_signal(process, signal.SIGCONT)
        stubborn = wait_gone(list(processes), STOP_TIMEOUT_S)
        for process in stubborn:
            send_signal(process, signal.SIGKILL)
        self._expect_gone(stubborn)
        return [processes[process] for process in stubborn]

    def _start_missing(self) -> None:
        missing = [name for name in self.names() if self.process(name) is None]
        self._check_ports(missing)
        try:
            for name in missing:
                self._spawn(name)
            self._wait_listening(missing)
        except ClusterError:
            # Half a cluster serves nobody, and who was told of a failure does not look for processes.
            self._end([name for name in reversed(missing) if self.process(name) is not None])
            raise

    def _spawn(self, name: str) -> ProcessId:
        log_file = self.log_file(name)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        if name == NAMESRV:
            conf_file = self.layout.namesrv_conf_file
            conf_file.write_text(self.layout.namesrv_conf())
            arguments = ["namesrv", "-c", str(conf_file)]
        elif name == PROXY:
            conf_file = self.layout.proxy_conf_file
            conf_file.write_bytes(orjson.dumps(self.layout.proxy_conf(), option=orjson.OPT_INDENT_2))
            arguments = ["proxy", "-pc", str(conf_file)]
        else:
            node = self.layout.node(name)
            node.conf_file.write_text(self.layout.broker_conf(node))
            arguments = ["broker", "-c", str(node.conf_file)]
        with log_file.open("ab") as log, deferred_interrupts():
            self._log_begins[name] = log.tell()
            # Its own session: Ctrl-C in the terminal that started the cluster is not meant for it.
            child = subprocess.Popen(
                [sys.executable, "-m", "mq.server_entry", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.dir,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(self.environment),
            )
            child.returncode = (
                0  # it outlives this object on purpose; processes.py reaps it if it ends before us
            )
            process = process_id_of(child.pid)
            if process is not None:
                self._processes[name] = process
                self._save()
        if process is None:
            raise ClusterError(f"{name} ended at once\n{self._log_tail(name)}")
        return process

    def _wait_listening(self, names: list[str]) -> None:
        deadline = time.monotonic() + LISTEN_TIMEOUT_S
        for name in names:
            ports = {port for port, owner in self.layout.ports().items() if owner == name}
            while True:
                began = time.monotonic()
                if ports <= listening_ports():
                    break
                if self.process(name) is None:
                    how = _how_ended(take_exit_code(self._processes[name].pid))
                    raise ClusterError(
                        f"{name} ended while starting{how}; the end of its log:\n{self._log_tail(name)}"
                    )
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"{name} does not listen on {sorted(ports)} after {LISTEN_TIMEOUT_S:.0f} s; "
                        f"see {self.log_file(name)}"
                    )
                # A look at all sockets of a machine takes milliseconds, and the starting processes need the cores.
                time.sleep(max(0.01, 4 * (time.monotonic() - began)))

    def _check_ports(self, names: list[str]) -> None:
        listening = listening_ports()
        taken = []
        for port, owner in self.layout.ports().items():
            if owner in names and port in listening:
                holder = port_holder(port)
                who = (
                    f"pid {holder}: {command_line(holder)}"
                    if holder is not None
                    else "a process of another user"
                )
                taken.append(f"port {port} (for {owner}) is taken by {who}")
        if taken:
            raise ClusterError("\n".join([*taken, "choose another --base-port, or end that process"]))

    def _check_name(self, name: str) -> None:
        if name not in self.names():
            self.layout.node(name)

    def _running(self, name: str) -> ProcessId:
        self._check_name(name)
        process = self.process(name)
        if process is None:
            raise ClusterError(f"{name} is not running: `mq cluster start {name} --dir {self.dir}` starts it")
        return process

    def _expect_gone(self, processes: list[ProcessId]) -> None:
        left = wait_gone(processes, STOP_TIMEOUT_S)
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            raise ClusterError(f"pid {pids} still lives {STOP_TIMEOUT_S:.0f} s after the signal")

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {STOP_TIMEOUT_S:.0f} s in vain for {what}")
            time.sleep(0.005)

    def _log_tail(self, name: str) -> str:
        written = self.log_file(name).read_bytes()[self._log_begins[name] :]
        lines = written.decode(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES_SHOWN:])

    def _save(self) -> None:
        state: dict[str, Any] = {
            "layout": self.layout.to_json(),
            "processes": {name: asdict(process) for name, process in self._processes.items()},
        }
        temporary = self.dir / f"{STATE_FILE}.tmp"
        temporary.write_bytes(orjson.dumps(state, option=orjson.OPT_INDENT_2))
        temporary.replace(self.dir / STATE_FILE)


def _how_ended(exit_code: int | None) -> str:
    """A signal leaves nothing in the log, so it is named here."""
    if exit_code is None:
        return ""
    return f" with status {exit_code}" if exit_code >= 0 else f" by {signal.Signals(-exit_code).name}"


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One command at a time may start or end processes of a directory."""
    with (directory / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
