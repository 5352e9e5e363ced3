"""One connection as its users see it, and the protocol class that drives it for server and client.

A read of the socket is one call of `commands_received` with every command in it. While more bytes
wait to be written than the limit, the channel is `paused`; what follows from that is its owner's
decision, because a server then stops reading and a client that did so too would lock both up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from remoting.address import join
from remoting.codes import ResponseCode
from remoting.connection_limits import COUNTED_FROM
from remoting.errors import RemotingProtocolError
from remoting.frame.command import RemotingCommand, response
from remoting.frame.connection import FRAME_SIZE_MAX, BadHeader, RemotingConnection

log = logging.getLogger(__name__)

_PER_CONNECTION = {"per_connection": True}  # anybody may open as many as they like: mq/log_limit.py

PENDING_WRITE_LIMIT = 8 * 1024 * 1024
# A TLS transport passes on all that it is given at once, and what the socket below has not sent is in no figure of it.
# Given pieces, it keeps what follows the one with which the socket is full.
TLS_PIECE_SIZE = 64 * 1024


class CommandHandler(Protocol):
    """Who acts on the commands of a set of channels. All calls come from the event loop's thread."""

    def channel_opened(self, channel: Channel) -> None: ...

    def commands_received(self, channel: Channel, commands: list[RemotingCommand]) -> None:
        """Called once per read, with all commands in it (never none)."""

    def channel_resumed(self, channel: Channel) -> None:
        """The peer has taken most of what waited. Not called when the channel closes instead."""

    def channel_closed(self, channel: Channel) -> None:
        """Called once, after the last commands_received. Pauses end here as well."""


class ChannelOwner(CommandHandler, Protocol):
    """A CommandHandler that also keeps the balance between what is read and what is written."""

    def responses_unreadable(self, channel: Channel, bad: list[BadHeader]) -> None:
        """Responses whose headers cannot be read; requests like that have been answered already."""

    def channel_paused(self, channel: Channel) -> None:
        """More than the limit waits to be written."""


