"""Delivers timer messages when they are due: RocketMQ's TimerMessageStore as a function of the log.

Only a serving leader delivers. One batch is under way at a time, and which messages have ended is in the replicated
table, which moves with the delivered entries themselves (ended_offsets_table.py). So a new leader goes on exactly where
the log ends. When each is due every member knows (timer_index.py). A message is due by the time that was asked for, on
this leader's clock: a clock that is behind makes it late. Messages of one time come in the order in which they were
stored.

A recall is a record of the queue, too. It lies in the slot of what it recalls, before that, and is met there. What the
log has before a delivery counts: a recall that this leader has appended and not applied yet makes its message wait, and
one that cannot be read makes all of its slot wait until it is repaired.

What waits for long is rolled every two days, as RocketMQ does it: stored anew, so that nothing that still waits is old.
"""

import logging
from collections import Counter, deque
from contextlib import suppress
from typing import Final, NamedTuple

from dledger.entry import Index
from dledger.figures import Figures
from message.decoder import decode_message, raw_properties
from message.errors import MessageDecodeError
from message.names import TIMER_TOPIC
from message.properties import pairs_of
from store.dledger_commit_log import store_timestamp_of
from store.errors import MessageDamagedError, StoreDamagedError, UnitDamagedError
from store.put_message import PutMessage
from store.queues.unit_queue import UnitQueue
from store.services.deliveries import BATCH_COUNT_MAX, BATCH_SIZE_MAX, Deliveries
from store.services.leader_service import LeaderStore
from store.services.rocketmq_timers import RocketMQTimers
from store.services.timer_index import TimerIndex, Waiting
from store.services.timer_message import (
    SLOT_MS_MAX,
    TIMER_TOPIC_BYTES,
    due_ms,
    fired,
    out_ms,
    real_topic,
    recall_keys,
    recalled_key,
    rolled,
)
from store.state.offset_ranges import OffsetRanges
from store.state.tables.timer_table import EndTimers

log = logging.getLogger(__name__)

# Of one tick: records that are old enough to be rolled, most of which are due so soon that they are not.
ROLL_LOOKS_MAX: Final = 256


class _Batch:
    """What ends together."""

    def __init__(self) -> None:
        self.messages: list[PutMessage] = []
        self.size = 0
        self.delivered: list[int] = []  # queue offsets, one for each message
        self.dropped: list[int] = []
        self.taken: list[Waiting] = []

    def add(self, offset: int, message: PutMessage | None) -> None:
        """The record at `offset` becomes this message, or nothing."""
        if message is None:
            self.dropped.append(offset)
            return
        self.delivered.append(offset)
        self.messages.append(message)
        self.size += len(message.body) + len(message.properties)

    @property
    def is_full(self) -> bool:
        return len(self.delivered) + len(self.dropped) >= BATCH_COUNT_MAX or self.size >= BATCH_SIZE_MAX


class _Recall(NamedTuple):
    """Whose slot has come."""

    end_ms: int  # of the slot
    waiting: Waiting
    key: bytes  # of what it recalls


class _Found(NamedTuple):
    phy_offset: int
    record: bytes
    said: dict[bytes, bytes]


