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
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from local_cluster import wait_for
from originals import java_client
from originals.java_servers import BROKER_NAME, JavaBroker, JavaGroup, JavaNameServer
from proxies import client_probe
from proxies.client_links import ClientLinks
from proxies.group_proxies import GroupProxies
from proxies.links import Links

from mq.cluster_layout import NAMESRV
from mqclient import Admin, AdminError
from verify.report.text_report import Verdict, verdict
from verify.runner import LocalRunner
from verify.validation import validate

T = TypeVar("T")

START_S = 600  # four JVMs that start at once, on a busy machine
_CONF = {"sendMessageThreadPoolNums": "16"}
_ASK_TIMEOUT_S = 2.0
_LOOK_TIMEOUT_S = 20.0  # a broker collects what it tells of itself for seconds on a busy machine


class JavaMissingError(Exception):
    """There is no such group on this machine. The text says what is missing."""


class RocketMqGroup:
    """A FaultTarget. Names of processes are those of the members, and "namesrv".

    What nemeses need around the processes, they ask for before up(): links(), client_links().
    """

    name = "java"
    members = ("n0", "n1", "n2")

    def __init__(self, directory: Path, base_port: int) -> None:
        """`directory` is made; `base_port`: see port_block(). Raises JavaMissingError."""
        missing = java_client.why_not()
        if missing:
            raise JavaMissingError(f"RocketMQ's own group needs a JDK and Maven: {missing}")
        self._directory = directory
        self._base_port = base_port
        self._stores = {member: directory / member / "store" for member in self.members}
        self._java = JavaGroup(directory, self._stores, base_port, _CONF)
        self._proxies = GroupProxies(
            directory / "toxiproxy.log",
            base_port,
            lambda server: Links(
                server, self._java.peers, base_port, client_probe.ask, client_probe.PASSES_UP
            ),
            {member: broker.address for member, broker in self._java.brokers.items()},
        )
        self._ids = {broker.address: member for member, broker in self._java.brokers.items()}
        self._one_at_a_time = {name: threading.Lock() for name in (NAMESRV, *self.members)}
        self.namesrv = self._java.namesrv

    # -- before up() -------------------------------------------------------------------------------------------

    def links(self) -> Links:
        """Between the members, each direction through toxiproxy. Skips as a test does where there is none."""
        links = self._proxies.links()
        self._java = JavaGroup(self._directory, self._stores, self._base_port, _CONF, links.dials)
        return links

    def client_links(self) -> ClientLinks:
        """From clients to members, each through toxiproxy. Skips as a test does where there is none."""
        return self._proxies.client_links()

    @property
    def client_dials(self) -> dict[str, str]:
        return self._proxies.client_dials

    # -- the run -----------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Returns once all processes listen and somebody leads. Raises AssertionError."""
        for server in self._servers.values():
            server.start()
        for name in (NAMESRV, *self.members):
            self.start(name)
        wait_for(self.leader, START_S, "a leader of RocketMQ's group")

    def down(self) -> None:
        """Also of a group that was never started. Killed: an orderly end takes up to 20 s."""
        with self._proxies:
            for server in self._servers.values():
                server.stop()

    def revive(self) -> None:
        """Starts what does not run and lets go on what stands still."""
        with ExitStack() as links:
            links.callback(self._proxies.heal)
            for server in self._servers.values():
                if server.pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(server.pid, signal.SIGCONT)
            for name in (NAMESRV, *self.members):
                self.start(name)

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

    @property
    def _servers(self) -> dict[str, JavaNameServer | JavaBroker]:
        return {NAMESRV: self._java.name_server, **self._java.brokers}

    def pid(self, member: str) -> int | None:
        return self._servers[member].pid

    def kill(self, member: str) -> None:
        with self._one_at_a_time[member]:
            self._servers[member].stop()

    def start(self, member: str) -> None:
        """Raises AssertionError."""
        server = self._servers[member]
        with self._one_at_a_time[member]:
            if server.pid is None:
                server.start()
            self._await_listening(server)

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
