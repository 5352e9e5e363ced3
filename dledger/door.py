"""How members reach each other: plain TCP here; whoever embeds the log may bring another door, as one with TLS."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from remoting.listening import listen


class Listening(Protocol):
    """What a door gives for an open port."""

    def close(self) -> None:
        """Stop listening. Connections that are open stay."""


class Door(Protocol):
    """Both ways through it are asyncio protocols; errors of both are OSErrors."""

    async def listen(
        self, make_protocol: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> Listening: ...

    async def connect(self, make_protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> Any:
        """Returns when the connection is open, and its protocol has been told."""


class PlainDoor:
    """Whoever is on the way can read and change what passes."""

    async def listen(self, make_protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> Listening:
        return await listen(make_protocol, host, port)

    async def connect(self, make_protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> Any:
        return await asyncio.get_running_loop().create_connection(make_protocol, host, port)
