"""Locks of orderly consumers: one client at a time may consume a queue on behalf of its group.

The table lives in the leader's memory only. After a change of leader each client locks again within its 20 s
period, and the queue may meanwhile be consumed by two, as RocketMQ without lockInStrictMode allows.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

LOCK_MAX_LIVE_MS = 60_000

MessageQueueKey = tuple[str, str, int]  # topic, broker name, queue id


class RebalanceLockManager(msgspec.Struct):
    """Invariant: a queue of a group has one owner until LOCK_MAX_LIVE_MS after its last lock call."""

    locks: dict[str, dict[MessageQueueKey, tuple[str, int]]] = msgspec.field(default_factory=dict)

    def lock_batch(
        self, group: str, queues: Iterable[MessageQueueKey], client_id: str, now_ms: int
    ) -> list[MessageQueueKey]:
        """Those of `queues` that the client holds afterwards."""
        held = self.locks.setdefault(group, {})
        locked = []
        for queue in queues:
            owner = held.get(queue)
            if owner is None or owner[0] == client_id or owner[1] + LOCK_MAX_LIVE_MS < now_ms:
                held[queue] = (client_id, now_ms)
                locked.append(queue)
        return locked

    def unlock_batch(self, group: str, queues: Iterable[MessageQueueKey], client_id: str) -> None:
        """Releases what the client holds; the locks of others stay."""
        held = self.locks.get(group, {})
        for queue in queues:
            owner = held.get(queue)
            if owner is not None and owner[0] == client_id:
                del held[queue]
        if not held:
            self.locks.pop(group, None)

    def expire(self, now_ms: int) -> None:
        """Forgets locks that count no more: their clients went without a word."""
        for group, held in list(self.locks.items()):
            for queue in [q for q, (_, locked) in held.items() if locked + LOCK_MAX_LIVE_MS < now_ms]:
                del held[queue]
            if not held:
                del self.locks[group]

    def is_locked(self, group: str, now_ms: int) -> bool:
        """Whether any client holds an unexpired lock of the group."""
        return any(locked + LOCK_MAX_LIVE_MS >= now_ms for _, locked in self.locks.get(group, {}).values())
