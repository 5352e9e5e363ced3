"""Handlers and a transport for tests of the asyncio shells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from remoting.channel import Channel
from remoting.command import RemotingCommand, encode_response


class RecordingHandler:
    """Keeps what it is told, and lets `answer` act on each command."""

    def __init__(self, answer: Callable[[Channel, RemotingCommand], None] | None = None) -> None:
        self.opened: list[Channel] = []
        self.closed: list[Channel] = []
        self.batches: list[tuple[Channel, list[RemotingCommand]]] = []
        self._answer = answer
        self._changed = asyncio.Event()

    @property
    def commands(self) -> list[RemotingCommand]:
        return [command for _, batch in self.batches for command in batch]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def channel_opened(self, channel: Channel) -> None:
        self.opened.append(channel)
        self._changed.set()

    def commands_received(self, channel: Channel, commands: list[RemotingCommand]) -> None:
        self.batches.append((channel, commands))
        self._changed.set()
        for command in commands:
            if self._answer is not None:
                self._answer(channel, command)

    def channel_paused(self, channel: Channel) -> None:
        self._changed.set()

    def channel_resumed(self, channel: Channel) -> None:
        self._changed.set()

    def channel_closed(self, channel: Channel) -> None:
        self.closed.append(channel)
        self._changed.set()


def echo(channel: Channel, command: RemotingCommand) -> None:
    channel.write(
        encode_response(command.opaque, command.serialize_type, 0, command.ext_fields, bytes(command.body))
    )


class MemoryTransport(asyncio.Transport):
    """A transport that keeps each write; the test plays the peer through `protocol`."""

    def __init__(self, protocol: asyncio.Protocol, peername: tuple[str, int] = ("10.0.0.1", 10911)) -> None:
        super().__init__(extra={"peername": peername})
        self.protocol = protocol
        self.writes: list[bytes] = []
        self.is_aborted = False
        self.is_reading_paused = False
        self._is_closing = False

    def connect(self) -> None:
        self.protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

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


class MemoryNetwork:
    """A connect function whose connections end in MemoryTransports."""

    def __init__(self) -> None:
        self.transports: list[MemoryTransport] = []
        self.targets: list[tuple[str, int]] = []

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[Any, Any]:
        self.targets.append((host, port))
        await asyncio.sleep(0)
        protocol = protocol_factory()
        transport = MemoryTransport(protocol, (host, port))
        self.transports.append(transport)
        transport.connect()
        return transport, protocol
