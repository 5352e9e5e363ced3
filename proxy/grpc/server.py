"""The listening side: a handler for each path, and the set of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from proxy.grpc.call import GrpcError, GrpcStatus, Handler
from proxy.grpc.connection import GrpcConnection
from proxy.grpc.messages import MESSAGE_SIZE_MAX, HeldBudget
from remoting.first_bytes import FirstBytesListener
from remoting.listening import listen_as, listen_for_both
from remoting.tls import ServerTls

ALPN = ("h2",)  # for the ServerTls of a GrpcServer: clients insist on an answer
STOP_SECONDS = 30.0
IDLE_SECONDS = 120.0
LOOK_SECONDS = 1.0


class GrpcServer:
    """`handlers` by path, "/package.Service/Method". `port` may be 0 before start(); after it, it is the one bound."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        host: str,
        port: int,
        *,
        tls: ServerTls | None = None,
        hidden_metadata: Collection[str] = (),
        message_size_max: int = MESSAGE_SIZE_MAX,
        idle_seconds: float = IDLE_SECONDS,
        accept_proxy_protocol: bool = False,
    ) -> None:
        """`hidden_metadata`: names of fields that handlers never see, because clients must not set them.
        Without `tls` the port takes plaintext only. A connection without a call is closed after `idle_seconds`.
        With `accept_proxy_protocol` a load balancer may say where a client is.
        """
        self.handlers = handlers
        self.hidden_metadata = frozenset(hidden_metadata)
        self.held = HeldBudget(message_size_max=message_size_max)
        self.port = port
        self._host = host
        self.idle_seconds = idle_seconds
        self._tls = tls
        self._accept_proxy_protocol = accept_proxy_protocol
        self._connections: set[GrpcConnection] = set()
        self._server: asyncio.Server | FirstBytesListener | None = None
        self._look_handle: asyncio.TimerHandle | None = None
        self._all_closed = asyncio.Event()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        """Bind and listen. Raises OSError, for instance for a port that is taken."""
        if not self._accept_proxy_protocol:
            self._server = await listen_as(
                self._make_protocol, self._host, self.port, self._tls, backlog=1024
            )
        else:
            self._server = await listen_for_both(
                self._make_protocol,
                self._host,
                self.port,
                self._tls,
                make_for_source=self._make_protocol,
                backlog=1024,
            )
        self.port = self._server.sockets[0].getsockname()[1]
        self._look()

    async def stop(self, wait_seconds: float = STOP_SECONDS) -> None:
        """Take no more connections, and let the calls that are open end; those that do not in time are cancelled."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for connection in list(self._connections):
            connection.retire()
        try:
            async with asyncio.timeout(wait_seconds):
                await self._wait_all_closed()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._wait_all_closed()
        if self._look_handle is not None:
            self._look_handle.cancel()
        await server.wait_closed()

    def make_room(self) -> None:
        """End the call that holds most.

        So a client that leaves large messages unfinished, or does not read, does not lock out others.
        """
        calls = ((stream, connection) for connection in self._connections for stream in connection.calls)
        stream, connection = max(calls, key=lambda pair: pair[0].held_size)
        held = (
            f"the server holds {self.held.size} bytes of messages, and this call {stream.held_size} of them"
        )
        connection.refuse(stream, GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"{held}: call again later"))

    def connection_opened(self, connection: GrpcConnection) -> None:
        self._connections.add(connection)
        if self._server is None:
            connection.retire()  # it was accepted while stop() began

    def connection_closed(self, connection: GrpcConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()

    async def _wait_all_closed(self) -> None:
        while self._connections:
            self._all_closed.clear()
            await self._all_closed.wait()

    def _make_protocol(self, source: str | None = None) -> GrpcConnection:
        return GrpcConnection(self, source)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in list(self._connections):
            connection.look(loop.time())
        self._look_handle = loop.call_later(LOOK_SECONDS, self._look)
