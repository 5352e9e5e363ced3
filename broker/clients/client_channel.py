"""What the broker knows of the client at the other end of a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec


class ClientChannel(Protocol):
    """The part of remoting's Channel that processors use. Writing to a closed channel does nothing."""

    @property
    def id(self) -> int: ...
    @property
    def remote_address(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def paused(self) -> bool:
        """More waits to be written than may: its client takes nothing, or not so fast."""

    @property
    def attributes(self) -> dict[str, Any]: ...
    def write(self, data: bytes) -> None: ...
    def pause_reading(self) -> None:
        """Each call needs its resume_reading()."""

    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


class ClientChannelInfo(msgspec.Struct):
    """One client instance on one connection, as its last heartbeat described it.

    `may_publish`: by topic, whether policies allow it to whom that heartbeat has proved to be.
    """

    channel: ClientChannel
    client_id: str
    language: str
    version: int
    last_update_ms: int
    may_publish: Callable[[str], bool]
