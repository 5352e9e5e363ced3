"""Replies whose requester is not connected to this broker yet: they wait for its heartbeat, for as long as they say.

After a change of leader a requester's heartbeat may take 30 s to come, which is no reason to lose what it waits for.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto

import msgspec

from dledger.figures import Figures

log = logging.getLogger(__name__)

# Beside the limit of bytes: what one reply costs that has a short body, with its request and the way of its answer.
WAITING_REPLIES_MAX = 10_000


class WaitEnd(Enum):
    REQUESTER_CAME = auto()
    EXPIRED = auto()
    STOPPED_LEADING = auto()


class WaitingReply(msgspec.Struct, eq=False):
    client_id: str  # of the requester
    until_ms: int
    size: int  # bytes
    on_end: Callable[[WaitEnd, int], None]  # takes now_ms as well


class WaitingReplies:
    """Invariant: a reply leaves with one call of its `on_end`."""

    def __init__(self, size_max: int) -> None:
        """`size_max`: bytes of all that wait."""
        self._size_max = size_max
        self._by_client: dict[str, list[WaitingReply]] = {}
        self._count = 0
        self._size = 0
        self._next_expiry_ms: int | None = None
        self._ended_counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._count

    @property
    def due_ms(self) -> int | None:
        """When the first reply expires, at the earliest; None: none waits."""
        return self._next_expiry_ms

    def figures(self) -> Figures:
        """For programs that watch."""
        return {
            "waiting_replies": self._count,
            "waiting_reply_bytes": self._size,
            "waited_replies_total": dict(self._ended_counts),
        }

    def hold(self, reply: WaitingReply) -> str | None:
        """Takes a reply in. Returns why there is no room for it, and then does not call its `on_end`."""
        if self._count >= WAITING_REPLIES_MAX or self._size + reply.size > self._size_max:
            self._ended_counts["no_room"] += 1
            return (
                f"{self._count} replies of {self._size} bytes wait for their requesters already; "
                f"{WAITING_REPLIES_MAX} and {self._size_max} bytes may (pyDLedgerMaxWaitingReplyBytes)"
            )
        self._by_client.setdefault(reply.client_id, []).append(reply)
        self._count += 1
        self._size += reply.size
        if self._next_expiry_ms is None or reply.until_ms < self._next_expiry_ms:
            self._next_expiry_ms = reply.until_ms
        return None

    def requester_came(self, client_id: str, now_ms: int) -> None:
        self._end(self._by_client.pop(client_id, []), WaitEnd.REQUESTER_CAME, now_ms)

    def tick(self, now_ms: int) -> None:
        """Ends the wait of those whose time is over."""
        if self._next_expiry_ms is None or now_ms < self._next_expiry_ms:
            return
        expired: list[WaitingReply] = []
        for client_id, replies in list(self._by_client.items()):
            expired += [reply for reply in replies if reply.until_ms <= now_ms]
            if kept := [reply for reply in replies if reply.until_ms > now_ms]:
                self._by_client[client_id] = kept
            else:
                del self._by_client[client_id]
        times = [reply.until_ms for replies in self._by_client.values() for reply in replies]
        self._next_expiry_ms = min(times, default=None)
        self._end(expired, WaitEnd.EXPIRED, now_ms)

    def end_all(self, now_ms: int) -> None:
        """This member leads no more: repliers must turn to the next leader."""
        waiting, self._by_client = self._by_client, {}
        self._next_expiry_ms = None
        self._end(
            [reply for replies in waiting.values() for reply in replies], WaitEnd.STOPPED_LEADING, now_ms
        )

    def _end(self, replies: list[WaitingReply], end: WaitEnd, now_ms: int) -> None:
        if not replies:
            return
        log.info("replies end their wait count=%d end=%s", len(replies), end.name)
        self._ended_counts[end.name.lower()] += len(replies)
        self._count -= len(replies)
        self._size -= sum(reply.size for reply in replies)
        for reply in replies:
            reply.on_end(end, now_ms)
