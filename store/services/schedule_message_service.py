"""Delivers delayed messages when they are due: RocketMQ's ScheduleMessageService, for all levels at once.

Only a serving leader ticks it. One batch is under way at a time, and nothing is remembered beside that: where each
level stands is in the replicated table, which moves with the delivered entries themselves (delay_offset_table.py).
So a new leader goes on exactly where the log ends. A message is due by the store timestamp that it was delayed from,
never by the time at which somebody looked; a clock that stands behind that makes it late, and none makes it early.
"""

import logging

from dledger.entry import Index
from message.errors import MessageDecodeError
from store.errors import StoreDamagedError
from store.put_message import PutMessage
from store.queues.unit_queue import Unit, UnitQueue
from store.services.delayed_message import SCHEDULE_TOPIC_BYTES, delivered, is_delay_of_other_levels
from store.services.deliveries import BATCH_COUNT_MAX, BATCH_SIZE_MAX, Deliveries
from store.services.leader_service import LeaderStore
from store.state.tables.delay_offset_table import Delivery, DeliveryRun
from store.store_config import DELAY_LEVELS_MAX

log = logging.getLogger(__name__)


class ScheduleMessageService:
    def __init__(self, store: LeaderStore) -> None:
        self._queues = store.queues
        self._reader = store.reader
        self._tables = store.state.tables
        self.deliveries = Deliveries(store)
        self.due_ms: int | None = None  # when the first message that waits is, as of the last look
        self._levels: list[tuple[int, UnitQueue]] = []  # that anything was ever delayed by
        self._queue_count = 0  # of the store, when these were looked up
        # Of the first message of each level that is not due: its offset, and when it is (ms).
        self._heads: dict[int, tuple[int, int]] = {}

    def serving_changed(self) -> None:
        self.deliveries.clear()
        self.due_ms = None
        self._queue_count = -1  # queues may be other ones than before
        self._heads.clear()

    def units_mended(self, queue: UnitQueue) -> None:
        self._heads.clear()

    def catch_up(self, now_ms: int) -> None:
        """Nothing: the queues say when their messages are due."""

    def first_waiting_pos(self) -> int | None:
        """Of the first message that is not delivered yet."""
        self._find_levels()
        offset_of, first_pos = self._tables.delay_offset_table.offset, self.deliveries.first_pos
        positions = [
            first_pos(queue, max(offset_of(level), queue.min_offset)) for level, queue in self._levels
        ]
        return min((pos for pos in positions if pos is not None), default=None)

    def applied(self, applied_index: Index, now_ms: int) -> None:
        """If the batch is, the next one follows."""
        if self.deliveries.applied(applied_index):
            self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        if not self.deliveries.may_begin(now_ms):
            return
        due = sorted(self._due(now_ms))
        if not due:
            return
        messages: list[PutMessage] = []
        runs: list[DeliveryRun] = []
        size = 0
        for _, level, offset, queue in due:
            size = self._take(level, offset, queue, messages, runs, size, now_ms)
        self.deliveries.append(lambda first_index: [Delivery(first_index, tuple(runs))], messages, now_ms)

    def _due(self, now_ms: int) -> list[tuple[int, int, int, UnitQueue]]:
        """(when, level, offset of its first message, queue) of each level that has something due; the levels that
        wait longest come first when sorted, and no two are of one level.
        """
        if len(self._queues) != self._queue_count:
            self._find_levels()
        found = []
        self.due_ms = None
        offset_of = self._tables.delay_offset_table.offset
        for level, queue in self._levels:
            offset = max(offset_of(level), queue.min_offset)
            if offset >= queue.max_offset:
                continue
            head = self._heads.get(level)
            if head is None or head[0] != offset:
                unit = queue.unit(offset)
                if unit is None:
                    raise self.deliveries.damaged(queue, offset, f"unit {offset} cannot be read")
                head = self._heads[level] = (offset, unit[2])
            if self.due_ms is None or head[1] < self.due_ms:
                self.due_ms = head[1]
            if head[1] <= now_ms:
                found.append((head[1], level, offset, queue))
        return found

    def _find_levels(self) -> None:
        self._queue_count = len(self._queues)
        # Also those that the conf does not have any more: what waits there has its time.
        found = (
            (level, self._queues.find(SCHEDULE_TOPIC_BYTES, level - 1))
            for level in range(1, DELAY_LEVELS_MAX + 1)
        )
        self._levels = [(level, queue) for level, queue in found if queue is not None]

    def _take(
        self,
        level: int,
        offset: int,
        queue: UnitQueue,
        messages: list[PutMessage],
        runs: list[DeliveryRun],
        size: int,
        now_ms: int,
    ) -> int:
        """Adds a level's messages from `offset` on, as many as are due and fit. Returns the size with them."""
        first_offset, count = offset, 0
        units = queue.units(offset, BATCH_COUNT_MAX - len(messages))
        for unit, _, _ in queue.parse(units, offset):
            _, record_size, deliver_ms = unit
            if deliver_ms > now_ms or (messages and size + record_size > BATCH_SIZE_MAX):
                break
            message = self._message_at(queue, unit, offset)
            offset += 1
            if message is not None:
                messages.append(message)
                size += record_size
                count += 1
                continue
            if count:
                runs.append((level, first_offset, count))
            runs.append((level, offset, 0))
            first_offset, count = offset, 0
        if count:
            runs.append((level, first_offset, count))
        return size

    def _message_at(self, queue: UnitQueue, unit: Unit, offset: int) -> PutMessage | None:
        """None for one that is gone or cannot be delivered. Raises UnitDamagedError, StoreDamagedError, DiskError."""
        phy_offset, _, deliver_ms = unit
        record = self.deliveries.record_at(queue, offset, unit)
        if record is None:
            return None
        try:
            wanted_ms = self._reader.tags_code_of(record)
            message = delivered(record)
        except MessageDecodeError as error:
            raise StoreDamagedError(f"the delayed message at {phy_offset} is unsound: {error}") from error
        if not is_delay_of_other_levels(deliver_ms, wanted_ms):
            raise self.deliveries.damaged(queue, offset, f"unit {offset} says that it is due at {deliver_ms}")
        topic = message.topic.decode("utf-8", "surrogateescape") if message is not None else ""
        return self.deliveries.may_become(message, topic, queue, offset, phy_offset)
