"""The Raft port with TLS: each side shows a certificate of an authority that the other one trusts.

It stands beside the cluster secret, and does not take its place: a certificate says that somebody is of the cluster,
the handshake which member it is.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final

from dledger.door import Door, Listening, PlainDoor
from remoting.address import join
from remoting.client_tls import ClientTls
from remoting.listening import listen_as
from remoting.tls import ServerTls, TlsMode, reason_of
from remoting.tls_settings import TlsConfig

# A member that takes the connection and says nothing must not hold up the next dial.
HANDSHAKE_SECONDS: Final = 2.0


def peer_door(mode: TlsMode, config: TlsConfig) -> Door:
    """Make the door as `pyDLedgerPeerTls` says. Raises TlsError for certificates that cannot be used."""
    if mode is TlsMode.DISABLED:
        return PlainDoor()
    trust = config.server_trust_cert_path
    own = config.server_files
    server = ServerTls(
        mode,
        own,
        limits=config.limits,
        trust_cert_path=trust,
        needs_client=True,
        mode_key="pyDLedgerPeerTls",
    )
    client = ClientTls(
        trust_cert_path=trust,
        files=config.client_files or own,
        checks_host_name=config.check_host_name,
        limits=config.limits,
        handshake_seconds=HANDSHAKE_SECONDS,
    )
    return TlsDoor(mode, server, client)


class TlsDoor:
    """With `permissive` plaintext is taken as well, and a peer at which TLS has failed is dialled in plaintext next: a
    group is moved over member by member. Who can cut connections can then keep it in plaintext.
    """

    def __init__(self, mode: TlsMode, server: ServerTls, client: ClientTls) -> None:
        self._mode = mode
        self._server = server
        self._client = client
        self._plain_next: set[str] = set()  # addresses

    async def listen(self, make_protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> Listening:
        return await listen_as(make_protocol, host, port, self._server)

    async def connect(self, make_protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> Any:
        address = join(host, port)
        if address in self._plain_next:
            self._plain_next.discard(address)
            return await PlainDoor().connect(make_protocol, host, port)
        try:
            return await self._client.connect(make_protocol, host, port)
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            if self._mode is TlsMode.PERMISSIVE:
                self._plain_next.add(address)
            raise ConnectionError(f"no TLS: {reason_of(error)}") from None
