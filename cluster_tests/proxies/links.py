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

With frames() each member dials a proxy of our own first, which leads to toxiproxy's: messages of our protocol are
lost, doubled or overtaken there (frame_proxy.py), streams are impaired behind it.
"""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Self

from local_cluster import LocalCluster
from proxies import member_probe
from proxies.frame_proxy import FrameProxies
from proxies.impaired_proxies import ImpairedProxies, Impairment
from proxies.toxiproxy_server import ToxiproxyServer

from mq.cluster_layout import HOST, ClusterLayout

# Within the cluster's block of ports, and none of a broker's.
FIRST_PORT = 70
SERVER_PORT = 91

# As member_probe.ask: (address, member, *, seconds_max, bytes_up, bytes_down) -> seconds.
Ask = Callable[..., float]


class Links:
    """Several threads may call at once. To be closed; the server is not its own."""

    def __init__(
        self, server: ToxiproxyServer, straight: Mapping[str, str], base_port: int, ask: Ask, passes_up: int
    ) -> None:
        """`straight`: members, and where each hears its peers. `base_port`: of the group's block. `ask`: what a member
        answers there, after so many `passes_up`.
        """
        self.members = tuple(straight)
        self.straight = dict(straight)  # past all proxies
        self.ask = ask
        self.passes_up = passes_up
        self._frames: FrameProxies | None = None
        names = {way: "-".join(way) for way in itertools.permutations(straight, 2)}
        for number, ((_, peer), name) in enumerate(names.items()):
            server.create(name, f"{HOST}:{base_port + FIRST_PORT + number}", straight[peer])
        self._proxies = ImpairedProxies(server, names)

    @classmethod
    def of_cluster(cls, server: ToxiproxyServer, cluster: LocalCluster) -> Self:
        """Of the first group of a cluster of ours."""
        nodes = ClusterLayout(dir=str(cluster.directory), base_port=cluster.base_port).nodes
        straight = {node.id: node.raft for node in nodes}
        ask = partial(member_probe.ask, group=nodes[0].group)
        return cls(server, straight, cluster.base_port, ask, member_probe.PASSES_UP)

    def __enter__(self) -> "Links":
        return self

    def __exit__(self, *_: object) -> None:
        if self._frames is not None:
            self._frames.close()

    def frames(self) -> FrameProxies:
        """In front of all; to be asked for before options()."""
        if self._frames is None:
            self._frames = FrameProxies(self._proxies.addresses)
        return self._frames

    @property
    def dials(self) -> Mapping[tuple[str, str], str]:
        """(dialler, peer): host:port that it is to dial."""
        return self._proxies.addresses if self._frames is None else self._frames.addresses

    def options(self) -> list[str]:
        """Of `scripts/cluster up`."""
        return [
            option
            for (dialler, peer), address in self.dials.items()
            for option in ("--peer-dial", f"{dialler}:{peer}={address}")
        ]

    def address(self, dialler: str, peer: str) -> str:
        """host:port of toxiproxy's proxy by which one member dials another."""
        return self._proxies.address((dialler, peer))

    def impair(self, sender: str, receiver: str, kind: str, **attributes: int) -> Impairment:
        """What one member says to another."""
        ways = {(sender, receiver): "upstream", (receiver, sender): "downstream"}
        return self._proxies.impair(ways, kind, **attributes)

    def cut(self, sender: str, receiver: str) -> Impairment:
        """Nothing of it arrives, and no connection closes. Those that were cut close when they are healed."""
        return self.impair(sender, receiver, "timeout", timeout=0)

    def take_down(self, dialler: str, peer: str) -> Impairment:
        """The connections that one member dials to another close, and it gets no new ones."""
        return self._proxies.take_down((dialler, peer))

    def heal(self) -> None:
        """All links."""
        self._proxies.heal()
