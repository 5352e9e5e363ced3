"""RocketMQ's own DLedger group under a fault run: the same clients, the same nemeses, the other brokers.

Brokers and NameServer come from the jars that Maven fetches, with the settings of the conf/dledger that RocketMQ ships.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, TypeVar

import java_client
from java_servers import BROKER_NAME, JavaBroker, JavaGroup, JavaNameServer
from local_cluster import wait_for

from mqclient import Admin, AdminError
from pyspark_dledger.runner import LocalRunner
from pyspark_dledger.text_report import Verdict, verdict
from pyspark_dledger.validation import validate

T = TypeVar("T")

START_S = 600  # four JVMs that start at once, on a busy machine
_CONF = {"sendMessageThreadPoolNums": "16"}
_ASK_TIMEOUT_S = 2.0
_LOOK_TIMEOUT_S = 20.0  # a broker collects what it tells of itself for seconds on a busy machine


class JavaMissingError(Exception):
    """There is no such group on this machine. The text says what is missing."""


class RocketMqGroup:
    """A FaultTarget."""

    name = "java"
    members = ("n0", "n1", "n2")
    client_dials: ClassVar[dict[str, str]] = {}

    def __init__(self, directory: Path, base_port: int) -> None:
        """`directory` is made; `base_port`: see port_block(). Raises JavaMissingError."""
        missing = java_client.why_not()
        if missing:
            raise JavaMissingError(f"RocketMQ's own group needs a JDK and Maven: {missing}")
        stores = {member: directory / member / "store" for member in self.members}
        self._java = JavaGroup(directory, stores, base_port, _CONF)
        self._ids = {broker.address: member for member, broker in self._java.brokers.items()}
        self._one_at_a_time = {member: threading.Lock() for member in self.members}
        self.namesrv = self._java.namesrv

    def up(self) -> None:
        """Returns once all processes listen and somebody leads. Raises AssertionError."""
        for server in (self._java.name_server, *self._java.brokers.values()):
            server.start()
        self._await_listening(self._java.name_server)
        for member in self.members:
            self.start(member)
        wait_for(self.leader, START_S, "a leader of RocketMQ's group")

    def down(self) -> None:
        """Also of a group that was never started. Killed: an orderly end takes up to 20 s."""
        for server in (self._java.name_server, *self._java.brokers.values()):
            server.stop()

    def revive(self) -> None:
        """Starts what does not run and lets go on what stands still."""
        if self._java.name_server.pid is None:
            self._java.name_server.start()
        for server in (self._java.name_server, *self._java.brokers.values()):
            if server.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(server.pid, signal.SIGCONT)
        for member in self.members:
            self.start(member)

    def level(self, seconds: float) -> None:
        """Waits until all members have committed the same, and dispatched it. AssertionError."""
        brokers = self._java.brokers.values()

        async def info(admin: Admin) -> list[dict[str, str]]:
            return [await admin.brokers.runtime_info(broker.address) for broker in brokers]

        def is_level() -> bool:
            infos = self._asked(info, _LOOK_TIMEOUT_S)
            if infos is None or self.leader() is None:
                return False
            ends = {one["commitLogMaxOffset"] for one in infos}
            return len(ends) == 1 and all(one["dispatchBehindBytes"] == "0" for one in infos)

        wait_for(is_level, seconds, "members at one level")

    def led_by(self, member: str) -> tuple[str, int, str] | None:
        """(Raft group, term, leader): whom the member has voted for, if that was the majority's choice. Of one that
        does not run, or has not voted in the newest term: None.
        """
        elected = self._java.elected()
        if elected is None or member not in elected.voters or self.pid(member) is None:
            return None
        return BROKER_NAME, elected.term, elected.leader

    def judge_replicas(self, history: Path) -> Verdict:
        """All replicas held against each other and against what `history` says was acknowledged."""
        stores = [self.store_dir(member) for member in self.members]
        return verdict(validate(stores, runner=LocalRunner(), history=history))

    # -- what nemeses ask --------------------------------------------------------------------------------------

    def leader(self) -> str | None:
        """Who is the master at the NameServer. One that was killed is gone from there at once; one that stands still,
        when another has taken its place.
        """

        async def leaders(admin: Admin) -> list[str]:
            return await admin.brokers.leaders()

        addresses = self._asked(leaders)
        return self._ids[addresses[0]] if addresses else None

    def pid(self, member: str) -> int | None:
        return self._java.brokers[member].pid

    def kill(self, member: str) -> None:
        with self._one_at_a_time[member]:
            self._java.brokers[member].stop()

    def start(self, member: str) -> None:
        """Raises AssertionError."""
        broker = self._java.brokers[member]
        with self._one_at_a_time[member]:
            if broker.pid is None:
                broker.start()
            self._await_listening(broker)

    def store_dir(self, member: str) -> Path:
        return self._java.stores[member]

    def _asked(
        self, question: Callable[[Admin], Awaitable[T]], timeout_s: float = _ASK_TIMEOUT_S
    ) -> T | None:
        """None: somebody does not answer, or nobody leads."""

        async def ask() -> T:
            async with Admin(self.namesrv, timeout_s=timeout_s) as admin:
                return await question(admin)

        try:
            return asyncio.run(ask())
        except AdminError:
            return None

    def _await_listening(self, server: JavaNameServer | JavaBroker) -> None:
        address = server.address
        wait_for(lambda: server.pid is None or _listens(address), START_S, f"RocketMQ at {address}")
        assert server.pid is not None, f"RocketMQ at {address} ended while it started, see {server.log_file}"


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), _ASK_TIMEOUT_S):
        return True
    return False
