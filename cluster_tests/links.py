"""The links between the members of a cluster, each direction with a proxy of its own.

    cluster.up(*links.options())
    slow = links.impair("n0", "n1", "latency", latency=300)
    links.cut("n0", "n1")
    slow.lift()
    links.heal()

A member dials each peer through the proxy of that pair, and a connection carries requests one way and answers the
other. So what n0 says to n1 goes up the connections that n0 dialled and down those that n1 dialled: to impair n0 -> n1
is to impair both. Kinds and their attributes are toxiproxy's: latency, bandwidth, slicer, reset_peer, timeout,
limit_data, slow_close. What is laid on one link adds up, and each is lifted by itself.

With frames() each member dials a proxy of our own first, which leads to toxiproxy's: messages are lost, doubled or
overtaken there (frame_proxy.py), streams are impaired behind it.
"""

import itertools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from frame_proxy import FrameProxies
from local_cluster import LocalCluster
from toxiproxy import Proxy, Toxiproxy

from mq.cluster_layout import HOST, ClusterLayout

# Within the cluster's block of ports, and none of a broker's.
FIRST_PORT = 70
SERVER_PORT = 91


class Impairment:
    """One fault on a link. Others on it stay when this is lifted."""

    def __init__(self, *undo: Callable[[], None]) -> None:
        """`undo`: each does nothing once it has been done."""
        self._undo = undo

    def lift(self) -> None:
        """Once is enough, unless it raises: then again. Nothing after heal()."""
        with ExitStack() as each:
            for undo in self._undo:
                each.callback(undo)


class Links:
    """Several threads may call at once. To be closed; the server is not its own."""

    def __init__(self, server: Toxiproxy, cluster: LocalCluster, members_count: int = 3) -> None:
        layout = ClusterLayout(
            dir=str(cluster.directory), base_port=cluster.base_port, nodes_per_group=members_count
        )
        self.members = tuple(node.id for node in layout.nodes)
        self.raft_group = layout.nodes[0].group
        self.straight = {node.id: node.raft for node in layout.nodes}  # past all proxies
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._toxics: set[tuple[tuple[str, str], str]] = set()
        self._downs: dict[tuple[str, str], set[int]] = {}
        self._frames: FrameProxies | None = None
        self._proxies: dict[tuple[str, str], Proxy] = {}
        for number, (dialler, peer) in enumerate(itertools.permutations(layout.nodes, 2)):
            self._proxies[dialler.id, peer.id] = server.create(
                name=f"{dialler.id}-{peer.id}",
                listen=f"{HOST}:{cluster.base_port + FIRST_PORT + number}",
                upstream=peer.raft,
            )
            self._downs[dialler.id, peer.id] = set()

    def __enter__(self) -> "Links":
        return self

    def __exit__(self, *_: object) -> None:
        if self._frames is not None:
            self._frames.close()

    def frames(self) -> FrameProxies:
        """In front of all; to be asked for before options()."""
        if self._frames is None:
            self._frames = FrameProxies({pair: proxy.listen for pair, proxy in self._proxies.items()})
        return self._frames

    def options(self) -> list[str]:
        """Of `scripts/cluster up`."""
        toxiproxys = {pair: proxy.listen for pair, proxy in self._proxies.items()}
        addresses = toxiproxys if self._frames is None else self._frames.addresses
        return [
            option
            for (dialler, peer), address in addresses.items()
            for option in ("--peer-dial", f"{dialler}:{peer}={address}")
        ]

    def address(self, dialler: str, peer: str) -> str:
        """host:port of toxiproxy's proxy by which one member dials another."""
        listen: str = self._proxies[dialler, peer].listen
        return listen

    def impair(self, sender: str, receiver: str, kind: str, **attributes: int) -> Impairment:
        """What one member says to another."""
        name = f"{kind}-{next(self._numbers)}"
        ways = {(sender, receiver): "upstream", (receiver, sender): "downstream"}
        impairment = Impairment(*(partial(self._remove, pair, name) for pair in ways))
        with ExitStack() as failing:
            failing.callback(impairment.lift)
            for pair, stream in ways.items():
                with self._lock:
                    self._toxics.add((pair, name))
                self._proxies[pair].add_toxic(type=kind, name=name, stream=stream, attributes=attributes)
            failing.pop_all()
        return impairment

    def cut(self, sender: str, receiver: str) -> Impairment:
        """Nothing of it arrives, and no connection closes. Those that were cut close when they are healed."""
        return self.impair(sender, receiver, "timeout", timeout=0)

    def take_down(self, dialler: str, peer: str) -> Impairment:
        """The connections that one member dials to another close, and it gets no new ones."""
        pair, number = (dialler, peer), next(self._numbers)
        impairment = Impairment(partial(self._raise, pair, number))
        with ExitStack() as failing:
            failing.callback(impairment.lift)
            with self._lock:
                self._downs[pair].add(number)
                self._proxies[pair].disable()
            failing.pop_all()
        return impairment

    def heal(self) -> None:
        """All links."""
        for pair, name in list(self._toxics):
            self._remove(pair, name)
        for pair, numbers in self._downs.items():
            for number in list(numbers):
                self._raise(pair, number)

    def _remove(self, pair: tuple[str, str], name: str) -> None:
        with self._lock:
            if (pair, name) not in self._toxics:
                return
        proxy = self._proxies[pair]
        # It is not there if it could not be added.
        if name in proxy.toxics():
            proxy.destroy_toxic(name)
        with self._lock:
            self._toxics.discard((pair, name))

    def _raise(self, pair: tuple[str, str], number: int) -> None:
        with self._lock:
            downs = self._downs[pair]
            if downs == {number}:
                self._proxies[pair].enable()
            downs.discard(number)
