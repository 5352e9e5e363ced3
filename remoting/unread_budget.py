"""Bounds what a server holds of answers that its clients have not taken, over all connections, and says which one is
to be closed.

Nothing here reads a clock or a socket: the server, which has both, calls it with the time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

log = logging.getLogger(__name__)

UNREAD_SIZE_MAX = 128 * 1024 * 1024  # bytes
CONNECTION_UNREAD_SIZE_MAX = 1024 * 1024  # above it no more requests are read from a connection


class UnreadChannel(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def remote_address(self) -> str: ...
    @property
    def written_size(self) -> int:
        """Bytes since the connection was made, taken by the client or not."""

    @property
    def pending_write_size(self) -> int:
        """Those of them that the client has not taken yet."""

    def limit_pending_writes(self, size: int) -> None:
        """The channel is paused while more than that waits."""

    def abort(self) -> None: ...


class UnreadBudget:
    """Invariant: `unread_size` was right at the last look, and no more than `room` has been written since.

    From half of `size_max` on each connection is answered only when it has taken what came before. What is above
    `size_max` all the same is taken from those that hold the most for the longest: they are closed.
    """

    def __init__(
        self, size_max: int = UNREAD_SIZE_MAX, connection_size_max: int = CONNECTION_UNREAD_SIZE_MAX
    ) -> None:
        self.closed_count = 0  # connections, since the start
        self.unread_size = 0
        self.room = size_max // 2  # bytes that may be written before the next look
        self._size_max = size_max
        self._connection_size_max = connection_size_max
        self._is_tight = False
        # By channel that has something to take: how much its client has taken, and since when no more.
        self._taken: dict[int, tuple[int, float]] = {}

    @property
    def limit(self) -> int:
        """What may wait for one connection now."""
        return 0 if self._is_tight else self._connection_size_max

    def look(self, channels: Iterable[UnreadChannel], now_s: float) -> None:
        """A second after something was written, each second while some of it waits, and when there is no `room`."""
        channels = list(channels)
        taken: dict[int, tuple[int, float]] = {}
        unread: list[tuple[float, int, UnreadChannel]] = []
        total = 0
        for channel in channels:
            size = channel.pending_write_size
            if not size:
                continue
            total += size
            now_taken = channel.written_size - size
            before = self._taken.get(channel.id)
            since_s = before[1] if before is not None and before[0] == now_taken else now_s
            taken[channel.id] = now_taken, since_s
            unread.append((size * (now_s - since_s + 1.0), size, channel))
        self._taken = taken
        if total > self._size_max:
            unread.sort(key=lambda item: item[:2])
            while unread and total > self._size_max:
                _, size, channel = unread.pop()
                total -= size
                self.closed_count += 1
                log.warning(
                    "connection closed remote=%s: it has not taken %d bytes of answers, and all connections together "
                    "may leave %d",
                    channel.remote_address,
                    size,
                    self._size_max,
                    extra={"per_connection": True},
                )
                channel.abort()
        self.unread_size = total
        half = self._size_max // 2
        room = (half if total < half else self._size_max) - total
        # A look at thousands of connections costs milliseconds: at the bound itself not each write has one.
        self.room = max(room, self._size_max // 64)
        self._follow(channels)

    def _follow(self, channels: Iterable[UnreadChannel]) -> None:
        """Tight from half of all on, until half of that has been taken."""
        is_tight = self.unread_size > self._size_max // (4 if self._is_tight else 2)
        if is_tight != self._is_tight:
            self._is_tight = is_tight
            for channel in channels:
                channel.limit_pending_writes(self.limit)
