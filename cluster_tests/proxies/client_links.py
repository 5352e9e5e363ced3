"""The links from the clients of a fault run to the members, each member with a proxy of its own.

Routes name the members' own addresses, and it is the clients' processes that dial the proxies instead: `dials` is what
they are given (workload/client_process.py). Any client of these processes goes that way, whatever it is.
"""

from collections.abc import Mapping

from proxies import client_probe
from proxies.impaired_proxies import ImpairedProxies, Impairment
from proxies.toxiproxy_server import ToxiproxyServer

from mq.cluster_layout import HOST

# Within the cluster's block of ports, behind those of links.py.
FIRST_PORT = 76


class ClientLinks:
    """Several threads may call at once. The server is not its own."""

    ask = staticmethod(client_probe.ask)

    def __init__(self, server: ToxiproxyServer, straight: Mapping[str, str], base_port: int) -> None:
        """`straight`: members, and where each hears clients. `base_port`: of the group's block."""
        self.members = tuple(straight)
        self.straight = dict(straight)  # past the proxies
        names = {member: f"clients-{member}" for member in straight}
        for number, (member, name) in enumerate(names.items()):
            server.create(name, f"{HOST}:{base_port + FIRST_PORT + number}", straight[member])
        self._proxies = ImpairedProxies(server, names)

    @property
    def dials(self) -> dict[str, str]:
        """What clients are to dial instead of what, host:port each."""
        return {self.straight[member]: address for member, address in self._proxies.addresses.items()}

    def address(self, member: str) -> str:
        """host:port of its proxy."""
        return self._proxies.address(member)

    def impair(self, member: str, stream: str, kind: str, **attributes: int) -> Impairment:
        """`stream`: "upstream" is what clients say, "downstream" what they hear."""
        return self._proxies.impair({member: stream}, kind, **attributes)

    def take_down(self, member: str) -> Impairment:
        """Connections to it close, and no client gets a new one."""
        return self._proxies.take_down(member)

    def heal(self) -> None:
        """All of them."""
        self._proxies.heal()
