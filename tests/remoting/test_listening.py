"""All addresses of a machine, as a JVM listens at them."""

import asyncio
import errno
import socket

import pytest

from remoting import listening
from remoting.channel import Channel
from remoting.frame.command import RemotingCommand
from remoting.server import RemotingServer
from tests.free_ports import free_ports


class Guests:
    """Who has connected, by address."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.came = asyncio.Event()

    def channel_opened(self, channel: Channel) -> None:
        self.hosts.append(channel.remote_address.rpartition(":")[0])
        self.came.set()

    def commands_received(self, channel: Channel, commands: list[RemotingCommand]) -> None: ...
    def channel_closed(self, channel: Channel) -> None: ...


def guests_of(listens_at: str, *dialled: str) -> list[str]:
    async def main() -> list[str]:
        guests = Guests()
        server = RemotingServer(guests, listens_at, 0)
        await server.start()
        for host in dialled:
            guests.came.clear()
            _, writer = await asyncio.open_connection(host, server.port)
            await guests.came.wait()
            writer.close()
            await writer.wait_closed()
        await server.close()
        return guests.hosts

    return asyncio.run(main())


@pytest.mark.parametrize("listens_at", ["0.0.0.0", "::"])
def test_a_guest_by_ipv4_is_known_by_its_ipv4_address(listens_at: str) -> None:
    assert guests_of(listens_at, "127.0.0.1") == ["127.0.0.1"]


def test_a_further_port_is_open_to_ipv4_as_well() -> None:
    async def main() -> list[str]:
        guests = Guests()
        server = RemotingServer(guests, "::", 0)
        await server.start()
        (port,) = free_ports(1)
        await server.listen_also(port)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await guests.came.wait()
        writer.close()
        await writer.wait_closed()
        await server.close()
        return guests.hosts

    assert asyncio.run(main()) == ["127.0.0.1"]


def test_without_ipv6_all_addresses_are_those_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(port: int) -> None:
        return None

    monkeypatch.setattr(listening, "_socket_for_all", refuse)
    assert guests_of("0.0.0.0", "127.0.0.1") == ["127.0.0.1"]


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]

        async def main() -> None:
            await listening.listen(asyncio.Protocol, "0.0.0.0", port)

        with pytest.raises(OSError, match=f":{port}") as caught:
            asyncio.run(main())
    assert caught.value.errno == errno.EADDRINUSE
