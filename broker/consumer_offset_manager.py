"""Consumer offsets: commits on their way through the log, and reads that see them.

A group's client that commits and then asks must read its own commit, also when the commit was oneway: a query
for a queue with a commit under way waits until that is applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from store.state.state_record import CommitOffset

if TYPE_CHECKING:
    from store.message_store import MessageStore, ProposeStatus

OffsetKey = tuple[str, str, int]  # group, topic, queue id
NO_OFFSET = -1


class ConsumerOffsetManager:
    """Invariant: `_pending` holds the newest commit proposed for a key until its outcome is known."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._pending: dict[OffsetKey, CommitOffset] = {}
        self._waiting: dict[OffsetKey, list[Callable[[], None]]] = {}

    def commit(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        on_done: Callable[[bool], None] | None = None,
    ) -> None:
        """Proposes an offset, smaller ones too. on_done(True) when it is applied here."""
        key = (group, topic, queue_id)
        if on_done is None:
            pending = self._pending.get(key)
            known = pending.offset if pending else self._store.consumer_offset_table.query(*key)
            if known == offset:
                return
        change = self._pending[key] = CommitOffset(group, topic, queue_id, offset)
        self._store.propose(change, lambda status: self._committed(key, change, status, on_done))

    def _committed(
        self,
        key: OffsetKey,
        change: CommitOffset,
        status: ProposeStatus,
        on_done: Callable[[bool], None] | None,
    ) -> None:
        # A newer commit for the key has its own outcome to come.
        if self._pending.get(key) is change:
            del self._pending[key]
            for read in self._waiting.pop(key, []):
                read()
        if on_done is not None:
            on_done(status.is_applied)

    def query(self, group: str, topic: str, queue_id: int, on_read: Callable[[int], None]) -> None:
        """Gives the group's offset, NO_OFFSET for none; at once unless a commit of it is under way."""
        key = (group, topic, queue_id)
        table = self._store.consumer_offset_table
        if key in self._pending:
            self._waiting.setdefault(key, []).append(lambda: on_read(table.query(group, topic, queue_id)))
        else:
            on_read(table.query(group, topic, queue_id))
