"""Three brokers of ours and their NameServer under a fault run: what nemeses act on, and what the run asks of them."""

import os
import signal
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import clock
import disk_faults
from client_links import ClientLinks
from clock import ShiftedClocks, shifted_clocks
from disk_faults import DiskFaults, faulty_disks
from links import SERVER_PORT, Links
from local_cluster import LocalCluster
from power_loss import durable_stores
from power_loss.durable_stores import DurableStores
from preload import built
from toxiproxy import Toxiproxy
from toxiproxy_server import running_server

from mq.cluster import Cluster, ClusterError
from mq.cluster_layout import NAMESRV, ClusterLayout, parse_peer_dial
from mq.cluster_status import node_status
from pyspark_dledger.runner import LocalRunner
from pyspark_dledger.text_report import Verdict, verdict
from pyspark_dledger.validation import validate

CONF = {
    # The least that a broker takes: a NameServer that was lost hears of a new leader within it.
    "registerNameServerPeriod": "10000",
    # Damage has to be met while it is being looked for, also in the log of an hour.
    "pyDLedgerScrubBytesPerSecond": str(64 << 20),
}


class OurGroup:
    """A Group. Names of processes are those of the members, and "namesrv".

    What nemeses need around the processes, they ask for before up(): links(), client_links(), disks(), clocks(),
    durable_stores(), `conf`, `environment`.
    """

    name = "ours"

    def __init__(self, directory: Path, base_port: int) -> None:
        """`directory` is made; `base_port`: see port_block()."""
        directory.mkdir(parents=True, exist_ok=True)
        self.cluster = LocalCluster(directory.resolve(), base_port)
        self.namesrv = self.cluster.namesrv
        self.conf = dict(CONF)
        self.environment = self.cluster.environment  # of all processes of the cluster
        self._around = ExitStack()
        self._server: Toxiproxy | None = None
        self._links: Links | None = None
        self._client_links: ClientLinks | None = None
        self._disks: dict[str, DiskFaults] | None = None
        self._clocks: ShiftedClocks | None = None
        self._stores: DurableStores | None = None
        self._cluster: Cluster | None = None
        self._is_down = False
        self.members = tuple(node.id for node in self._layout().nodes)
        self._one_at_a_time = {name: threading.Lock() for name in (NAMESRV, *self.members)}

    # -- before up() -------------------------------------------------------------------------------------------

    def links(self) -> Links:
        """Between the members, each direction through toxiproxy. Skips as a test does where there is none."""
        if self._links is None:
            self._links = self._around.enter_context(Links.of_cluster(self._toxiproxy(), self.cluster))
        return self._links

    def client_links(self) -> ClientLinks:
        """From clients to members, each through toxiproxy. Skips as a test does where there is none."""
        if self._client_links is None:
            straight = {node.id: node.listen for node in self._layout().nodes}
            self._client_links = ClientLinks(self._toxiproxy(), straight, self.cluster.base_port)
        return self._client_links

    def _toxiproxy(self) -> Toxiproxy:
        if self._server is None:
            log, port = self.cluster.directory / "toxiproxy.log", self.cluster.base_port + SERVER_PORT
            self._server = self._around.enter_context(running_server(log, port))
        return self._server

    @property
    def client_dials(self) -> dict[str, str]:
        return {} if self._client_links is None else self._client_links.dials

    def disks(self) -> dict[str, DiskFaults]:
        """By member. Skips as a test does where there is no C compiler."""
        if self._disks is None:
            library = built(disk_faults.SOURCE, self.cluster.directory / "disk_faults.so")
            self._disks = faulty_disks(self.cluster, library)
        return self._disks

    def clocks(self) -> ShiftedClocks:
        """Of its processes. Skips as a test does where there is no C compiler."""
        if self._clocks is None:
            library = built(clock.SOURCE, self.cluster.directory / "clock.so")
            self._clocks = shifted_clocks(self.cluster, library)
        return self._clocks

    def durable_stores(self) -> DurableStores:
        """What the members' disks hold by their syncs. Skips as a test does where there is no C compiler."""
        if self._stores is None:
            library = built(durable_stores.SOURCE, self.cluster.directory / "power_loss.so")
            self._stores = durable_stores.of_cluster(self.cluster, library)
            # What has changed since a member's last start is copied at the next: files of 1 GiB would take their time.
            self.conf["mappedFileSizeCommitLog"] = str(64 << 20)
        return self._stores

    # -- the run -----------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Returns once all processes listen. Raises ClusterError."""
        self._cluster = Cluster.up(self._layout(), self.environment)

    def down(self) -> None:
        """Also of a group that was never started."""
        self._is_down = True
        with self._around, ExitStack() as under_way:
            for lock in self._one_at_a_time.values():
                under_way.enter_context(lock)
            self.cluster.down()  # by its file: up() may have been broken off

    def revive(self) -> None:
        with ExitStack() as links:
            for made in (self._links, self._client_links):
                if made is not None:
                    links.callback(made.heal)
            for name in (NAMESRV, *self.members):
                pid = self.pid(name)
                if pid is None:
                    self.start(name)
                else:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)

    def level(self, seconds: float) -> None:
        """Waits until all members have committed, applied and dispatched the same last entry. AssertionError."""
        self.cluster.level(seconds)

    def led_by(self, member: str) -> tuple[str, int, str] | None:
        """(Raft group, term, leader), as the member says; None if it says nothing, or knows no leader."""
        told = self._status(member)
        if told["term"] is None or told["leader"] is None:
            return None
        return str(told["group"]), int(told["term"]), str(told["leader"])

    def judge_replicas(self, history: Path) -> Verdict:
        """All replicas held against each other and against what `history` says was acknowledged."""
        stores = [self.store_dir(member) for member in self.members]
        return verdict(validate(stores, runner=LocalRunner(), history=history))

    # -- what nemeses ask --------------------------------------------------------------------------------------

    def leader(self) -> str | None:
        for member in self.members:
            told = self._status(member)
            if told["role"] == "LEADER" and told["serving"]:
                return member
        return None

    def pid(self, member: str) -> int | None:
        process = self._running().process(member)
        return None if process is None else process.pid

    def kill(self, member: str) -> None:
        with self._one_at_a_time[member]:
            if self.pid(member) is not None:
                with suppress(ClusterError):  # it ended by itself meanwhile
                    self._running().kill(member)
        assert self.pid(member) is None, f"{member} was killed"

    def start(self, member: str) -> None:
        """Raises ClusterError with the end of its log, or once the group has been taken down."""
        with self._one_at_a_time[member]:
            if self.pid(member) is None:
                if self._is_down:
                    raise ClusterError(f"{member} is not started: the group has been taken down")
                if self._stores is not None and member in self.members:
                    self._stores.settle(member)
                self._running().start(member)

    def store_dir(self, member: str) -> Path:
        return self._layout().node(member).store_dir

    def _status(self, member: str) -> dict[str, Any]:
        cluster = self._running()
        return node_status(cluster, cluster.layout.node(member))

    def _running(self) -> Cluster:
        assert self._cluster is not None, "up() comes first"
        return self._cluster

    def _layout(self) -> ClusterLayout:
        dials = {} if self._links is None else dict(map(parse_peer_dial, self._links.options()[1::2]))
        return ClusterLayout(
            dir=str(self.cluster.directory),
            base_port=self.cluster.base_port,
            peer_dials=dials,
            conf=self.conf,
        )