class Channel:
    """Invariant: what was written before close() is still sent; what comes after it goes nowhere.

    `id` is unique among the channels of one server or client. `attributes` belong to the user.
    `is_active` is raised by each read and each write that the peer made room for; the owner's idle
    sweep lowers it.
    """

    __slots__ = (
        "_on_write",
        "_reading_pauses",
        "_transport",
        "attributes",
        "has_asked",
        "id",
        "is_active",
        "is_open",
        "is_tls",
        "paused",
        "remote_address",
        "written_size",
    )

    def __init__(
        self,
        channel_id: int,
        remote_address: str,
        transport: asyncio.Transport,
        on_write: Callable[[int], None] | None = None,
    ) -> None:
        """`on_write` is told how many bytes have just been queued for writing."""
        self.id = channel_id
        self.remote_address = remote_address
        self.attributes: dict[str, object] = {}
        self.is_open = True
        self.is_active = True
        self.has_asked = False  # a whole command has come
        self.paused = False
        self.written_size = 0  # bytes, taken by the peer or not
        self._transport = transport
        self._reading_pauses = 0
        self.is_tls = transport.get_extra_info("sslcontext") is not None
        self._on_write = on_write

    def write(self, data: bytes | Sequence[bytes | memoryview]) -> None:
        """Queue whole frames, in one piece or in several that follow each other. Never blocks."""
        if not self.is_open:
            return
        if not self.paused:
            self.is_active = True
        if self.is_tls:
            size = self._write_pieces(data if isinstance(data, bytes) else b"".join(data))
        elif isinstance(data, bytes):
            size = len(data)
            self._transport.write(data)
        else:
            size = sum(map(len, data))
            self._transport.writelines(data)
        self.written_size += size
        if self._on_write is not None:
            self._on_write(size)

    def _write_pieces(self, data: bytes) -> int:
        if len(data) <= TLS_PIECE_SIZE:
            self._transport.write(data)
        else:
            view = memoryview(data)
            for start in range(0, len(data), TLS_PIECE_SIZE):
                self._transport.write(view[start : start + TLS_PIECE_SIZE])
        return len(data)

    @property
    def pending_write_size(self) -> int:
        """Bytes that the peer has not taken yet; also those that are still sent after close()."""
        return self._transport.get_write_buffer_size()

    def limit_pending_writes(self, size: int) -> None:
        """From now on it is paused while more than that waits to be written."""
        if self.is_open:
            self._transport.set_write_buffer_limits(high=size)

    def pause_reading(self) -> None:
        """Leave what the peer sends in the kernel's buffers, which pushes back on it, until each call has had its
        resume_reading().
        """
        self._reading_pauses += 1
        if self._reading_pauses == 1 and self.is_open:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._reading_pauses -= 1
        if not self._reading_pauses and self.is_open:
            self._transport.resume_reading()

    def close(self) -> None:
        """Send what is pending, then close."""
        if self.is_open:
            self.is_open = False
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what is pending is lost."""
        self.is_open = False
        self._transport.abort()

    def __repr__(self) -> str:
        return f"Channel(id={self.id}, remote_address={self.remote_address!r}, is_open={self.is_open})"


class ChannelProtocol(asyncio.Protocol):
    """Feeds one transport's bytes to a RemotingConnection and its commands to its owner."""

    def __init__(
        self,
        owner: ChannelOwner,
        channel_id: int,
        *,
        frame_size_max: int = FRAME_SIZE_MAX,
        pending_write_limit: int = PENDING_WRITE_LIMIT,
        on_write: Callable[[int], None] | None = None,
        on_unfinished: Callable[[Channel, int], None] | None = None,
    ) -> None:
        """`on_unfinished` is told how much there is of a large frame that is not whole yet, and 0 at its end."""
        self._owner = owner
        self._on_write = on_write
        self._on_unfinished = on_unfinished
        self._told_unfinished = 0
        self._channel_id = channel_id
        self._pending_write_limit = pending_write_limit
        self._connection = RemotingConnection(frame_size_max)
        self._channel: Channel | None = None

    @property
    def channel(self) -> Channel:
        assert self._channel is not None, "a channel exists from connection_made on"
        return self._channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance: uvloop's transports are of no asyncio class.
        stream = cast("asyncio.Transport", transport)
        stream.set_write_buffer_limits(high=self._pending_write_limit)
        remote_address = _address(stream.get_extra_info("peername"))
        self._channel = Channel(self._channel_id, remote_address, stream, self._on_write)
        self._owner.channel_opened(self._channel)

    def data_received(self, data: bytes) -> None:
        channel = self._channel
        assert channel is not None, "data comes after connection_made"
        channel.is_active = True
        connection = self._connection
        try:
            commands = connection.receive_data(data)
        except RemotingProtocolError as error:
            log.warning("bad frame from=%s reason=%s", channel.remote_address, error, extra=_PER_CONNECTION)
            self._hand_over(channel, error.commands)
            self._refuse(channel, connection.bad_headers)
            channel.close()
            return
        self._hand_over(channel, commands)
        if connection.bad_headers:
            self._refuse(channel, connection.bad_headers)
        if commands and self._told_unfinished:
            self._tell_unfinished(channel, 0)  # the next frame begins now
        size = connection.pending_size
        if size >= COUNTED_FROM or self._told_unfinished:
            self._tell_unfinished(channel, size if size >= COUNTED_FROM and channel.is_open else 0)

    def _tell_unfinished(self, channel: Channel, size: int) -> None:
        if self._on_unfinished is not None and size != self._told_unfinished:
            self._told_unfinished = size
            self._on_unfinished(channel, size)

    def _refuse(self, channel: Channel, bad: list[BadHeader]) -> None:
        if not bad:
            return
        # One line for all of a read: a client that sends one such header may send thousands.
        log.warning(
            "%d bad headers from=%s first=%s",
            len(bad),
            channel.remote_address,
            bad[0].reason,
            extra=_PER_CONNECTION,
        )
        told = [(item.command, item.reason) for item in bad if item.command is not None]
        answers = [
            response(command, ResponseCode.SYSTEM_ERROR, reason).encode()
            for command, reason in told
            if not command.is_response and not command.is_oneway
        ]
        if answers:
            channel.write(answers)
        if any(command.is_response for command, _ in told):
            self._owner.responses_unreadable(channel, bad)

    def _hand_over(self, channel: Channel, commands: list[RemotingCommand]) -> None:
        # After close() the loop may still deliver what had been read; its answers could not be written.
        if not commands or not channel.is_open:
            return
        channel.has_asked = True
        try:
            self._owner.commands_received(channel, commands)
        except Exception:
            # A handler's defect costs this connection, where the commands' fate is unknown, and no other.
            log.exception("handler failed remote=%s commands=%d", channel.remote_address, len(commands))
            channel.abort()

    def pause_writing(self) -> None:
        self.channel.paused = True
        self._owner.channel_paused(self.channel)

    def resume_writing(self) -> None:
        channel = self.channel
        channel.paused = False
        channel.is_active = True
        if channel.is_open:
            self._owner.channel_resumed(channel)

    def connection_lost(self, exc: Exception | None) -> None:
        channel = self.channel
        channel.is_open = False
        channel.paused = False
        self._tell_unfinished(channel, 0)
        self._owner.channel_closed(channel)


def _address(peername: object) -> str:
    """`ip:port`. A client that reached an IPv6 socket by IPv4 is known by its IPv4 address, as in Java."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        return join(str(peername[0]).removeprefix("::ffff:"), peername[1])
    return str(peername)
