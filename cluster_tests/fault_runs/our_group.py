"""Three brokers of ours and their NameServer under a fault run: what nemeses act on, and what the run asks of them."""

import asyncio
import os
import signal
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from local_cluster import LocalCluster, wait_for
from nemeses.disks.scrub import scrub
from nemeses.nemesis import NemesisError
from power_loss import durable_stores
from power_loss.durable_stores import DurableStores
from preloaded import clock, disk_faults
from preloaded.clock import ShiftedClocks, shifted_clocks
from preloaded.disk_faults import DiskFaults, faulty_disks
from preloaded.preload import built
from proxies.client_links import ClientLinks
from proxies.group_proxies import GroupProxies
from proxies.links import Links
from workload import transactions

from mq.cluster import Cluster, ClusterError
from mq.cluster_layout import NAMESRV, ClusterLayout
from mq.cluster_status import node_status
from verify.report.text_report import Verdict, verdict
from verify.runner import LocalRunner
from verify.validation import validate

CONF = {
    # The least that a broker takes: a NameServer that was lost hears of a new leader within it.
    "registerNameServerPeriod": "10000",
    # Damage has to be met while it is being looked for, also in the log of an hour.
    "pyDLedgerScrubBytesPerSecond": str(64 << 20),
    **transactions.CONF,
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
        self._disks: dict[str, DiskFaults] | None = None
        self._clocks: ShiftedClocks | None = None
        self._stores: DurableStores | None = None
        self._cluster: Cluster | None = None
        self._is_down = False
        nodes = ClusterLayout(dir=str(self.cluster.directory), base_port=base_port).nodes
        self._proxies = GroupProxies(
            self.cluster.directory / "toxiproxy.log",
            base_port,
            lambda server: Links.of_cluster(server, self.cluster),
            {node.id: node.listen for node in nodes},
        )
        self.members = tuple(node.id for node in nodes)
        self._one_at_a_time = {name: threading.Lock() for name in (NAMESRV, *self.members)}

    # -- before up() -------------------------------------------------------------------------------------------

    def links(self) -> Links:
        """Between the members, each direction through toxiproxy. Skips as a test does where there is none."""
        return self._proxies.links()

    def client_links(self) -> ClientLinks:
        """From clients to members, each through toxiproxy. Skips as a test does where there is none."""
        return self._proxies.client_links()

    @property
    def client_dials(self) -> dict[str, str]:
        return self._proxies.client_dials

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
        with self._proxies, ExitStack() as under_way:
            for lock in self._one_at_a_time.values():
                under_way.enter_context(lock)
            self.cluster.down()  # by its file: up() may have been broken off

    def revive(self) -> None:
        with ExitStack() as links:
            links.callback(self._proxies.heal)
            for name in (NAMESRV, *self.members):
                pid = self.pid(name)
                if pid is None:
                    self.start(name)
                else:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)

    def level(self, seconds: float) -> None:
        """Waits until all members have committed, applied and dispatched the same last entry; then, as long again,
        until each has read all that it has and nothing of it is damaged. AssertionError.
        """
        self.cluster.level(seconds)
        rounds_before: dict[str, int] = {}

        def has_each_begun() -> bool:
            """A round that began before may have passed what was damaged then."""
            for node in self._layout().nodes:
                told = self._status(node.id)["scrub"]
                if node.id not in rounds_before and told is not None and told["round"] is None:
                    with suppress(NemesisError):  # asked again
                        asyncio.run(scrub(self.namesrv, node.listen))
                        rounds_before[node.id] = told["rounds"]
            return len(rounds_before) == len(self.members)

        def is_each_sound() -> bool:
            statuses = {member: self._status(member) for member in self.members}
            return all(
                told["scrub"] is not None
                and told["scrub"]["rounds"] > rounds_before[member]
                and not told["faulty_ranges"]
                for member, told in statuses.items()
            )

        wait_for(has_each_begun, seconds, "a scrub of each member")
        wait_for(is_each_sound, seconds, "each member scrubbed and without damage")

    def scrub_read_size(self, member: str) -> int:
        """Bytes that its round has read; 0 between two."""
        told = self._status(member)["scrub"]
        return int(told["round"]["bytes_read"]) if told is not None and told["round"] is not None else 0

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
        dials = {f"{dialler}:{peer}": address for (dialler, peer), address in self._proxies.dials.items()}
        return ClusterLayout(
            dir=str(self.cluster.directory),
            base_port=self.cluster.base_port,
            peer_dials=dials,
            conf=self.conf,
        )
