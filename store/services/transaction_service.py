"""Ends transactions: RocketMQ's TransactionalMessageService, as a function of the log.

Which halves have ended is a replicated table (transaction_table.py). An end is one batch: the record of the ends, what
the halves become, and RocketMQ's op record. One batch is under way at a time; what arrives meanwhile goes into the next
one, so that all ends of a turn of the event loop cost one append. Each end is decided against the table when its batch
is appended, and the table has all ends before it then. So of two ends of a transaction the second changes nothing.

Only a serving leader does any of this. Nothing is remembered beside the log but what is on its way. What RocketMQ has
ended in a store that is taken over is put into the table before anything else (rocketmq_transactions.py), and how far
all have ended is committed as RocketMQ's own group does it, so that RocketMQ can go on.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Final

import msgspec

from dledger.entry import Index
from dledger.figures import Figures, Histogram
from message import const
from message.names import TRANS_GROUP
from message.properties import number_of
from store.put_message import PutMessage
from store.queues.unit_queue import UnitQueue
from store.services.delayed_message import delayed
from store.services.deliveries import BATCH_COUNT_MAX, BATCH_SIZE_MAX, Deliveries
from store.services.half_message import (
    HALF_TOPIC_BYTES,
    OP_TOPIC_BYTES,
    HalfMessage,
    committed,
    given_up,
    half_message,
    op_message,
)
from store.services.leader_service import LeaderStore
from store.services.rocketmq_transactions import RocketMQTransactions
from store.services.timer_message import asked_ms, slot_of, timed
from store.services.transaction_checks import TransactionChecks
from store.state.offset_ranges import OffsetRanges
from store.state.table import StateChange
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.transaction_table import EndTransactions

log = logging.getLogger(__name__)

# Of messages whose ends wait for the batch under way; what comes then is refused.
WAITING_SIZE_MAX: Final = 16 << 20
# RocketMQ's, in seconds.
LATENCY_BOUNDS: Final = (5, 60, 600, 3600, 43_200, 86_400)


class EndStatus(Enum):
    ENDED = "ENDED"  # it has, by this end or by one before it
    # Nothing was changed, and nothing will be:
    NOT_SERVING = "NOT_SERVING"
    BUSY = "BUSY"
    ILLEGAL = "ILLEGAL"  # the message that it would become cannot be stored
    UNKNOWN = "UNKNOWN"  # the leadership ended with it under way


class EndKind(Enum):
    COMMIT = auto()
    ROLLBACK = auto()
    GIVE_UP = auto()


OnEnded = Callable[[EndStatus], None]


class _End(msgspec.Struct):
    """Of one half, until it is known how that goes."""

    kind: EndKind
    topic: str  # of the half itself
    phy_offset: int  # of the half
    message: PutMessage | None  # what the half becomes, unless it goes with its topic
    on_ended: list[OnEnded]

    @property
    def size(self) -> int:
        return len(self.message.body) + len(self.message.properties) if self.message is not None else 0


class TransactionService:
    """Invariant: each end is in the table, or in the batch under way, or waits for the next one; and it is told how it
    went once.
    """

    def __init__(self, store: LeaderStore) -> None:
        self._store = store
        self._config = store.config
        self._queues = store.queues
        self._commit_log = store.commit_log
        self._table = store.state.tables.transaction_table
        self.deliveries = Deliveries(store)
        self._take_over = RocketMQTransactions(store, self.deliveries)
        self._is_turn_end_due = False
        # By queue offset of the half.
        self._waiting: dict[int, _End] = {}
        self._waiting_size = 0
        self._under_way: dict[int, _End] = {}
        # Of ends that this member has led to, by topic.
        self._ended_counts: defaultdict[EndKind, Counter[str]] = defaultdict(Counter)
        self._commit_latencies: dict[str, Histogram] = {}
        self.checks = TransactionChecks(
            store, self.deliveries, self._table.is_ended, self._is_ending, self._give_up
        )

    # -- what the broker asks ----------------------------------------------------------------------------------

    def refusal_of_prepared(self, coming: int) -> str | None:
        """Why no message may be prepared now, with `coming` ones on their way into the log."""
        if (refusal := self._store.refusal_of_outdated(self._table.name, "transactions")) is not None:
            return refusal
        if (count := self.pending_count + coming) >= self._config.pending_transactions_max:
            return (
                f"{count} transactions are undecided, and pyDLedgerMaxPendingTransactions="
                f"{self._config.pending_transactions_max} are allowed: end them, or raise it"
            )
        return None

    @property
    def pending_count(self) -> int:
        """Halves in the log that are undecided."""
        end = self._commit_log.next_offset((HALF_TOPIC_BYTES, 0))
        return end - self._first_pending_offset() - self._table.ended_count

    def half_at(self, phy_offset: int) -> HalfMessage | None:
        """The half at a physical offset, decided or not, for its end. Raises MessageDamagedError, DiskError.

        A producer is told of its half before that is dispatched, and may end it at once: the end goes behind it.
        """
        return half_message(self._store.reader.look_appended_message(phy_offset))

    def commit(self, half: HalfMessage, on_ended: OnEnded) -> None:
        """Has consumers get the message. `on_ended` may be called within."""
        self._end(EndKind.COMMIT, half.queue_offset, half, lambda: self._committed(half), on_ended)

    def roll_back(self, half: HalfMessage, on_ended: OnEnded) -> None:
        """Has nobody ever get the message. `on_ended` may be called within."""
        self._end(EndKind.ROLLBACK, half.queue_offset, half, lambda: None, on_ended)

    def figures(self) -> Figures:
        """For programs that watch."""
        return {
            "rocketmq_half_messages": dict(self.checks.counts),
            "rocketmq_commit_messages_total": dict(self._ended_counts[EndKind.COMMIT]),
            "rocketmq_rollback_messages_total": dict(self._ended_counts[EndKind.ROLLBACK]),
            "rocketmq_finish_message_latency": self._commit_latencies,
            "transactions_given_up_total": dict(self._ended_counts[EndKind.GIVE_UP]),
        }

    def state_at(self, phy_offset: int) -> dict[str, str] | None:
        """What happens next to the half at a physical offset; None where none is."""
        half = half_message(self._store.reader.look_message_by_offset(phy_offset))
        if half is None:
            return None
        is_ended = self._table.is_ended(half.queue_offset)
        state = {
            "state": "ENDED" if is_ended else "PENDING",
            "queueOffset": str(half.queue_offset),
            "producerGroup": half.group or "",
            "realTopic": half.real_topic,
            "realQueueId": str(half.real_queue_id),
            "transactionId": half.message.uniq_key or "",
        }
        pending = self.checks.pending.get(half.queue_offset)
        if pending is not None and not is_ended:
            state |= {"checkTimes": str(pending.checks), "nextCheckMs": str(pending.due_ms)}
        return state

    def _end(
        self,
        kind: EndKind,
        offset: int,
        half: HalfMessage | None,
        make_message: Callable[[], PutMessage | None],
        on_ended: OnEnded,
    ) -> None:
        if self._commit_log.serving_term is None:
            on_ended(EndStatus.NOT_SERVING)
            return
        if self._table.is_ended(offset):
            on_ended(EndStatus.ENDED)
            return
        earlier = self._waiting.get(offset)
        if earlier is not None:
            earlier.on_ended.append(on_ended)
            return
        message = make_message()
        topic, phy_offset = (half.real_topic, half.message.phy_offset) if half is not None else ("", -1)
        end = _End(kind, topic, phy_offset, message, [on_ended])
        if message is not None and not self._commit_log.fits(message):
            on_ended(EndStatus.ILLEGAL)
        elif self._waiting and self._waiting_size + end.size > WAITING_SIZE_MAX:
            on_ended(EndStatus.BUSY)
        else:
            self._waiting[offset] = end
            self._waiting_size += end.size
            if not self._is_turn_end_due:
                self._is_turn_end_due = True
                self._store.runtime.call_soon(self._turn_ended)

    def _committed(self, half: HalfMessage) -> PutMessage:
        message = committed(half)
        level = number_of(half.message.properties, const.DELAY_TIME_LEVEL)
        if level:
            return delayed(message, level, max(self._config.delay_levels))
        now_ms = self._store.runtime.clock()
        with suppress(ValueError):  # such a half is of another broker's
            deliver_ms = asked_ms(half.message.properties, now_ms)
            if deliver_ms is not None and deliver_ms > now_ms:
                return timed(message, slot_of(deliver_ms, self._config.timer_precision_ms))
        return message

    # -- LeaderService -----------------------------------------------------------------------------------------

    @property
    def due_ms(self) -> int | None:
        return self.deliveries.refused_until_ms if self._waiting else self.checks.due_ms

    def serving_changed(self) -> None:
        under_way, self._under_way = self._under_way, {}
        waiting, self._waiting = self._waiting, {}
        self._waiting_size = 0
        self.deliveries.clear()
        self._take_over = RocketMQTransactions(self._store, self.deliveries)
        self.checks.clear()
        _tell(under_way, EndStatus.UNKNOWN)
        _tell(waiting, EndStatus.NOT_SERVING)

    def catch_up(self, now_ms: int) -> None:
        """Nothing is kept beside the log by those that do not lead."""

    def tick(self, now_ms: int) -> None:
        if not self._take_over.is_done:
            if self.deliveries.may_begin(now_ms):
                self._take_over.step(now_ms)
            return
        self._append_ends(now_ms)
        self.checks.tick(self._first_pending_offset(), now_ms)

    def applied(self, applied_index: Index, now_ms: int) -> None:
        if not self.deliveries.applied(applied_index):
            return
        ended, self._under_way = self._under_way, {}
        for offset, end in ended.items():
            self.checks.forget(offset)
            self._ended_counts[end.kind][end.topic] += 1
            if end.kind is EndKind.COMMIT and end.message is not None:
                latencies = self._commit_latencies.setdefault(end.topic, Histogram(LATENCY_BOUNDS))
                latencies.add(max(now_ms - end.message.born_timestamp, 0) / 1000)
        self._append_ends(now_ms)
        _tell(ended, EndStatus.ENDED)

    def first_waiting_pos(self) -> int | None:
        """Of the first half that is undecided."""
        return self.deliveries.first_pos(self._queues.find(HALF_TOPIC_BYTES, 0), self._first_pending_offset())

    def units_mended(self, queue: UnitQueue) -> None:
        """Nothing is kept of units."""

    def _is_ending(self, offset: int) -> bool:
        return offset in self._under_way or offset in self._waiting

    def _give_up(self, offset: int, half: HalfMessage | None) -> None:
        def message() -> PutMessage | None:
            if half is None:
                return None
            kept = given_up(half)
            if self._commit_log.fits(kept):
                return kept
            log.error("half message given up, which is too large to be kept offset=%d", offset)
            return None

        self._end(EndKind.GIVE_UP, offset, half, message, lambda status: None)

    # -- inside ------------------------------------------------------------------------------------------------

    def _first_pending_offset(self) -> int:
        queue = self._queues.find(HALF_TOPIC_BYTES, 0)
        return max(self._table.first_waiting, queue.min_offset if queue is not None else 0)

    def _turn_ended(self) -> None:
        self._is_turn_end_due = False
        self._append_ends(self._store.runtime.clock())

    def _progress(self) -> list[CommitOffset]:
        """What RocketMQ's check would have committed, as of the last batch: it begins there. All op records that are
        there are behind it, if no half behind the first pending one has ended.
        """
        offsets = {HALF_TOPIC_BYTES: self._first_pending_offset()}
        if not self._table.ended_count:
            offsets[OP_TOPIC_BYTES] = self._commit_log.next_offset((OP_TOPIC_BYTES, 0))
        query = self._store.state.tables.consumer_offset_table.query
        return [
            CommitOffset(TRANS_GROUP, topic.decode(), 0, offset)
            for topic, offset in offsets.items()
            if query(TRANS_GROUP, topic.decode(), 0) != offset
        ]

    def _append_ends(self, now_ms: int) -> None:
        """Appends what waits, or a part of it, unless a batch is under way or the log has just refused one."""
        if not self._waiting or not self._take_over.is_done or not self.deliveries.may_begin(now_ms):
            return
        delivered: list[int] = []
        dropped: list[int] = []
        before: list[int] = []  # ended meanwhile: by the batch before, or by RocketMQ before this member led
        messages: list[PutMessage] = []
        size = 0
        for offset, end in self._waiting.items():
            if self._table.is_ended(offset):
                before.append(offset)
                continue
            size += end.size
            if len(delivered) + len(dropped) == BATCH_COUNT_MAX or (messages and size > BATCH_SIZE_MAX):
                break
            if end.message is None or self._goes_with_topic(end, offset):
                dropped.append(offset)
            else:
                delivered.append(offset)
                messages.append(end.message)
        if before:
            _tell({offset: self._take_waiting(offset) for offset in before}, EndStatus.ENDED)
        if not delivered and not dropped:
            return
        messages.append(op_message([*delivered, *dropped], self._config.store_host, now_ms))

        def changes(first_index: Index) -> list[StateChange]:
            ranges = tuple(OffsetRanges.of(sorted(dropped)).ranges())
            change = EndTransactions(first_index, tuple(delivered), ranges, self._first_pending_offset())
            return [change, *self._progress()]

        if not self.deliveries.append(changes, messages, now_ms):
            return
        for offset in (*delivered, *dropped):
            self._under_way[offset] = self._take_waiting(offset)

    def _goes_with_topic(self, end: _End, offset: int) -> bool:
        """Also where that was deleted while the end waited."""
        if end.phy_offset >= self._store.state.deleted_topics.begin_of(end.topic):
            return False
        log.info("half message goes with its topic topic=%s offset=%d", end.topic, offset)
        return True

    def _take_waiting(self, offset: int) -> _End:
        end = self._waiting.pop(offset)
        self._waiting_size -= end.size
        return end


def _tell(ends: dict[int, _End], status: EndStatus) -> None:
    for end in ends.values():
        for on_ended in end.on_ended:
            on_ended(status)
