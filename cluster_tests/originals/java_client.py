"""The official Java client, fetched by Maven and driven as processes (java/Interop.java says with which commands).

java/Recorder.java is the same client under faults: it writes a history.
"""

import contextlib
import fcntl
import json
import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cluster import wait_for

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / ".build" / "java"
SOURCES = ROOT / "cluster_tests" / "java"
VERSIONS = ("5.5.0", "4.9.8")
Keys = tuple[str, str]  # an access key and its secret key
# What runs so short compiles well and collects in parallel in vain.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def why_not() -> str | None:
    """The reason why Java tests cannot run here, or None."""
    missing = [tool for tool in ("mvn", "java", "javac") if shutil.which(tool) is None]
    return f"{', '.join(missing)} not on PATH" if missing else None


def class_path(version: str, *, server: bool = False) -> str:
    """Jars of that release and the programs compiled against them; fetched and built once into .build/java."""
    kind = "server" if server else "client"
    jars = BUILD / f"{kind}-{version}"
    classes = BUILD / f"{kind}-classes-{version}"
    sources = [
        SOURCES / name
        for name in (
            ("MqAdmin.java", "SqlFilters.java")
            if server
            else ("Client.java", "Interop.java", "Kinds.java", "Recorder.java")
        )
    ]
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        # Tests run side by side, and the first ones of all need the same build.
        fcntl.flock(lock, fcntl.LOCK_EX)
        _fetch(version, jars, ["-Pserver"] if server else [])
        _compile(sources, jars, classes)
    return f"{jars}/*:{classes}"


def _fetch(version: str, jars: Path, profile: list[str]) -> None:
    stamp = jars / ".complete"
    wanted = (SOURCES / "pom.xml").read_bytes()
    if stamp.exists() and stamp.read_bytes() == wanted:
        return
    goal = ["dependency:copy-dependencies", f"-Drocketmq.version={version}", f"-DoutputDirectory={jars}"]
    subprocess.run(
        ["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), *profile, *goal], check=True, timeout=600
    )
    stamp.write_bytes(wanted)


def _compile(sources: list[Path], jars: Path, classes: Path) -> None:
    # By content: in a checkout or a copy of .build, times say nothing.
    stamp = classes / ".source"
    content = b"".join(source.read_bytes() for source in sources)
    if stamp.exists() and stamp.read_bytes() == content:
        return
    classes.mkdir(exist_ok=True)
    command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), *map(str, sources)]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    stamp.write_bytes(content)


def signing(credentials: Keys | None) -> tuple[str, ...]:
    """What comes before a client's command, in whatever language, so that it signs with these keys, or not at all."""
    if credentials is None:
        return ("env", "-u", "ACCESS_KEY", "-u", "SECRET_KEY")
    return ("env", f"ACCESS_KEY={credentials[0]}", f"SECRET_KEY={credentials[1]}")


