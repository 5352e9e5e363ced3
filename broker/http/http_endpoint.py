"""/status, /health and /metrics over HTTP.

aiohttp is half of a broker's memory, so it is imported when the first connection comes, in a thread, while that
connection waits.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import orjson

if TYPE_CHECKING:
    from aiohttp import web

from remoting.first_bytes import FirstBytesListener
from remoting.listening import listen_as
from remoting.tls import ServerTls

log = logging.getLogger(__name__)

Status = dict[str, Any]

# Of one connection at once: no GET has more. aiohttp takes milliseconds, and several times the memory, to find out that
# the 256 KiB of a full read are no request; a few such clients kept the event loop for seconds.
RECEIVED_MAX = 16 * 1024
# One more, and the oldest is closed: aiohttp sets no time limit for a request.
CONNECTIONS_MAX = 64


class HttpEndpoint:
    """Listens with plain asyncio; aiohttp takes each connection over."""

    def __init__(
        self,
        host: str,
        port: int,
        status: Callable[[], Status],
        metrics: Callable[[], str],
        tls: ServerTls | None = None,
    ) -> None:
        """`metrics`: in Prometheus' text format. Without `tls` it takes plaintext only."""
        self._tls = tls
        self._host = host
        self.port = port
        self._status = status
        self._metrics = metrics
        self._server: asyncio.Server | FirstBytesListener | None = None
        self._web_server: web.Server | None = None
        self._doors: list[_Door] = []
        self._import: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises OSError when the port is taken."""
        self._server = await listen_as(self._make_protocol, self._host, self.port, self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._import is not None:
            await self._import
        if self._web_server is not None:
            await self._web_server.shutdown(1.0)

    def _make_protocol(self) -> asyncio.Protocol:
        door = _Door(self._doors)
        if self._web_server is not None:
            door.hand_over_to(self._web_server())
        elif self._import is None:
            self._import = asyncio.get_running_loop().create_task(self._import_aiohttp())
        return door

    async def _import_aiohttp(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, "aiohttp.web")
        from aiohttp import web

        server_log = cast("logging.Logger", _ServerLog(log))
        self._web_server = web.Server(self._handle, access_log=None, logger=server_log)
        for door in self._doors:
            door.hand_over_to(self._web_server())

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        from aiohttp import web

        match request.path:
            case "/status":
                return web.Response(body=orjson.dumps(self._status()), content_type="application/json")
            case "/health":
                is_healthy = self._status().get("failure") is None
                return web.Response(
                    text="ok\n" if is_healthy else "failed\n", status=200 if is_healthy else 503
                )
            case "/metrics":
                return web.Response(text=self._metrics())
        return web.Response(text="try /status, /health or /metrics\n", status=404)


class _ServerLog(logging.LoggerAdapter[logging.Logger]):
    """aiohttp's log without the requests that are none: it would write each with a stack and all its bytes, and
    anybody could fill the disk by it. They are answered 400, and that is all.
    """

    def exception(self, msg: object, *args: object, exc_info: Any = True, **kwargs: Any) -> None:
        from aiohttp.http_exceptions import HttpProcessingError

        if not isinstance(exc_info, HttpProcessingError):
            super().exception(msg, *args, exc_info=exc_info, **kwargs)


class _Door(asyncio.Protocol):
    """One connection. What it says is kept until aiohttp is there, and passed on from then.

    `doors` are the open ones, the oldest first.
    """

    def __init__(self, doors: list[_Door]) -> None:
        self._doors = doors
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._handler: asyncio.Protocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast("asyncio.Transport", transport)
        if len(self._doors) >= CONNECTIONS_MAX:
            self._doors.pop(0).abort()
        self._doors.append(self)
        if self._handler is not None:
            self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if len(self._received) + len(data) > RECEIVED_MAX:
            self.abort()
        elif self._handler is not None:
            self._handler.data_received(data)
        else:
            self._received += data

    def eof_received(self) -> bool | None:
        return self._handler.eof_received() if self._handler is not None else None

    def pause_writing(self) -> None:
        if self._handler is not None:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        if self._handler is not None:
            self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self in self._doors:
            self._doors.remove(self)
        if self._handler is not None:
            self._handler.connection_lost(exc)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def hand_over_to(self, handler: asyncio.Protocol) -> None:
        """Before the connection is made, or once after."""
        transport = self._transport
        if transport is not None and transport.is_closing():
            return
        self._handler = handler
        if transport is not None:
            handler.connection_made(transport)
            if self._received:
                handler.data_received(bytes(self._received))
                self._received.clear()
