"""The links between the members of a cluster, each direction with a proxy of its own.

    cluster.up(*links.options())
    links.impair("n0", "n1", "latency", latency=300)
    links.cut("n0", "n1")
    links.heal()

A member dials each peer through the proxy of that pair, and a connection carries requests one way and answers the
other. So what n0 says to n1 goes up the connections that n0 dialled and down those that n1 dialled: to impair n0 -> n1
is to impair both. Kinds and their attributes are toxiproxy's: latency, bandwidth, slicer, reset_peer, timeout,
limit_data, slow_close.
"""

import itertools

from local_cluster import LocalCluster
from toxiproxy import Proxy, Toxiproxy

from mq.cluster_layout import HOST, ClusterLayout

# Within the cluster's block of ports, and none of a broker's.
FIRST_PORT = 70
SERVER_PORT = 91


class Links:
    def __init__(self, server: Toxiproxy, cluster: LocalCluster, members_count: int = 3) -> None:
        layout = ClusterLayout(
            dir=str(cluster.directory), base_port=cluster.base_port, nodes_per_group=members_count
        )
        self.members = tuple(node.id for node in layout.nodes)
        self._proxies: dict[tuple[str, str], Proxy] = {}
        for number, (dialler, peer) in enumerate(itertools.permutations(layout.nodes, 2)):
            self._proxies[dialler.id, peer.id] = server.create(
                name=f"{dialler.id}-{peer.id}",
                listen=f"{HOST}:{cluster.base_port + FIRST_PORT + number}",
                upstream=peer.raft,
            )

    def options(self) -> list[str]:
        """Of `scripts/cluster up`."""
        return [
            option
            for (dialler, peer), proxy in self._proxies.items()
            for option in ("--peer-dial", f"{dialler}:{peer}={proxy.listen}")
        ]

    def impair(self, sender: str, receiver: str, kind: str, **attributes: int) -> None:
        """What one member says to another, until heal(). Of one kind there is one at a time."""
        self._proxies[sender, receiver].add_toxic(type=kind, stream="upstream", attributes=attributes)
        self._proxies[receiver, sender].add_toxic(type=kind, stream="downstream", attributes=attributes)

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing of it arrives, and no connection closes. Those that were cut close when they are healed."""
        self.impair(sender, receiver, "timeout", timeout=0)

    def take_down(self, dialler: str, peer: str) -> None:
        """The connections that one member dials to another close, and it gets no new ones."""
        self._proxies[dialler, peer].disable()

    def heal(self) -> None:
        """All links."""
        for proxy in self._proxies.values():
            for toxic in proxy.toxics():
                proxy.destroy_toxic(toxic)
            if not proxy.enabled:
                proxy.enable()
