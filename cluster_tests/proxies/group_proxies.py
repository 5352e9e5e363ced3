"""What lies between the processes of a group under a fault run: proxies of one server, made when they are asked for."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from proxies.client_links import ClientLinks
from proxies.links import SERVER_PORT, Links
from proxies.toxiproxy_server import ToxiproxyServer, running_server


class GroupProxies:
    """To be closed, when the group is down. Asking skips as a test does where there is no toxiproxy."""

    def __init__(
        self,
        log: Path,
        base_port: int,
        make_links: Callable[[ToxiproxyServer], Links],
        client_addresses: Mapping[str, str],
    ) -> None:
        """`log`: of the server. `base_port`: of the group's block. `client_addresses`: members, and where each hears
        clients.
        """
        self._log = log
        self._base_port = base_port
        self._make_links = make_links
        self._client_addresses = client_addresses
        self._around = ExitStack()
        self._server: ToxiproxyServer | None = None
        self._links: Links | None = None
        self._client_links: ClientLinks | None = None

    def __enter__(self) -> "GroupProxies":
        return self

    def __exit__(self, *_: object) -> None:
        self._around.close()

    def links(self) -> Links:
        """Between the members, each direction by itself."""
        if self._links is None:
            self._links = self._around.enter_context(self._make_links(self._running_server()))
        return self._links

    def client_links(self) -> ClientLinks:
        """From clients to members."""
        if self._client_links is None:
            self._client_links = ClientLinks(self._running_server(), self._client_addresses, self._base_port)
        return self._client_links

    @property
    def dials(self) -> Mapping[tuple[str, str], str]:
        """(dialler, peer): host:port that it is to dial; of links that nobody has asked for, none."""
        return {} if self._links is None else self._links.dials

    @property
    def client_dials(self) -> dict[str, str]:
        """Likewise, what clients are to dial instead of what."""
        return {} if self._client_links is None else self._client_links.dials

    def heal(self) -> None:
        """All that there are, also when one cannot be."""
        with ExitStack() as each:
            for made in (self._links, self._client_links):
                if made is not None:
                    each.callback(made.heal)

    def _running_server(self) -> ToxiproxyServer:
        if self._server is None:
            port = self._base_port + SERVER_PORT
            self._server = self._around.enter_context(running_server(self._log, port))
        return self._server