@dataclass(frozen=True)
class JavaClient:
    """One release of the client; `work` takes its logs and offsets so that the home directory stays clean."""

    version: str
    work: Path
    credentials: Keys | None = None
    options: tuple[str, ...] = ()  # of the JVM

    def start(self, *arguments: str, program: str = "Interop") -> "JavaProcess":
        options = [
            "-Xmx256m",
            *QUICK_START,
            *self.options,
            f"-Duser.home={self.work}",
            # A consumer's own look for new queues; 20 s unless told, which is how long a first retry would wait.
            "-Drocketmq.client.rebalance.waitInterval=1000",
        ]
        command = ["java", *options, "-cp", class_path(self.version), program, *arguments]
        return JavaProcess([*signing(self.credentials), *command], self.work)

    def send(
        self, namesrv: str, topic: str, mode: str, count: int, prefix: str, *tags: str, interval_ms: int = 0
    ) -> "JavaProcess":
        return self.start("send", namesrv, topic, mode, str(count), str(interval_ms), prefix, *tags)

    def consume(self, namesrv: str, topic: str, group: str, instance: str, tags: str = "*") -> "JavaProcess":
        """`tags`: also `sql:` and an SQL92 expression."""
        return self.start("consume", namesrv, topic, group, instance, tags)

    def delay(
        self, namesrv: str, topic: str, level: int, count: int, prefix: str, *, interval_ms: int = 0
    ) -> "JavaProcess":
        return self.start("delay", namesrv, topic, str(level), str(count), str(interval_ms), prefix)

    def mixed(
        self, namesrv: str, topic: str, count: int, prefix: str, *, interval_ms: int = 0
    ) -> "JavaProcess":
        """`count` sends: single messages, batches and delayed ones."""
        return self.start("mixed", namesrv, topic, str(count), str(interval_ms), prefix)

    def batch(self, namesrv: str, topic: str, count: int, size: int, prefix: str) -> "JavaProcess":
        """`count` batches of `size` messages."""
        return self.start("batch", namesrv, topic, str(count), str(size), prefix)

    def every(self, namesrv: str, topic: str) -> "JavaProcess":
        """Consumers of every kind in one process."""
        return self.start("every", namesrv, topic)

    def traced(self, namesrv: str, topic: str, group: str, count: int, prefix: str) -> "JavaProcess":
        """`count` sends, and a consumer of them; both write traces."""
        return self.start("traced", namesrv, topic, group, str(count), prefix)

    def query(self, namesrv: str, topic: str) -> "JavaProcess":
        """Lines of a key and an offset message id are answered with what is found by each."""
        return self.start("query", namesrv, topic)

    def fail(
        self, namesrv: str, topic: str, group: str, *, delay_level: int, times_max: int
    ) -> "JavaProcess":
        """A consumer that answers RECONSUME_LATER to each message."""
        return self.start("fail", namesrv, topic, group, str(delay_level), str(times_max))

    def record_sends(
        self,
        namesrv: str,
        topic: str,
        history: Path,
        producer: str,
        *,
        threads: int = 8,
        per_second: int = 200,
        body_size: int = 128,
        poll_ms: int = 1000,
    ) -> "JavaProcess":
        """Sends until its input closes. `poll_ms`: how often it asks for routes; the client's own is 30000."""
        numbers = map(str, (threads, per_second, body_size, poll_ms))
        return self.start("send", namesrv, topic, str(history), producer, *numbers, program="Recorder")

    def record_consumption(
        self, namesrv: str, topic: str, history: Path, group: str, consumer: str, *, poll_ms: int = 1000
    ) -> "JavaProcess":
        """A push consumer, until its input closes."""
        arguments = "consume", namesrv, topic, str(history), group, consumer, str(poll_ms)
        return self.start(*arguments, program="Recorder")

    @contextlib.contextmanager
    def reader(self, namesrv: str) -> Iterator["JavaReader"]:
        with self.start("read", namesrv, "interop_reader") as process:
            yield JavaReader(process)

    def read(self, namesrv: str, topic: str) -> list[dict[str, Any]]:
        with self.reader(namesrv) as reader:
            return reader.read(topic)


class JavaProcess:
    """A running command; its JSON lines are collected by a thread, in `events`."""

    def __init__(self, command: list[str], work: Path) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self._errors = (work / f"stderr-{time.monotonic_ns()}.log").open("w+")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=work,
            env={**os.environ, "NAMESRV_ADDR": ""},
        )
        self.events: list[dict[str, Any]] = []
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                self.note(json.loads(line))
        self._lines.put(None)

    def note(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self._lines.put(event)

    def __enter__(self) -> "JavaProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream:
                # Of a process that died closing writes what it never took.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def wait_for(self, event: str, seconds: float = 60) -> dict[str, Any]:
        """The next event of that name; AssertionError with the client's stderr when it ends or takes longer."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                got = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {event!r} within {seconds} s; {self.stderr()}") from None
            assert got is not None, f"ended before {event!r}; {self.stderr()}"
            if got["event"] == event:
                return got

    def rest(self, seconds: float) -> Iterator[dict[str, Any]]:
        """All events from now on until the process ends."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                got = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"still running after {seconds} s; {self.stderr()}") from None
            if got is None:
                return
            yield got

    def write_line(self, line: str) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"ended before {line!r}; {self.stderr()}") from None

    def close_input(self) -> None:
        """Tells `consume` to commit its offsets and end."""
        assert self._process.stdin
        self._process.stdin.close()

    def stderr(self) -> str:
        self._errors.flush()
        self._errors.seek(0)
        return self._errors.read()[-4000:]


class JavaReader:
    """One client that reads topics again and again, for tests that wait for what will be in them."""

    def __init__(self, process: JavaProcess) -> None:
        self._process = process

    def read(self, topic: str) -> list[dict[str, Any]]:
        """Every message of every queue. Asked again while it cannot be read: no route yet, an election between."""
        problems: list[object] = []

        def whole() -> tuple[list[dict[str, Any]]] | None:
            found = []
            self._process.write_line(topic)
            for event in self._process.rest(120):
                if event["event"] == "read":
                    found.append(event)
                elif event["event"] == "done":
                    return (found,)
                elif event["event"] == "unread":
                    problems.append(event["problem"])
                    return None
            raise AssertionError(f"ended while it read {topic}; {self._process.stderr()}")

        try:
            (found,) = wait_for(whole, 120, f"a whole read of {topic}")
        except AssertionError as error:
            raise AssertionError(f"{error}; {problems[-1:]}") from None
        return found
