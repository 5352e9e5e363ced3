"""Three servers in one process over real loopback sockets, for tests of links and of what members prove to each other.

On uvloop, as brokers run. asyncio's own loop leaks a connection that it accepts in the turn in which its server closes
(Server._attach() refuses the transport and nobody closes the socket), and here all dial each other until the end.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Self

from virtual_group import Journal

from disk.real_disk import RealDisk
from dledger.cluster_secrets import NO_CLUSTER_SECRET, ClusterSecrets
from dledger.config import DLedgerConfig
from dledger.core.messages import PeerId
from dledger.core.output import AppendStatus, Batch
from dledger.door import Door
from dledger.entry import EntryKind
from dledger.server import DLedgerServer, make_clock
from remoting.address import Address
from tests.free_ports import free_ports


class Servers:
    """In an `async with`: a test that fails must leave no server, or its threads would keep pytest from ending."""

    def __init__(
        self,
        directory: Path,
        secrets: dict[PeerId, ClusterSecrets] | None = None,
        features: dict[PeerId, list[str]] | None = None,
        doors: dict[PeerId, Door] | None = None,
    ) -> None:
        names = ["n0", "n1", "n2"]
        self.directory = directory
        self.peers = {
            name: Address("127.0.0.1", port) for name, port in zip(names, free_ports(3), strict=True)
        }
        self.secrets = secrets or {}
        self.features = features or {}
        self.doors = doors or {}
        self.running: dict[PeerId, DLedgerServer] = {}
        self.failures: list[str] = []
        self._clock = make_clock()
        self._stepped = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(server.close() for server in self.running.values()))

    def _now_ms(self) -> int:
        """Whatever a member does begins with a look at its clock."""
        self._stepped.set()
        return self._clock()

    async def until(self, condition: Callable[[], object]) -> None:
        """Looks after each step of a member; their ticks never end."""
        async with asyncio.timeout(20):
            while not condition():
                self._stepped.clear()
                await self._stepped.wait()

    async def start(self, *names: PeerId) -> None:
        for name in names or self.peers:
            config = DLedgerConfig(
                group="g",
                self_id=name,
                peers=self.peers,
                directory=str(self.directory / f"dledger-{name}"),
                data_file_size=1 << 20,
                index_file_size=32 * 4096,
                cluster_secrets=self.secrets.get(name, NO_CLUSTER_SECRET),
            )
            server = DLedgerServer(
                config,
                RealDisk(),
                Journal(),
                on_failure=self.failures.append,
                clock=self._now_ms,
                features=self.features.get(name, ()),
                door=self.doors.get(name),
            )
            self.running[name] = server
            await server.start()

    def leader(self) -> DLedgerServer | None:
        ready = [server for server in self.running.values() if server.replica.member.leader_ready]
        return max(ready, key=lambda server: server.replica.member.curr_term, default=None)

    async def elect(self) -> DLedgerServer:
        await self.until(self.leader)
        leader = self.leader()
        assert leader is not None
        return leader

    def converged(self) -> bool:
        states = {
            (
                server.replica.log.ledger_end_index,
                server.replica.log.ledger_end_chain,
                server.replica.member.committed_index,
            )
            for server in self.running.values()
        }
        return len(states) == 1 and self.leader() is not None

    def linked(self) -> bool:
        """Whether each one can ask all others."""
        return all(
            sorted(server.status()["links"]) == sorted(self.running.keys() - {name})
            for name, server in self.running.items()
        )

    async def stop(self, *names: PeerId) -> None:
        """All at once: one after the other, those that are left would elect, and write."""
        leaving = [self.running.pop(name) for name in names or list(self.running)]
        await asyncio.gather(*(server.stop() for server in leaving))

    def data_files(self, name: PeerId) -> dict[str, bytes]:
        data = self.directory / f"dledger-{name}" / "data"
        return {path.name: path.read_bytes() for path in data.iterdir()}


def begin_append(server: DLedgerServer, bodies: list[bytes]) -> asyncio.Future[AppendStatus]:
    """Appended when this returns; the future ends with the outcome."""
    done: asyncio.Future[AppendStatus] = asyncio.get_running_loop().create_future()
    sizes = [len(body) for body in bodies]
    batch = server.replica.append(
        sizes, lambda _: bodies, EntryKind.MESSAGE, done.set_result, server.now_ms()
    )
    assert isinstance(batch, Batch)
    return done


async def append(server: DLedgerServer, bodies: list[bytes]) -> AppendStatus:
    return await begin_append(server, bodies)
