"""The calling side: one connection per address, many requests on it at a time.

Connections are made when first needed and again after they ended. Requests of one turn of the event
loop leave in one write. Responses find their request by opaque alone, in any order; a request that
the peer sends goes to `on_request`. Nothing but the running loop's time is used, and the way to
connect can be injected.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from remoting.address import AddressError, parse_address
from remoting.channel import PENDING_WRITE_LIMIT, Channel, ChannelProtocol
from remoting.errors import (
    RemotingAnswerError,
    RemotingClosedError,
    RemotingConnectError,
    RemotingError,
    RemotingSendError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from remoting.frame.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from remoting.frame.connection import FRAME_SIZE_MAX, BadHeader
from remoting.tls import no_tls, why_closed

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3.0
OPAQUE_MAX = 0x7FFFFFFF

# As loop.create_connection: (protocol_factory, host, port) -> (transport, protocol).
Connect = Callable[[Callable[[], asyncio.Protocol], str, int], Awaitable[tuple[Any, Any]]]


class RemotingClient:
    """Invariant: each invoke ends exactly once, with a response or one of this package's errors."""

    def __init__(
        self,
        *,
        on_request: Callable[[Channel, RemotingCommand], None] | None = None,
        on_close: Callable[[str], None] | None = None,
        connect: Connect | None = None,
        before_request: Callable[[RemotingCommand], None] | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        pending_write_limit: int = PENDING_WRITE_LIMIT,
        frame_size_max: int = FRAME_SIZE_MAX,
    ) -> None:
        """`on_request` gets requests of peers; without it they are dropped. `on_close` gets the address
        of each connection that ended, whoever ended it. `before_request` may change each request before it is encoded,
        for example sign it.
        """
        self._before_request = before_request
        self._on_request = on_request
        self._on_close = on_close
        self._connect = connect
        self._connect_timeout_s = connect_timeout_s
        self._pending_write_limit = pending_write_limit
        self._frame_size_max = frame_size_max
        self._connections: dict[str, _Connection] = {}
        self._connecting: dict[str, asyncio.Task[_Connection]] = {}
        self._channel_ids = count(1)
        self._opaque = 0
        self._is_closed = False

    async def invoke(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and wait for its response. The command's opaque is replaced by a fresh one.

        Raises RemotingConnectError or RemotingTooMuchRequestError when it was surely not sent, and
        RemotingSendError, RemotingClosedError or RemotingTimeoutError when its outcome is unknown.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        connection = self._connections.get(address)
        if connection is None or not connection.takes_writes:
            connection = await self._ready(address, deadline)
        command.opaque = opaque = self._next_opaque()
        (answer,) = await connection.call({opaque: self._encoded(command)}, deadline)
        if isinstance(answer, RemotingError):
            raise answer
        return answer

    async def invoke_many(
        self, address: str, commands: Sequence[RemotingCommand], timeout_s: float
    ) -> list[RemotingCommand | RemotingError]:
        """Send requests together and wait for the end of each: its response, or what `invoke` would raise.

        One wait and one timer for all of them, so that a sender of many small requests pays for neither.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        connection = self._connections.get(address)
        try:
            if connection is None or not connection.takes_writes:
                connection = await self._ready(address, deadline)
        except RemotingError as error:
            return [error] * len(commands)
        frames = {}
        for command in commands:
            command.opaque = opaque = self._next_opaque()
            frames[opaque] = self._encoded(command)
        return await connection.call(frames, deadline)

    async def invoke_oneway(
        self, address: str, command: RemotingCommand, timeout_s: float = CONNECT_TIMEOUT_S
    ) -> None:
        """Send a request that nobody answers. Returns when it is queued for writing.

        Raises RemotingConnectError or RemotingTooMuchRequestError.
        """
        connection = self._connections.get(address)
        if connection is None or not connection.takes_writes:
            connection = await self._ready(address, asyncio.get_running_loop().time() + timeout_s)
        command.opaque = opaque = self._next_opaque()
        command.flag |= ONEWAY_FLAG
        connection.write(opaque, self._encoded(command))

    def close_connection(self, address: str) -> None:
        """Close the connection to an address, if there is one. Requests that wait on it fail."""
        connection = self._connections.get(address)
        if connection is not None:
            connection.close()

    def abort_connection(self, address: str) -> None:
        """As close_connection, but for a peer that may have stopped reading: what it has not taken is lost."""
        connection = self._connections.get(address)
        if connection is not None:
            connection.abort()

    async def close(self, flush_seconds: float = 1.0) -> None:
        """Close all connections; requests that wait fail with RemotingClosedError."""
        self._is_closed = True
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections = list(self._connections.values())
        for connection in connections:
            connection.close()
        try:
            async with asyncio.timeout(flush_seconds):
                for connection in connections:
                    await connection.closed.wait()
        except TimeoutError:
            for connection in connections:
                connection.abort()
            for connection in connections:
                await connection.closed.wait()

    def _connection_opened(self, address: str, connection: _Connection) -> None:
        self._connections[address] = connection

    def _connection_closed(self, address: str, connection: _Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]
        if self._on_close is not None:
            self._on_close(address)

    def _request_received(self, channel: Channel, command: RemotingCommand) -> None:
        if self._on_request is None:
            log.debug("request dropped remote=%s code=%d", channel.remote_address, command.code)
        else:
            self._on_request(channel, command)

    def _encoded(self, command: RemotingCommand) -> bytes:
        if self._before_request is not None:
            self._before_request(command)
        return command.encode()

    def _next_opaque(self) -> int:
        self._opaque = opaque = (self._opaque + 1) & OPAQUE_MAX
        return opaque

    async def _ready(self, address: str, deadline: float) -> _Connection:
        """A connection that takes writes now, made if there is none."""
        while True:
            if self._is_closed:
                raise RemotingConnectError(f"{address}: the client is closed")
            connection = self._connections.get(address)
            try:
                async with asyncio.timeout_at(deadline):
                    if connection is None:
                        connection = await self._connected(address)
                    elif connection.takes_writes:
                        return connection
                    elif connection.is_closing:
                        await connection.closed.wait()
                    else:
                        await connection.writable.wait()
            except TimeoutError as error:
                if connection is None:
                    raise RemotingConnectError(f"{address}: no connection in time") from error
                raise RemotingTooMuchRequestError(f"{address}: the peer takes no more bytes") from error
            # It may have ended, or filled up again, between the wake-up and now.
            if connection.takes_writes:
                return connection

    async def _connected(self, address: str) -> _Connection:
        task = self._connecting.get(address)
        # One that is done has still to be taken out, and its connection may have been lost since. To wait for it is to
        # go on at once: whoever did so again and again would keep the loop from ever taking it out.
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(self._open(address))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._opened(address, done))
        # Whoever gives up waiting must not take the connection from the others.
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._is_closed:
                raise RemotingConnectError(f"{address}: the client is closed") from None
            raise

    def _opened(self, address: str, task: asyncio.Task[_Connection]) -> None:
        if self._connecting.get(address) is task:
            del self._connecting[address]
        if not task.cancelled():
            task.exception()  # looked at here, as every waiter may have gone

    async def _open(self, address: str) -> _Connection:
        try:
            parsed = parse_address(address)
        except AddressError as error:
            raise RemotingConnectError(f"{error}: write host:port") from None
        connect = self._connect or asyncio.get_running_loop().create_connection
        connection = _Connection(self, address)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await connect(
                    lambda: ChannelProtocol(
                        connection,
                        next(self._channel_ids),
                        frame_size_max=self._frame_size_max,
                        pending_write_limit=self._pending_write_limit,
                    ),
                    parsed.host,
                    parsed.port,
                )
        except (OSError, TimeoutError, ValueError) as error:
            if isinstance(error, ssl.SSLError):
                raise no_tls(address, error) from error
            raise RemotingConnectError(f"{address}: {_reason(error)}") from error
        return connection


def _reason(error: Exception) -> str:
    """Without the address, which asyncio repeats in its own words."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # a name that cannot be resolved has numbers of its own
    return str(error) or "connect timed out"


class _Call:
    """Requests that one caller waits for. `ends` holds a request's opaque from the start and its end later."""

    __slots__ = ("ends", "future", "left")

    def __init__(self, future: asyncio.Future[None], opaques: Iterable[int]) -> None:
        self.future = future
        self.ends: dict[int, RemotingCommand | RemotingError | None] = dict.fromkeys(opaques)
        self.left = len(self.ends)

    def end(self, opaque: int, how: RemotingCommand | RemotingError) -> None:
        self.ends[opaque] = how
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(None)


class _Connection:
    """One connection: the requests that wait on it, and the frames that leave at the end of this turn.

    It owns its channel. Invariant: a request is in `_waiting` from before it is written until its
    end is known, and its frame is in `_unsent` until the transport has it.
    """

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, _Call] = {}
        self._unsent: dict[int, bytes] = {}
        self._has_heard = False
        self.channel: Channel | None = None
        self.writable = asyncio.Event()
        self.closed = asyncio.Event()

    @property
    def takes_writes(self) -> bool:
        return self.channel is not None and self.channel.is_open and not self.channel.paused

    @property
    def is_closing(self) -> bool:
        return self.channel is not None and not self.channel.is_open

    async def call(
        self, frames: Mapping[int, bytes], deadline: float
    ) -> list[RemotingCommand | RemotingError]:
        """The end of each request, in the order of `frames` (by opaque)."""
        if not frames:
            return []
        call = _Call(self._loop.create_future(), frames)
        for opaque, frame in frames.items():
            self._waiting[opaque] = call
            self.write(opaque, frame)
        timer = self._loop.call_at(deadline, self._expire, call)
        try:
            await call.future
        finally:
            timer.cancel()
            if call.left:
                for opaque in frames:
                    self._waiting.pop(opaque, None)
        return [end for end in call.ends.values() if end is not None]

    def write(self, opaque: int, frame: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent[opaque] = frame

    def flush(self) -> None:
        if self._unsent and self.channel is not None and self.channel.is_open:
            self.channel.write(list(self._unsent.values()))
            self._unsent.clear()

    def close(self) -> None:
        self.flush()
        if self.channel is not None:
            self.channel.close()

    def abort(self) -> None:
        if self.channel is not None:
            self.channel.abort()

    def _expire(self, call: _Call) -> None:
        for opaque, end in call.ends.items():
            if end is None:
                self._waiting.pop(opaque, None)
                call.end(
                    opaque, RemotingTimeoutError(f"{self._address}: no response to opaque {opaque} in time")
                )

    def channel_opened(self, channel: Channel) -> None:
        self.channel = channel
        self.writable.set()
        self._client._connection_opened(self._address, self)

    def commands_received(self, channel: Channel, commands: list[RemotingCommand]) -> None:
        self._has_heard = True
        for command in commands:
            if command.flag & RESPONSE_FLAG:
                call = self._waiting.pop(command.opaque, None)
                # None: it came after its timeout.
                if call is not None:
                    call.end(command.opaque, command)
            else:
                self._client._request_received(channel, command)

    def responses_unreadable(self, channel: Channel, bad: list[BadHeader]) -> None:
        for command, reason in bad:
            call = (
                self._waiting.pop(command.opaque, None)
                if command is not None and command.is_response
                else None
            )
            if command is not None and call is not None:
                call.end(command.opaque, RemotingAnswerError(f"{self._address}: a bad response: {reason}"))

    def channel_paused(self, channel: Channel) -> None:
        self.writable.clear()

    def channel_resumed(self, channel: Channel) -> None:
        self.writable.set()

    def _guess(self, channel: Channel) -> str:
        """Why a peer may have closed a connection on which it has said nothing."""
        return "" if self._has_heard else why_closed(is_tls=channel.is_tls)

    def channel_closed(self, channel: Channel) -> None:
        waiting, self._waiting = self._waiting, {}
        for opaque, call in waiting.items():
            error: RemotingError
            if opaque in self._unsent:
                error = RemotingSendError(
                    f"{self._address}: the connection ended while request {opaque} was sent"
                )
            else:
                error = RemotingClosedError(
                    f"{self._address}: the connection ended before request {opaque} was answered{self._guess(channel)}"
                )
            call.end(opaque, error)
        self._unsent.clear()
        self.writable.set()
        self.closed.set()
        self._client._connection_closed(self._address, self)
