"""The listening side: accepts connections and hands their commands over, batch by batch.

uvloop or plain asyncio is the caller's choice. Frames and limits are connection.py's, the single
connection is channel.py's; here are the listening socket, the set of channels and their idle time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import count

from remoting.channel import Channel, ChannelProtocol, CommandHandler
from remoting.connection_limits import ADMITTED, CONNECTIONS_MAX, UNFINISHED_SIZE_MAX, UnfinishedFrames
from remoting.first_bytes import FirstBytesListener
from remoting.frame.connection import FRAME_SIZE_MAX, BadHeader
from remoting.listening import listen_as
from remoting.tls import ServerTls
from remoting.unread_budget import CONNECTION_UNREAD_SIZE_MAX, UNREAD_SIZE_MAX, UnreadBudget

__all__ = ["Channel", "CommandHandler", "RemotingServer"]

log = logging.getLogger(__name__)

IDLE_SECONDS = 120  # RocketMQ's serverChannelMaxIdleTimeSeconds
LOOK_INTERVAL_S = 1.0  # at what clients have not taken; where nothing is written, nobody looks


class RemotingServer:
    """The channels of one listening port, or of several. `port` may be 0 before start(); after it, it is the one that
    was bound.

    `idle_seconds`: a channel that says nothing for so long is closed; 0: none is. `admission_seconds`: one whose
    handler has not set the attribute ADMITTED by then; 0: none. Without `tls` it takes plaintext only.
    """

    def __init__(
        self,
        handler: CommandHandler,
        host: str,
        port: int,
        *,
        idle_seconds: float = IDLE_SECONDS,
        unread_size_max: int = UNREAD_SIZE_MAX,
        connection_unread_size_max: int = CONNECTION_UNREAD_SIZE_MAX,
        frame_size_max: int = FRAME_SIZE_MAX,
        unfinished_size_max: int = UNFINISHED_SIZE_MAX,
        connections_max: int = CONNECTIONS_MAX,
        admission_seconds: float = 0.0,
        backlog: int = 1024,
        tls: ServerTls | None = None,
    ) -> None:
        self._tls = tls
        self._handler = handler
        self.commands_received = handler.commands_received
        self._host = host
        self.port = port
        self._idle_seconds = idle_seconds
        self.unread = UnreadBudget(unread_size_max, connection_unread_size_max)
        self._frame_size_max = frame_size_max
        self.unfinished = UnfinishedFrames(unfinished_size_max)
        self._connections_max = connections_max
        self._refused_count = 0  # connections, since the start
        self._backlog = backlog
        self._channel_ids = count(1)
        self._channels: dict[int, Channel] = {}
        self._idle_since: dict[int, float] = {}
        self._admission_seconds = admission_seconds
        self._admission_handles: dict[int, asyncio.TimerHandle] = {}
        self._unknown: dict[
            int, Channel
        ] = {}  # all that have asked for nothing yet, and some others; the oldest first
        self._server: asyncio.Server | FirstBytesListener | None = None
        self._others: list[asyncio.Server | FirstBytesListener] = []
        self._sweep_handle: asyncio.TimerHandle | None = None
        self._look_handle: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event | None = None

    @property
    def channels(self) -> list[Channel]:
        """The open channels, oldest first."""
        return list(self._channels.values())

    def find_channel(self, channel_id: int) -> Channel | None:
        return self._channels.get(channel_id)

    def figures(self) -> dict[str, int | Mapping[str, float]]:
        return {
            "unread_bytes": self.unread.unread_size,
            "unread_closed_total": self.unread.closed_count,
            "connections": len(self._channels),
            "connections_refused_total": self._refused_count,
            "unfinished_bytes": self.unfinished.size,
            "unfinished_closed_total": self.unfinished.closed_count,
            "certificate_not_after_seconds": self._tls.certificate_ends if self._tls is not None else {},
        }

    async def start(self) -> None:
        """Bind and listen. Raises OSError, e.g. when the port is taken."""
        loop = asyncio.get_running_loop()
        self._server = await self._listen(self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self._schedule_sweep(loop)

    async def listen_also(self, port: int) -> None:
        """Listens on a further port, for the same channels. Raises OSError as start() does."""
        self._others.append(await self._listen(port))

    async def _listen(self, port: int) -> asyncio.Server | FirstBytesListener:
        return await listen_as(self._make_protocol, self._host, port, self._tls, backlog=self._backlog)

    async def close(self, flush_seconds: float = 1.0) -> None:
        """Stop listening and close all channels; what they have not sent in time is dropped."""
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
            self._sweep_handle = None
        if self._look_handle is not None:
            self._look_handle.cancel()
            self._look_handle = None
        server, self._server = self._server, None
        if server is None:
            return
        servers = [server, *self._others]
        self._others.clear()
        for listening in servers:
            listening.close()
        if self._channels:
            self._all_closed = asyncio.Event()
            for channel in self.channels:
                channel.close()
            try:
                async with asyncio.timeout(flush_seconds):
                    await self._all_closed.wait()
            except TimeoutError:
                for channel in self.channels:
                    channel.abort()
                await self._all_closed.wait()
        for listening in servers:
            await listening.wait_closed()

    def channel_opened(self, channel: Channel) -> None:
        self._channels[channel.id] = channel
        self._handler.channel_opened(channel)
        # A connection that was accepted while close() ran is nobody's any more.
        if self._server is None:
            channel.close()
            return
        self._unknown[channel.id] = channel
        if self._admission_seconds:
            self._admission_handles[channel.id] = asyncio.get_running_loop().call_later(
                self._admission_seconds, self._check_admission, channel
            )
        if len(self._channels) > self._connections_max:
            self._make_room()

    def _make_room(self) -> None:
        """Closes the oldest connection that has asked for nothing, or proved no user. At worst that is the newest: who
        only occupies places keeps nobody out.
        """
        while True:
            channel = self._unknown.pop(next(iter(self._unknown)))
            if not (ADMITTED in channel.attributes if self._admission_seconds else channel.has_asked):
                break
        self._refused_count += 1
        log.warning(
            "connection refused remote=%s: %d are open, and no more are allowed (pyDLedgerMaxConnections)",
            channel.remote_address,
            self._connections_max,
            extra={"per_connection": True},
        )
        channel.abort()

    def _check_admission(self, channel: Channel) -> None:
        if ADMITTED not in channel.attributes:
            log.info(
                "channel without a user closed remote=%s after_s=%g",
                channel.remote_address,
                self._admission_seconds,
                extra={"per_connection": True},
            )
            channel.abort()

    def responses_unreadable(self, channel: Channel, bad: list[BadHeader]) -> None:
        """To requests of ours, which end with their time."""

    def channel_paused(self, channel: Channel) -> None:
        """A peer that does not read its answers gets no further request read."""
        channel.pause_reading()

    def channel_resumed(self, channel: Channel) -> None:
        channel.resume_reading()
        self._handler.channel_resumed(channel)

    def channel_closed(self, channel: Channel) -> None:
        del self._channels[channel.id]
        self._unknown.pop(channel.id, None)
        self._idle_since.pop(channel.id, None)
        if (handle := self._admission_handles.pop(channel.id, None)) is not None:
            handle.cancel()
        try:
            self._handler.channel_closed(channel)
        finally:
            if self._all_closed is not None and not self._channels:
                self._all_closed.set()

    def _make_protocol(self) -> ChannelProtocol:
        return ChannelProtocol(
            self,
            next(self._channel_ids),
            frame_size_max=self._frame_size_max,
            pending_write_limit=self.unread.limit,
            on_write=self._written,
            on_unfinished=self.unfinished.changed,
        )

    def _written(self, size: int) -> None:
        """How much of it the client has taken at once is not asked each time: that costs more than to write it."""
        unread = self.unread
        unread.room -= size
        if unread.room < 0:
            unread.look(self.channels, asyncio.get_running_loop().time())
        if self._look_handle is None and self._server is not None:
            self._schedule_look(asyncio.get_running_loop())

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._look_handle = None
        self.unread.look(self._channels.values(), loop.time())
        if self.unread.unread_size:
            self._schedule_look(loop)

    def _schedule_look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._look_handle = loop.call_later(LOOK_INTERVAL_S, self._look, loop)

    def _schedule_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._idle_seconds:
            self._sweep_handle = loop.call_later(self._idle_seconds / 4, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for all channels; one is closed between idle_seconds and 1.25 times that."""
        now = loop.time()
        for channel in self.channels:
            if channel.is_active:
                channel.is_active = False
                self._idle_since[channel.id] = now
            elif now - self._idle_since[channel.id] >= self._idle_seconds:
                log.info(
                    "idle channel closed remote=%s idle_s=%d",
                    channel.remote_address,
                    self._idle_seconds,
                    extra={"per_connection": True},
                )
                # Whoever reads nothing would keep a polite close waiting for ever.
                channel.abort()
        self._schedule_sweep(loop)
