"""Replies of the log that the leader before this one may not have pushed: one that begins to serve reads them.

Which of them were pushed the log does not say. A requester drops what it has already.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.waiting.waiting_replies import WAITING_REPLIES_MAX
from disk.disk import DiskError
from message.decoder import MessageExt, decode_message
from message.errors import MessageDecodeError
from store.errors import StoreError
from store.get_message import BoundaryType

if TYPE_CHECKING:
    from store.message_store import MessageStore

log = logging.getLogger(__name__)

# Of one tick, which must not take long.
READ_COUNT_MAX = 64
READ_SIZE_MAX = 1024 * 1024


class StoredReplies:
    def __init__(self, store: MessageStore, topic: str) -> None:
        self._store = store
        self._topic = topic
        self._next_offset = self._end_offset = 0

    @property
    def has_work(self) -> bool:
        return self._next_offset < self._end_offset

    def begin(self, since_ms: int) -> None:
        """This member serves from now on, and pushes itself what comes. Of what is there, nobody waits for what was
        stored before `since_ms`.
        """
        reads = self._store.reads
        self._end_offset = reads.max_offset(self._topic, 0)
        try:
            first = reads.offset_by_time(self._topic, 0, since_ms, BoundaryType.LOWER)
        except (StoreError, DiskError) as error:
            self._give_up(error)
        else:
            self._next_offset = max(first, self._end_offset - WAITING_REPLIES_MAX)

    def stop(self) -> None:
        self._next_offset = self._end_offset = 0

    def read(self) -> list[MessageExt]:
        """The next ones."""
        try:
            result = self._store.reads.get_message(
                self._topic, 0, self._next_offset, READ_COUNT_MAX, READ_SIZE_MAX
            )
            messages = [decode_message(record) for record in result.buffers]
        except (StoreError, DiskError, MessageDecodeError) as error:
            self._give_up(error)
            return []
        found = [message for message in messages if message.queue_offset < self._end_offset]
        self._next_offset = result.next_begin_offset if found else self._end_offset
        return found

    def _give_up(self, error: Exception) -> None:
        log.warning("stored replies cannot be read topic=%s error=%s", self._topic, error)
        self.stop()