class TimerMessageService:
    def __init__(self, store: LeaderStore) -> None:
        self._store = store
        self.deliveries = Deliveries(store)
        config = self._config = store.config
        self._precision_ms = config.timer_precision_ms
        self.is_behind = False  # there is more for catch_up(), as of its last call
        self.stops_dequeue = config.timer_stop_dequeue  # nothing is delivered for now, nor rolled
        self.table = store.state.tables.timer_table
        is_limited = config.timer_congest_num_each_slot < 2**31 - 1
        self.index = TimerIndex(
            store.disk,
            f"{config.ledger_directory}/pydledger/timers",
            store.queues,
            store.reader,
            self.table,
            config.timer_precision_ms if is_limited else None,
        )
        self._take_over = RocketMQTimers(store, self.deliveries)
        self.delivered: Counter[str] = Counter()  # by topic, since the start
        self._now_ms = 0
        self._batch = _Batch()  # under way
        # Recalls whose slot has come and is not over: by what they recall, and in the order of their slots.
        self._recalled: dict[bytes, Waiting] = {}
        self._recalls: deque[_Recall] = deque()
        self._roll_offset = 0  # the next one to look at
        self._roll_ms: int | None = None  # when that is old enough

    def refusal(self) -> str | None:
        """Why no message may wait for its time now."""
        return self._store.refusal_of_outdated(self.table.name, "timers")

    def serving_changed(self) -> None:
        self._give_back()
        self.deliveries.clear()
        self._take_over = RocketMQTimers(self._store, self.deliveries)

    def _give_back(self) -> None:
        """What was taken of the index is due there again."""
        for waiting in (*self._batch.taken, *(recall.waiting for recall in self._recalls)):
            self.index.give_back(waiting)
        self._recalled.clear()
        self._recalls.clear()
        self._batch = _Batch()
        self._roll_ms = None
        self._roll_offset = 0

    def units_mended(self, queue: UnitQueue) -> None:
        """Nothing is kept of units."""

    def catch_up(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.is_behind = False
        if not self._store.state.is_whole:
            return
        self._store.commit_log.forget_recalls(self._store.queues.max_offset((TIMER_TOPIC_BYTES, 0)))
        try:
            self.is_behind = self.index.catch_up(now_ms)
        except UnitDamagedError as error:
            self._store.mend(TIMER_TOPIC_BYTES, 0, error.queue_offset)
            raise
        self.index.forget_ended(now_ms)

    @property
    def due_ms(self) -> int | None:
        if self.deliveries.awaited_index is not None or self.stops_dequeue:
            return None
        if not self.index.is_ready(self._now_ms):
            return 0
        first = self.index.first
        times = [
            first.due_ms if first is not None else None,
            self._recalls[0].end_ms if self._recalls else None,
            self._roll_ms,
        ]
        due_ms = min((when for when in times if when is not None), default=None)
        return None if due_ms is None else max(due_ms, self.deliveries.refused_until_ms)

    def read_ms(self, now_ms: int) -> int:
        """Up to when all that is due has been delivered."""
        first = self.index.first
        return now_ms if first is None else min(now_ms, first.due_ms)

    def figures(self) -> Figures:
        """For programs that watch."""
        is_serving = self._store.commit_log.serving_term is not None
        lag = self.index.count_due(self._now_ms) if is_serving else 0
        return {
            "rocketmq_timing_messages": self.index.counts,
            "rocketmq_timer_enqueue_lag": self.index.behind,
            "rocketmq_timer_dequeue_lag": lag,
            "rocketmq_timer_dequeue_latency": self._now_ms - self.read_ms(self._now_ms) if lag else 0,
            "rocketmq_timer_enqueue_total": dict(self.index.added),
            "rocketmq_timer_dequeue_total": dict(self.delivered),
        }

    def state_of(self, phy_offset: int, now_ms: int) -> dict[str, str] | None:
        """What happens next to the record at a physical offset; None where none of the timer topic is."""
        record = self._store.reader.look_message_by_offset(phy_offset)
        message = decode_message(record) if record is not None else None
        if record is None or message is None or message.topic != TIMER_TOPIC:
            return None
        when_ms = due_ms(pairs_of(raw_properties(record)), message.store_timestamp)
        state = {
            "queueOffset": str(message.queue_offset),
            "realTopic": message.properties.get("REAL_TOPIC", ""),
            "realQueueId": message.properties.get("REAL_QID", ""),
            "deliverMs": str(when_ms),
            "rollTimes": message.properties.get("TIMER_ROLL_TIMES", "0"),
            "state": "ENDED" if self.table.is_ended(message.queue_offset) else "WAITING",
        }
        window_ms = self._config.timer_roll_window_ms
        roll_ms = message.store_timestamp + window_ms
        if state["state"] == "WAITING" and when_ms - roll_ms > window_ms // 3:
            state["rollMs"] = str(roll_ms)
        return state

    def first_waiting_pos(self) -> int | None:
        queue = self._store.queues.find(TIMER_TOPIC_BYTES, 0)
        offset = self.table.next_waiting(queue.min_offset) if queue is not None else 0
        return self.deliveries.first_pos(queue, offset)

    def applied(self, applied_index: Index, now_ms: int) -> None:
        if self.deliveries.applied(applied_index):
            for waiting in self._batch.taken:
                self.index.ended(waiting)
            self.delivered.update(
                message.topic.decode()
                for message in self._batch.messages
                if message.topic != TIMER_TOPIC_BYTES
            )
            self._batch = _Batch()
            self.catch_up(now_ms)
            self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        queue = self._store.queues.find(TIMER_TOPIC_BYTES, 0)
        if queue is None or self.stops_dequeue or not self.deliveries.may_begin(now_ms):
            return
        if not self._take_over.is_done:
            self._take_over.step(now_ms)
            return
        if not self.index.is_ready(now_ms) or self._store.members_without(self.table.name):
            return
        batch = _Batch()
        self._take_due(queue, batch, now_ms)
        self._end_recalls(batch, now_ms)
        with suppress(UnitDamagedError, MessageDamagedError):
            self._roll(queue, batch, now_ms)
        if batch.delivered or batch.dropped or queue.min_offset > self.table.next_waiting(0):
            self._append(batch, queue.min_offset, now_ms)

    def _take_due(self, queue: UnitQueue, batch: _Batch, now_ms: int) -> None:
        """Adds what is due, the earliest first."""
        index, aside = self.index, []
        recalls_under_way = self._store.commit_log.recalls_under_way
        held_until_ms = -1
        while not batch.is_full and (first := index.first) is not None and first.due_ms <= now_ms:
            waiting = index.take()
            if self.table.is_ended(waiting.offset):
                index.ended(waiting)
                continue
            try:
                found = self._record_at(queue, waiting.offset)
            except (UnitDamagedError, MessageDamagedError):
                aside.append(waiting)  # until it is repaired; what is behind it goes on
                if not waiting.topic_number:  # it may recall whatever is due in its slot
                    held_until_ms = waiting.due_ms + SLOT_MS_MAX
                continue
            if found is not None:
                key = recalled_key(found.said)
                if key is not None:
                    self._recalled[key] = waiting
                    self._recalls.append(_Recall((out_ms(found.said) or 0) + SLOT_MS_MAX, waiting, key))
                    continue
                if waiting.due_ms <= held_until_ms or not recalls_under_way.isdisjoint(
                    recall_keys(found.said)
                ):
                    aside.append(waiting)
                    continue
            batch.taken.append(waiting)
            message = self._message_of(found, queue, waiting.offset, now_ms) if found is not None else None
            batch.add(waiting.offset, message)
        for waiting in aside:
            index.give_back(waiting)

    def _message_of(self, found: _Found, queue: UnitQueue, offset: int, now_ms: int) -> PutMessage | None:
        """What the record becomes; None if nothing. Raises StoreDamagedError."""
        if not self._recalled.keys().isdisjoint(recall_keys(found.said)):
            log.info("timer message recalled offset=%d", offset)
            return None
        try:
            message = fired(found.record, store_timestamp_of(found.record), self._precision_ms, now_ms)
        except MessageDecodeError as error:
            raise StoreDamagedError(f"the timer message at {found.phy_offset} is unsound: {error}") from error
        return self._checked(message, found, queue, offset)

    def _checked(
        self, message: PutMessage | None, found: _Found, queue: UnitQueue, offset: int
    ) -> PutMessage | None:
        topic = real_topic(found.said).decode("utf-8", "surrogateescape")
        return self.deliveries.may_become(message, topic, queue, offset, found.phy_offset)

    def _end_recalls(self, batch: _Batch, now_ms: int) -> None:
        """Those whose slot is over, with all that was due in it."""
        first = self.index.first
        while self._recalls and not batch.is_full:
            recall = self._recalls[0]
            if now_ms <= recall.end_ms or (first is not None and first.due_ms <= recall.end_ms):
                return
            self._recalls.popleft()
            if self._recalled.get(recall.key) is recall.waiting:
                del self._recalled[recall.key]
            batch.taken.append(recall.waiting)
            batch.add(recall.waiting.offset, None)

    def _roll(self, queue: UnitQueue, batch: _Batch, now_ms: int) -> None:
        """Stores anew what has waited for long and is not due soon."""
        if self._roll_ms is not None and now_ms < self._roll_ms:
            return
        self._roll_ms = None
        window_ms = self._config.timer_roll_window_ms
        for _ in range(ROLL_LOOKS_MAX):
            offset = self.table.next_waiting(max(self._roll_offset, queue.min_offset))
            self._roll_offset = offset
            if batch.is_full or offset >= queue.max_offset:
                return
            found = self._record_at(queue, offset)
            if found is None:
                self._roll_offset = offset + 1  # it ends when it is due
                continue
            stored_ms = store_timestamp_of(found.record)
            if now_ms < stored_ms + window_ms:
                self._roll_ms = stored_ms + window_ms
                return
            self._roll_offset = offset + 1
            when_ms = due_ms(found.said, stored_ms)
            if when_ms - now_ms <= window_ms // 3:
                continue
            message = rolled(found.record, stored_ms, when_ms, self._precision_ms, now_ms)
            batch.add(offset, self._checked(message, found, queue, offset))

    def _record_at(self, queue: UnitQueue, offset: int) -> _Found | None:
        """None for one that is gone. Raises UnitDamagedError, MessageDamagedError, DiskError."""
        if offset < queue.min_offset:
            return None
        unit = queue.unit(offset)
        if unit is None:
            raise self.deliveries.damaged(queue, offset, f"unit {offset} cannot be read")
        record = self.deliveries.record_at(queue, offset, unit)
        return _Found(unit[0], record, pairs_of(raw_properties(record))) if record is not None else None

    def _append(self, batch: _Batch, begin: int, now_ms: int) -> None:
        def ended(first_index: Index) -> list[EndTimers]:
            dropped = tuple(OffsetRanges.of(sorted(batch.dropped)).ranges())
            return [EndTimers(first_index, tuple(batch.delivered), dropped, begin)]

        self._batch = batch
        if not self.deliveries.append(ended, batch.messages, now_ms):
            self._give_back()
