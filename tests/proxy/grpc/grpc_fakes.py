"""Clients of a GrpcServer: grpcio's for whole calls, one of single HTTP/2 frames, and bytes without a socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Any

import grpc.aio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event
from hpack import Encoder

from proxy.grpc import frames
from proxy.grpc.call import Call, Handler
from proxy.grpc.connection import GrpcConnection
from proxy.grpc.frames import END_HEADERS, HEADERS, PREFACE, frame
from proxy.grpc.server import GrpcServer

PATH = "/test.Service/Method"
FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", PATH), ("content-type", "application/grpc")]
BLOCK = Encoder().encode(FIELDS)


@contextlib.asynccontextmanager
async def serving(handlers: Mapping[str, Handler], **options: Any) -> AsyncIterator[GrpcServer]:
    server = GrpcServer(handlers, "127.0.0.1", 0, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


@contextlib.asynccontextmanager
async def grpcio_channel(server: GrpcServer) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{server.port}",
        options=[("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)],
    ) as channel:
        yield channel


async def echo(call: Call) -> None:
    while (message := await call.receive()) is not None:
        await call.send(message)


async def waits_for_ever(call: Call) -> None:
    await call.receive()
    await asyncio.get_running_loop().create_future()


async def turns(condition: Callable[[], bool]) -> None:
    """Lets the event loop turn until the condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to that")


class FrameClient:
    """An HTTP/2 client that does what a test says and nothing by itself, not even read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.events: list[Event] = []

    @classmethod
    async def connect(cls, server: GrpcServer) -> FrameClient:
        client = cls(*await asyncio.open_connection("127.0.0.1", server.port))
        client.h2.initiate_connection()
        client.flush()
        return client

    async def __aenter__(self) -> FrameClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    def flush(self, more: bytes = b"") -> None:
        self.writer.write(self.h2.data_to_send() + more)

    def request(self, path: str = PATH, *, end: bool = False, method: str = "POST", **fields: str) -> int:
        """Send the header fields of a call; underscores in names are hyphens. Returns the stream's id."""
        stream_id = self.h2.get_next_available_stream_id()
        headers = {":method": method, ":path": path, ":scheme": "http", ":authority": "test"}
        headers |= {"te": "trailers", "content-type": "application/grpc"}
        headers |= {name.replace("_", "-"): value for name, value in fields.items()}
        self.h2.send_headers(stream_id, list(headers.items()), end_stream=end)
        self.flush()
        return stream_id

    async def read(self) -> bool:
        """Read once. Returns False at the end of the connection."""
        async with asyncio.timeout(10):
            data = await self.reader.read(1 << 16)
        self.events += self.h2.receive_data(data)
        self.flush()
        return bool(data)

    async def event(self, kind: type[Event], stream_id: int | None = None) -> Any:
        """Read up to the next event of the kind, and take it."""
        while True:
            for event in self.events:
                if isinstance(event, kind) and stream_id in (None, getattr(event, "stream_id", None)):
                    self.events.remove(event)
                    return event
            if not await self.read():
                raise AssertionError(f"the connection ended without a {kind.__name__}; events: {self.events}")

    async def closed(self) -> None:
        """Read to the end of the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.read():
                pass


class Socket(asyncio.Transport):
    """A transport whose peer takes what a test lets it take."""

    def __init__(self, connection: GrpcConnection, *, reads: bool = True) -> None:
        super().__init__()
        self.written = bytearray()
        self.state = "open"
        self._connection = connection
        self._reads = reads
        self._high = 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 5) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0

    def get_write_buffer_size(self) -> int:
        return 0 if self._reads else len(self.written)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        was_below = self.get_write_buffer_size() <= self._high
        self.written += data
        if was_below and self.get_write_buffer_size() > self._high:
            self._connection.pause_writing()

    def close(self) -> None:
        if self._reads:
            self._end("closed")

    def abort(self) -> None:
        self._end("aborted")

    def _end(self, how: str) -> None:
        if self.state == "open":
            self.state = how
            self._connection.connection_lost(None)


def connected(server: GrpcServer, *, reads: bool = True) -> tuple[GrpcConnection, Socket]:
    connection = GrpcConnection(server)
    socket = Socket(connection, reads=reads)
    connection.connection_made(socket)
    connection.data_received(PREFACE + frames.settings({}))
    socket.written.clear()
    return connection, socket


def request(stream_id: int, flags: int = 0) -> bytes:
    return frame(HEADERS, END_HEADERS | flags, stream_id, BLOCK)
