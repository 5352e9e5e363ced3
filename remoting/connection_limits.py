"""How many connections a server has, and what it holds of frames that are not whole yet, over all of them.

Each connection may hold one frame of up to 16 MiB, so a few dozen that never end theirs would fill a small machine.
Nothing here reads a clock or a socket.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 20_000
ADMITTED: Final = "admitted"  # attribute of a channel of which a request has proved its user
ADMISSION_SECONDS: Final = 30.0
UNFINISHED_SIZE_MAX: Final = 256 * 1024 * 1024  # bytes
COUNTED_FROM: Final = 16 * 1024  # bytes; the end of a read often cuts a small frame, which is soon whole


class FrameChannel(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def remote_address(self) -> str: ...
    def abort(self) -> None: ...


class UnfinishedFrames:
    """Invariant: `size` is the sum of what is told of each channel, at most `size_max` when a call returns.

    Above it the frames that began first are given up: an honest client ends its frame within some round trips, so
    the oldest one is the one that is not meant to end.
    """

    def __init__(self, size_max: int = UNFINISHED_SIZE_MAX) -> None:
        self._size_max = size_max
        self.size = 0
        self.closed_count = 0  # connections, since the start
        self._held: dict[
            int, tuple[FrameChannel, int]
        ] = {}  # by channel, in the order in which the frames began

    def changed(self, channel: FrameChannel, size: int) -> None:
        """So many bytes of a frame are there now; 0: there is none, or the channel is closed."""
        held = self._held.get(channel.id)
        self.size += size - (0 if held is None else held[1])
        if size:
            self._held[channel.id] = channel, size
        elif held is not None:
            del self._held[channel.id]
        while self.size > self._size_max:
            oldest_id, (oldest, oldest_size) = next(iter(self._held.items()))
            del self._held[oldest_id]
            self.size -= oldest_size
            self.closed_count += 1
            log.warning(
                "connection closed remote=%s: it has sent %d bytes of a frame and not its end, and all connections "
                "together may hold %d",
                oldest.remote_address,
                oldest_size,
                self._size_max,
                extra={"per_connection": True},
            )
            oldest.abort()
