"""Programs that do the same with clients of several languages: transactions, timers, filters, requests and replies.

java/Kinds.java, go/kinds.go, node/kinds.js and python/kinds.py are `PROGRAM namesrv group instance`. They sign with
ACCESS_KEY and SECRET_KEY of the environment, where it has these. They take a command per line from
their input, its words parted by tabs, and print a JSON object per event:

    send     KEY TOPIC [NAME=VALUE ...]                  sent, or failed
    transact KEY TOPIC NOW DECISION [NAME=VALUE ...]     likewise; checked when the broker asks
    recall   KEY                                         recalled, or failed: a timer that was sent here
    request  KEY TOPIC TIMEOUT_MS [NAME=VALUE ...]       replied, or failed
    consume  TOPIC GROUP TAG|SQL92 EXPRESSION            consuming, then received for each message
    reply    TOPIC GROUP                                 consuming, then requested for each; those without the property
                                                         mute are answered

NOW is the end of the local transaction: commit, rollback or unknown. DECISION is a property of the message: what any
producer of the group answers when it is asked. Commands run side by side. At the end of its input a program ends.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from local_cluster import wait_for
from originals import java_client
from originals.java_client import QUICK_START, ROOT, JavaProcess, Keys, class_path, signing

SOURCES = ROOT / "cluster_tests"
GO_BUILD = ROOT / ".build" / "go"
NODE_BUILD = ROOT / ".build" / "node"
# Of brokers whose clients are these.
BROKER_CONF = {
    "enablePropertyFilter": "true",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "2000",
    # RocketMQ's broker keeps for so long to itself that a transaction has ended, and would ask about it.
    "transactionOpBatchInterval": "100",
    "recallMessageEnable": "true",
    "waitTimeMillsInSendQueue": "60000",  # a busy broker is to refuse nothing
}
WAIT_S = 60


class Kinds(JavaProcess):
    """A running program."""

    def send(self, key: str, topic: str, **properties: object) -> None:
        self._say("send", key, topic, *_words(properties))

    def transact(self, key: str, topic: str, now: str, decision: str) -> None:
        self._say("transact", key, topic, now, decision)

    def recall(self, key: str) -> None:
        self._say("recall", key)

    def request(self, key: str, topic: str, timeout_ms: int, **properties: object) -> None:
        self._say("request", key, topic, str(timeout_ms), *_words(properties))

    def consume(self, topic: str, group: str, *, tags: str = "*", sql: str | None = None) -> None:
        self._say("consume", topic, group, *(("TAG", tags) if sql is None else ("SQL92", sql)))

    def reply(self, topic: str, group: str) -> None:
        self._say("reply", topic, group)

    def told(self, event: str, **values: object) -> list[dict[str, Any]]:
        return [
            seen
            for seen in list(self.events)
            if seen["event"] == event and all(seen.get(name) == value for name, value in values.items())
        ]

    def keys(self, event: str, **values: object) -> set[str]:
        return {seen["key"] for seen in self.told(event, **values)}

    def places(self, group: str) -> dict[str, set[tuple[int, int]]]:
        """Where the messages lie that a group was given, by their keys; a message that is stored twice has two."""
        places: dict[str, set[tuple[int, int]]] = {}
        for seen in self.told("received", group=group):
            places.setdefault(seen["key"], set()).add((seen["queue"], seen["offset"]))
        return places

    def _say(self, *words: str) -> None:
        self.write_line("\t".join(words))


def wait_sent(client: Kinds, keys: set[str], seconds: float = WAIT_S) -> None:
    """AssertionError as soon as one of them has failed."""

    def are_sent() -> bool:
        failed = [seen for seen in client.told("failed") if seen["key"] in keys]
        assert not failed, f"of {len(keys)} sends {len(failed)} failed, such as {failed[0]}"
        return keys <= client.keys("sent")

    wait_for(are_sent, seconds, f"{len(keys)} sends")


def wait_received(client: Kinds, group: str, keys: set[str]) -> None:
    wait_for(lambda: keys <= client.keys("received", group=group), WAIT_S, f"{keys} received by {group}")


def assert_once(client: Kinds, group: str, keys: set[str]) -> None:
    """The group was given these messages, each from one place, and no others."""
    places = client.places(group)
    assert places.keys() == keys
    assert [key for key, found in places.items() if len(found) > 1] == []


def _words(properties: dict[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in properties.items()]


@dataclass(frozen=True)
class KindsProgram:
    """Of one client. `work` takes its logs, which Java's and Go's write into the home directory."""

    name: str
    command: tuple[str, ...]
    work: Path

    @contextlib.contextmanager
    def start(
        self, namesrv: str, group: str, instance: str, credentials: Keys | None = None
    ) -> Iterator[Kinds]:
        command = [*signing(credentials), *self.command, namesrv, group, instance]
        with Kinds(command, self.work) as process:
            process.wait_for("started")
            yield process


def kinds_program(name: str, work: Path) -> KindsProgram:
    """`name`: java-VERSION, go, node or mqclient. Skips the test with the reason where that client cannot be had."""
    language, _, version = name.partition("-")
    commands = {
        "java": lambda: _java(version, work),
        "go": lambda: _go(work),
        "node": _node,
        "mqclient": _mqclient,
    }
    return KindsProgram(name, commands[language](), work)


def _java(version: str, work: Path) -> tuple[str, ...]:
    reason = java_client.why_not()
    if reason:
        pytest.skip(reason)
    options = (
        "-Xmx256m",
        *QUICK_START,
        f"-Duser.home={work}",
        "-Drocketmq.client.rebalance.waitInterval=1000",
    )
    return ("java", *options, "-cp", class_path(version), "Kinds")


def _go(work: Path) -> tuple[str, ...]:
    reason = _why_no_go()
    if reason:
        pytest.skip(reason)
    return ("env", f"HOME={work}", str(GO_BUILD / "kinds"))


@cache
def _why_no_go() -> str | None:
    go = shutil.which("go")
    if go is None:
        return "go not on PATH"
    with _alone(GO_BUILD):
        # Go's own cache knows whether anything has changed.
        return _why_not(
            [go, "build", "-C", str(SOURCES / "go"), "-o", str(GO_BUILD / "kinds"), "."], "the Go client"
        )


def _node() -> tuple[str, ...]:
    reason = _why_no_node()
    if reason:
        pytest.skip(reason)
    return ("env", f"NODE_PATH={NODE_BUILD / 'node_modules'}", "node", str(SOURCES / "node" / "kinds.js"))


@cache
def _why_no_node() -> str | None:
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not on PATH"
    with _alone(NODE_BUILD):
        lock = (SOURCES / "node" / "package-lock.json").read_bytes()
        stamp = NODE_BUILD / ".packages"
        if stamp.exists() and stamp.read_bytes() == lock:
            return None
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / "node" / name, NODE_BUILD)
        install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(NODE_BUILD)]
        reason = _why_not(install, "the Node client")
        if reason is None:
            stamp.write_bytes(lock)
        return reason


def _mqclient() -> tuple[str, ...]:
    # The keys of the environment are those of a test's own commands.
    command = (sys.executable, str(SOURCES / "python" / "kinds.py"))
    return ("env", "-u", "PYDLEDGER_ACCESS_KEY", "-u", "PYDLEDGER_SECRET_KEY", *command)


@contextlib.contextmanager
def _alone(build: Path) -> Iterator[None]:
    """Tests run side by side, and the first ones of all need the same build."""
    build.mkdir(parents=True, exist_ok=True)
    with (build / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _why_not(command: list[str], what: str) -> str | None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "GOFLAGS": "-buildvcs=false"},
    )
    return f"{what} cannot be built: {done.stderr.strip()[-300:]}" if done.returncode else None
