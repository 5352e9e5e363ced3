"""What a consumer holds of one queue: what was pulled, what is being consumed, from where it would go on."""

from __future__ import annotations

import asyncio
from collections import deque

from message.decoder import MessageExt
from mqclient.message_queue import MessageQueue


class ConsumeBatch:
    """Messages of one queue, in its order. Whoever takes a batch ends it with `done`, else its offset never moves."""

    __slots__ = ("_process_queue", "begin_offset", "is_done", "messages", "next_offset", "size")

    def __init__(
        self, process_queue: ProcessQueue, messages: list[MessageExt], begin_offset: int, next_offset: int
    ) -> None:
        self._process_queue = process_queue
        self.messages = messages
        self.begin_offset = begin_offset
        self.next_offset = next_offset
        self.size = sum(message.store_size for message in messages)
        self.is_done = False

    @property
    def queue(self) -> MessageQueue:
        return self._process_queue.queue

    @property
    def is_dropped(self) -> bool:
        """The queue went to another member of the group meanwhile: it gets these messages, too."""
        return self._process_queue.is_dropped

    def done(self, count: int | None = None) -> None:
        """`count`: only the first so many messages are; for a reader that stops there and takes no further batch."""
        if count is not None and count < len(self.messages):
            self.next_offset = self.messages[count].queue_offset
        self.is_done = True
        self._process_queue.batch_done()


class ProcessQueue:
    """Invariant: `consume_offset` never covers a message whose batch is not done.

    Offsets are queue offsets. `pull_offset`: the next one to ask the broker for.
    """

    def __init__(self, queue: MessageQueue, offset: int, *, count_max: int, bytes_max: int) -> None:
        self.queue = queue
        self.pull_offset = offset
        self.consume_offset = offset
        self.committed_offset = -1
        self.is_dropped = False
        self.room = asyncio.Event()
        self.room.set()
        self._batches: deque[ConsumeBatch] = deque()
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = 0
        self._bytes = 0

    def pulled(self, messages: list[MessageExt], next_offset: int) -> ConsumeBatch | None:
        """Takes a pull's messages (those that match) and where the next pull begins; None when none matched."""
        batch = ConsumeBatch(self, messages, self.pull_offset, next_offset)
        self.pull_offset = next_offset
        self._batches.append(batch)
        if not messages:
            # It still keeps its place: the offset may move over it only behind the batches before it.
            batch.done()
            return None
        self._count += len(messages)
        self._bytes += batch.size
        if self._count >= self._count_max or self._bytes >= self._bytes_max:
            self.room.clear()
        return batch

    def batch_done(self) -> None:
        batches = self._batches
        while batches and batches[0].is_done:
            batch = batches.popleft()
            self.consume_offset = batch.next_offset
            self._count -= len(batch.messages)
            self._bytes -= batch.size
        if self._count < self._count_max and self._bytes < self._bytes_max:
            self.room.set()

    def reset(self, offset: int) -> None:
        """The broker says that this is where the queue goes on (its begin moved, or an operator reset it)."""
        self._batches.clear()
        self._count = self._bytes = 0
        self.room.set()
        self.pull_offset = self.consume_offset = offset

    def drop(self) -> None:
        self.is_dropped = True
        self.room.set()
