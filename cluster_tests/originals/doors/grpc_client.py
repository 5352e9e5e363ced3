"""RocketMQ's official gRPC clients of five languages: programs that do the same, each with one of them.

grpc_clients/DoorClient.java, door_client.go, .js, .py and .rs are `PROGRAM endpoint topic`, the topic being the one
whose transactions they are asked about. They take a command per line from their input, its words parted
by tabs, and print a JSON object per event:

    send     KEY TOPIC [NAME=VALUE ...]             sent, or failed
    transact KEY TOPIC NOW [NAME=VALUE ...]         sent, then ended; checked when the broker asks
    recall   KEY TOPIC                              recalled: a message that was sent here
    push     TOPIC GROUP TAG|SQL92 EXPRESSION       consuming, then received for each delivery
    simple   TOPIC GROUP TAG|SQL92 EXPRESSION       consuming: messages come by `receive`
    receive  GROUP COUNT INVISIBLE_MS               received for each, then polled
    ack      KEY GROUP                              acked: the newest delivery of it
    hide     KEY GROUP INVISIBLE_MS                 hidden: likewise

tag, group (the message group) and at_ms (the time of delivery) are of the message itself, all else are properties. The
property fails=N has the first N deliveries to a push consumer fail; `decision` is what the producer answers when it is
asked: commit or rollback. NOW says how the transaction ends, or `unknown`. Commands run side by side. At the end of its
input a program ends.

Rust's library has no push consumer: there `push` receives, and acknowledges what is not to fail.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from local_cluster import wait_for
from originals.java_client import QUICK_START, ROOT, JavaProcess, Keys, signing

SOURCES = ROOT / "cluster_tests" / "grpc_clients"
BUILD = ROOT / ".build" / "grpc"
PYTHON_PACKAGE = "rocketmq-python-client==5.1.2"
QUICKLY_BUILT = ("go", "java", "node", "python")
LANGUAGES = (*QUICKLY_BUILT, "rust")  # to build that takes two minutes
WAIT_S = 60


class GrpcClient(JavaProcess):
    """A running program. Each event has `at_ns`, when it was read; `commands` has when each was written."""

    def __init__(self, command: list[str], work: Path) -> None:
        self.commands: list[tuple[int, list[str]]] = []
        super().__init__(command, work)

    def note(self, event: dict[str, Any]) -> None:
        event["at_ns"] = time.monotonic_ns()
        super().note(event)

    def send(self, key: str, topic: str, **values: object) -> None:
        self._say("send", key, topic, *_pairs(values))

    def transact(self, key: str, topic: str, now: str, decision: str) -> None:
        self._say("transact", key, topic, now, f"decision={decision}")

    def recall(self, key: str, topic: str) -> None:
        self._say("recall", key, topic)

    def push(self, topic: str, group: str, *, tags: str = "*", sql: str | None = None) -> None:
        self._say("push", topic, group, *(("TAG", tags) if sql is None else ("SQL92", sql)))

    def simple(self, topic: str, group: str) -> None:
        self._say("simple", topic, group, "TAG", "*")

    def receive(self, group: str, count: int, invisible_ms: int) -> None:
        self._say("receive", group, str(count), str(invisible_ms))

    def ack(self, key: str, group: str) -> None:
        self._say("ack", key, group)

    def hide(self, key: str, group: str, invisible_ms: int) -> None:
        self._say("hide", key, group, str(invisible_ms))

    def told(self, event: str, **values: object) -> list[dict[str, Any]]:
        return [
            seen
            for seen in list(self.events)
            if seen["event"] == event and all(seen.get(name) == value for name, value in values.items())
        ]

    def keys(self, event: str, **values: object) -> list[str]:
        """In the order of the events."""
        return [seen["key"] for seen in self.told(event, **values)]

    def wait_told(self, event: str, count: int = 1, **values: object) -> list[dict[str, Any]]:
        """So many of them at least. AssertionError as soon as a command has failed."""

        def told() -> list[dict[str, Any]] | None:
            failed = self.told("failed")
            assert not failed, f"{len(failed)} commands failed, such as {failed[0]}"
            found = self.told(event, **values)
            return found if len(found) >= count else None

        told_values = " ".join(f"{name}={value}" for name, value in values.items())
        found: list[dict[str, Any]] = wait_for(
            told, WAIT_S, f"{count} times {event} {told_values}; {self.stderr()}"
        )
        return found

    def wait_sent(self, *keys: str) -> None:
        for key in keys:
            self.wait_told("sent", key=key)

    def _say(self, *words: str) -> None:
        self.commands.append((time.monotonic_ns(), list(words)))
        self.write_line("\t".join(words))


def _pairs(values: dict[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


@dataclass(frozen=True)
class GrpcProgram:
    """Of one language. `work` is its home directory, which takes its logs."""

    language: str
    command: tuple[str, ...]
    work: Path

    @property
    def attempts(self) -> int:
        """How often its producer sends a message at most: Go's and Python's do as the proxy's settings say."""
        return 3 if self.language in ("go", "python") else 1

    @property
    def patience_s(self) -> int:
        """For how long its producer may not hear that it is asked about a transaction, once it has lost its proxy: Go's
        may open the stream again when it sends its settings, every 5 minutes; Python's tells who it is one time later.
        """
        return {"go": 360, "python": 660}.get(self.language, 120)

    @property
    def tries_again_in_order(self) -> bool:
        """Whether a message group's message is tried again: Node's takes its first failure for the last."""
        return self.language != "node"

    @property
    def holds_back(self) -> bool:
        """Whether a failed message holds back the rest of its message group: Go's goes on with what came with it."""
        return self.language != "go"

    @property
    def recalls_and_hides(self) -> bool:
        """Whether it can: Rust's library has neither call."""
        return self.language != "rust"

    @contextlib.contextmanager
    def start(self, endpoint: str, topic: str, credentials: Keys | None = None) -> Iterator[GrpcClient]:
        command = [*signing(credentials), f"HOME={self.work}", *self.command, endpoint, topic]
        with GrpcClient(command, self.work) as process:
            process.wait_for("started")
            yield process


