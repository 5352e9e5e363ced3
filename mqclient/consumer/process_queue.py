"""What a consumer holds of one queue: what was pulled, what is being consumed, from where it would go on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from message.decoder import MessageExt
from mqclient.consumer.consumer_stats import TopicStats
from mqclient.message_queue import MessageQueue


class ConsumeBatch:
    """`messages` of one queue, in its order. Whoever takes a batch ends it with `done`, else its offset never moves."""

    __slots__ = (
        "count",
        "failed_count",
        "is_done",
        "messages",
        "next_offset",
        "oldest_offset",
        "process_queue",
        "size",
        "taken_ms",
    )

    def __init__(self, process_queue: ProcessQueue, messages: list[MessageExt], next_offset: int) -> None:
        self.process_queue = process_queue
        self.messages = messages
        self.count = len(messages)
        # Of the first message that is not done. Kept here, for `messages` is the application's to change.
        self.oldest_offset = messages[0].queue_offset if messages else next_offset
        self.next_offset = next_offset
        self.size = sum(len(message.body) for message in messages)
        self.is_done = False
        self.taken_ms = 0
        self.failed_count = 0  # of its messages, that were sent back

    @property
    def queue(self) -> MessageQueue:
        return self.process_queue.queue

    @property
    def is_dropped(self) -> bool:
        """The queue went to another member of the group meanwhile: it gets these messages, too."""
        return self.process_queue.is_dropped

    def done(self, count: int | None = None) -> None:
        """The batch is processed. `count`: only its first so many messages are, and the offset never moves over the
        rest; for a reader that stops there."""
        if count is not None and count < len(self.messages):
            self.oldest_offset = self.messages[count].queue_offset
            self.process_queue.stopped_within(self)
        else:
            self.process_queue.consumed(self)
            self.is_done = True
            self.process_queue.batch_done()


class ProcessQueue:
    """Invariant: `consume_offset` never covers a message whose batch is not done.

    Offsets are queue offsets. `pull_offset`: the next one to ask the broker for. `room` is set while another pull may
    begin; the limits are those of RocketMQ's flow control.
    """

    def __init__(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count_max: int,
        bytes_max: int,
        span_max: int,
        now_ms: Callable[[], int],
        stats: TopicStats,
    ) -> None:
        self.queue = queue
        self.pull_offset = offset
        self.consume_offset = offset
        self.committed_offset = -1
        self.is_dropped = False
        self.is_paused = False
        self.room = asyncio.Event()
        self.room.set()
        self._batches: deque[ConsumeBatch] = deque()  # not done
        self._ready: deque[ConsumeBatch] = deque()  # of these, the ones that nobody has taken
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._span_max = span_max
        self._count = 0
        self._bytes = 0
        self._newest_offset = offset
        self._now_ms = now_ms
        self.last_pull_ms = self.last_consume_ms = now_ms()
        self._stats = stats

    def pull_begins(self) -> None:
        self.last_pull_ms = self._now_ms()

    def pulled(self, messages: list[MessageExt], next_offset: int) -> None:
        """Takes a pull's messages (those that match) and where the next pull begins."""
        batch = ConsumeBatch(self, messages, next_offset)
        self.pull_offset = next_offset
        if messages:
            now_ms = self._now_ms()
            self._stats.pulled(now_ms, len(messages), now_ms - self.last_pull_ms)
        self._batches.append(batch)
        if not messages:
            # It still keeps its place: the offset may move over it only behind the batches before it.
            batch.done()
            return
        self._count += batch.count
        self._bytes += batch.size
        self._newest_offset = messages[-1].queue_offset
        self._ready.append(batch)
        self._update_room()

    @property
    def cached_count(self) -> int:
        """Messages that are not done."""
        return self._count

    @property
    def cached_bytes(self) -> int:
        return self._bytes

    @property
    def cached_offsets(self) -> tuple[int, int]:
        """Of the oldest and of the newest message that is not done; zeros when there is none, as in Java."""
        return (self._batches[0].oldest_offset, self._newest_offset) if self._count else (0, 0)

    @property
    def ready_count(self) -> int:
        return len(self._ready)

    def take(self) -> ConsumeBatch | None:
        """The oldest batch that nobody has taken; None also while the queue is paused, and once it is dropped."""
        if self.is_dropped or self.is_paused or not self._ready:
            return None
        batch = self._ready.popleft()
        batch.taken_ms = self._now_ms()
        return batch

    def give_back(self, batch: ConsumeBatch) -> None:
        """The batch was taken and is to be taken once more, unless the queue was reset since."""
        if batch in self._batches:
            self._ready.append(batch)

    def consumed(self, batch: ConsumeBatch) -> None:
        """For the statistics; once for each batch, and not for empty ones."""
        if batch.count and not batch.is_done:
            now_ms = self._now_ms()
            self._stats.consumed(now_ms, batch.count, batch.failed_count, now_ms - batch.taken_ms)

    def batch_done(self) -> None:
        batches = self._batches
        while batches and batches[0].is_done:
            batch = batches.popleft()
            self.consume_offset = batch.next_offset
            if batch.count:
                self.last_consume_ms = self._now_ms()
            self._count -= batch.count
            self._bytes -= batch.size
        self._update_room()

    def stopped_within(self, batch: ConsumeBatch) -> None:
        # Not popped: batches behind it may be done, empty ones always are.
        if self._batches and self._batches[0] is batch:
            self.consume_offset = batch.oldest_offset

    def reset(self, offset: int) -> None:
        """The broker says that this is where the queue goes on (its begin moved, or an operator reset it)."""
        self._batches.clear()
        self._ready.clear()
        self._count = self._bytes = 0
        self.pull_offset = self.consume_offset = offset
        self._update_room()

    def pause(self) -> None:
        self.is_paused = True
        self._update_room()

    def resume(self) -> None:
        self.is_paused = False
        self._update_room()

    def drop(self) -> None:
        self.is_dropped = True
        self._update_room()

    def _update_room(self) -> None:
        is_full = (
            self._count >= self._count_max or self._bytes >= self._bytes_max or self._span() > self._span_max
        )
        # A puller that waits here has to hear of the end.
        if self.is_dropped or not (self.is_paused or is_full):
            self.room.set()
        else:
            self.room.clear()

    def _span(self) -> int:
        """From the oldest message that is not done to the newest: many done ones may be between them."""
        return self._newest_offset - self._batches[0].oldest_offset if self._batches else 0
