"""Handlers and a transport for tests of the asyncio shells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from remoting.channel import Channel
from remoting.frame.command import RemotingCommand, encode_response
from remoting.frame.connection import BadHeader, RemotingConnection


class Watched:
    """What tests wait on: its user says when something has changed, and conditions are looked at then."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class RecordingHandler(Watched):
    """Keeps what it is told, and lets `answer` act on each command."""

    def __init__(self, answer: Callable[[Channel, RemotingCommand], None] | None = None) -> None:
        super().__init__()
        self.opened: list[Channel] = []
        self.closed: list[Channel] = []
        self.batches: list[tuple[Channel, list[RemotingCommand]]] = []
        self._answer = answer

    @property
    def commands(self) -> list[RemotingCommand]:
        return [command for _, batch in self.batches for command in batch]

    def channel_opened(self, channel: Channel) -> None:
        self.opened.append(channel)
        self.changed()

    def commands_received(self, channel: Channel, commands: list[RemotingCommand]) -> None:
        self.batches.append((channel, commands))
        self.changed()
        for command in commands:
            if self._answer is not None:
                self._answer(channel, command)

    def responses_unreadable(self, channel: Channel, bad: list[BadHeader]) -> None:
        self.changed()

    def channel_paused(self, channel: Channel) -> None:
        self.changed()

    def channel_resumed(self, channel: Channel) -> None:
        self.changed()

    def channel_closed(self, channel: Channel) -> None:
        self.closed.append(channel)
        self.changed()


def echo(channel: Channel, command: RemotingCommand) -> None:
    channel.write(
        encode_response(command.opaque, command.serialize_type, 0, command.ext_fields, bytes(command.body))
    )


class MemoryTransport(asyncio.Transport):
    """A transport that keeps each write; the test plays the peer through `protocol`."""

    def __init__(
        self,
        protocol: asyncio.Protocol,
        peername: tuple[str, int],
        written: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(extra={"peername": peername})
        self.protocol = protocol
        self._written = written
        self.writes: list[bytes] = []
        self.is_aborted = False
        self.is_reading_paused = False
        self._is_closing = False

    def connect(self) -> None:
        self.protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        self._written()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.is_aborted = True
        self.close()


class MemoryNetwork(Watched):
    """A connect function whose connections end in MemoryTransports; dials wait while `accepts` is clear."""

    def __init__(self) -> None:
        super().__init__()
        self.transports: list[MemoryTransport] = []
        self.targets: list[tuple[str, int]] = []
        self.accepts = asyncio.Event()
        self.accepts.set()

    async def sent(self, count: int, at: int = 0) -> list[RemotingCommand]:
        """What was written to connection `at`, once it is that many commands."""
        commands: list[RemotingCommand] = []

        def enough() -> bool:
            commands[:] = RemotingConnection().receive_data(b"".join(self.transports[at].writes))
            return len(commands) >= count

        await self.until(lambda: len(self.transports) > at and enough())
        assert len(commands) == count
        return commands

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[Any, Any]:
        self.targets.append((host, port))
        self.changed()
        await self.accepts.wait()
        protocol = protocol_factory()
        transport = MemoryTransport(protocol, (host, port), self.changed)
        self.transports.append(transport)
        transport.connect()
        return transport, protocol
