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

log = logging.getLogger(__name__)

Status = dict[str, Any]

RECEIVED_MAX = 64 * 1024  # of one connection before aiohttp is there
# One more, and the oldest is closed. aiohttp sets no time limit for a request, and each connection may hold a MiB.
CONNECTIONS_MAX = 64

# Status values that are numbers, as gauges.
_GAUGES = ("term", "ledger_begin", "ledger_end", "committed", "applied", "synced", "reput")


class HttpEndpoint:
    """Listens with plain asyncio; aiohttp takes each connection over."""

    def __init__(self, host: str, port: int, status: Callable[[], Status]) -> None:
        self._host = host
        self.port = port
        self._status = status
        self._server: asyncio.Server | None = None
        self._web_server: web.Server | None = None
        self._doors: list[_Door] = []
        self._import: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises OSError when the port is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._make_protocol, self._host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._import is not None:
            await self._import
        if self._web_server is not None:
            await self._web_server.shutdown(1.0)

    def _make_protocol(self) -> asyncio.Protocol:
        if self._web_server is not None:
            connections = self._web_server.connections
            if len(connections) >= CONNECTIONS_MAX:
                connections[0].force_close()
            return self._web_server()
        door = _Door()
        self._doors.append(door)
        if self._import is None:
            self._import = asyncio.get_running_loop().create_task(self._import_aiohttp())
        return door

    async def _import_aiohttp(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, "aiohttp.web")
        from aiohttp import web

        server_log = cast("logging.Logger", _ServerLog(log))
        self._web_server = web.Server(self._handle, access_log=None, logger=server_log)
        doors, self._doors = self._doors, []
        for door in doors:
            door.hand_over_to(self._web_server())

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        from aiohttp import web

        status = self._status()
        match request.path:
            case "/status":
                return web.Response(body=orjson.dumps(status), content_type="application/json")
            case "/health":
                is_healthy = status.get("failure") is None
                return web.Response(
                    text="ok\n" if is_healthy else "failed\n", status=200 if is_healthy else 503
                )
            case "/metrics":
                return web.Response(text=metrics_text(status))
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
    """A connection that came before aiohttp was there. What it says meanwhile is kept and passed on."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._transport is not None and len(self._received) > RECEIVED_MAX:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def hand_over_to(self, protocol: asyncio.Protocol) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._received:
            protocol.data_received(bytes(self._received))


def metrics_text(status: Status) -> str:
    """The numbers of a status in Prometheus' text format."""
    labels = f'group="{status["group"]}",id="{status["id"]}"'
    lines = []
    for name in _GAUGES:
        if status.get(name) is not None:
            lines.append(f"# TYPE pydledger_{name} gauge")
            lines.append(f"pydledger_{name}{{{labels}}} {status[name]}")
    lines.append("# TYPE pydledger_serving gauge")
    lines.append(f"pydledger_serving{{{labels}}} {int(bool(status['serving']))}")
    lines.append("# TYPE pydledger_watermark gauge")
    for peer, watermark in status.get("watermarks", {}).items():
        lines.append(f'pydledger_watermark{{{labels},peer="{peer}"}} {watermark}')
    return "\n".join(lines) + "\n"