def grpc_program(language: str, work: Path) -> GrpcProgram:
    """Skips the test with the reason where that client cannot be had."""
    reason = _why_not(language)
    if reason:
        pytest.skip(reason)
    commands = {
        "go": (str(BUILD / "go" / "door_client"),),
        "java": (
            *("java", "-Xmx256m", *QUICK_START, f"-Duser.home={work}"),
            *("-cp", f"{BUILD / 'java' / 'jars'}/*:{BUILD / 'java' / 'classes'}", "DoorClient"),
        ),
        "node": (
            "env",
            f"NODE_PATH={BUILD / 'node' / 'node_modules'}",
            "node",
            str(SOURCES / "door_client.js"),
        ),
        "python": (str(BUILD / "python" / "venv" / "bin" / "python"), str(SOURCES / "door_client.py")),
        "rust": (str(BUILD / "rust" / "debug" / "door_client"),),
    }
    return GrpcProgram(language, commands[language], work)


@cache
def _why_not(language: str) -> str | None:
    """Builds the program, or gives the reason why it cannot be built here."""
    makers: dict[str, tuple[tuple[str, ...], Callable[[Path], None]]] = {
        "go": (("go",), _make_go),
        "java": (("mvn", "java", "javac"), _make_java),
        "node": (("node", "npm"), _make_node),
        "python": ((), _make_python),
        "rust": (("cargo",), _make_rust),
    }
    tools, make = makers[language]
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not on PATH"
    build = BUILD / language
    build.mkdir(parents=True, exist_ok=True)
    with (build / "lock").open("w") as lock:
        # Tests run side by side, and the first ones of all need the same build.
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            make(build)
        except subprocess.CalledProcessError as error:
            return f"the gRPC client for {language} cannot be built: {(error.stderr or error.stdout).strip()[-300:]}"
    return None


def _make_go(build: Path) -> None:
    # Go's own cache knows whether anything has changed.
    _run("go", "build", "-C", str(SOURCES), "-o", str(build / "door_client"), "door_client.go")


def _make_java(build: Path) -> None:
    def fetch() -> None:
        goal = ("dependency:copy-dependencies", f"-DoutputDirectory={build / 'jars'}")
        _run("mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), *goal)

    def compile_program() -> None:
        (build / "classes").mkdir(exist_ok=True)
        source = str(SOURCES / "DoorClient.java")
        _run("javac", "-nowarn", "-cp", f"{build / 'jars'}/*", "-d", str(build / "classes"), source)

    _once(build / ".jars", SOURCES / "pom.xml", fetch)
    _once(build / ".classes", SOURCES / "DoorClient.java", compile_program)


def _make_node(build: Path) -> None:
    def install() -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / name, build)
        _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(build))

    _once(build / ".packages", SOURCES / "package-lock.json", install)


def _make_python(build: Path) -> None:
    """Into an environment of its own: its gRPC and protobuf are not ours."""
    stamp = build / ".package"
    if stamp.exists() and stamp.read_text() == PYTHON_PACKAGE:
        return
    venv = build / "venv"
    _run(sys.executable, "-m", "venv", "--clear", str(venv))
    _run(
        str(venv / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        PYTHON_PACKAGE,
    )
    stamp.write_text(PYTHON_PACKAGE)


def _make_rust(build: Path) -> None:
    # Cargo knows whether anything has changed.
    manifest = str(SOURCES / "Cargo.toml")
    _run("cargo", "build", "--quiet", "--locked", "--manifest-path", manifest, "--target-dir", str(build))


def _once(stamp: Path, source: Path, make: Callable[[], None]) -> None:
    """Again when the source has other content: in a checkout, times say nothing."""
    content = source.read_bytes()
    if stamp.exists() and stamp.read_bytes() == content:
        return
    make()
    stamp.write_bytes(content)


def _run(*command: str) -> None:
    environment = {**os.environ, "GOFLAGS": "-buildvcs=false"}
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=600, env=environment)
