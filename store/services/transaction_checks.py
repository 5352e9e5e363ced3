"""Asks producers how their undecided transactions end: RocketMQ's transactional check, without putting halves again.

A leader looks through the half topic when it begins to serve, and from then on once a second at what has become a
second old: so what ends at once, as nearly all do, is never read. When each half is asked about next, and how often it
was, lives in this leader's memory; the next one counts anew. Only questions that were really sent count. Without a
producer of the group nobody is asked; a half that is older than messages are kept is given up in the same way as one
that was asked about too often.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

import msgspec

from message import const
from message.properties import number_of
from store.services.deliveries import Deliveries
from store.services.half_message import HALF_TOPIC_BYTES, HalfMessage, half_message, immunity_ms
from store.services.leader_service import LeaderStore

log = logging.getLogger(__name__)

LOOK_PAUSE_MS: Final = 1000
# Of one tick.
LOOKS_MAX: Final = 256
CHECKS_MAX: Final = 64


class Producers(Protocol):
    """Who is connected, as the broker knows it."""

    def has_producer(self, group: str) -> bool: ...

    def ask(self, half: HalfMessage, check_times: int) -> bool:
        """Asks one producer of the half's group, for the `check_times`th time. Returns False if nobody was asked."""


class NoProducers:
    """Until the broker has named the clients that are connected."""

    def has_producer(self, group: str) -> bool:
        return False

    def ask(self, half: HalfMessage, check_times: int) -> bool:
        return False


class PendingHalf(msgspec.Struct, gc=False):
    """An undecided half. About 500 bytes of each, with its places in the tables below."""

    phy_offset: int
    group: str
    topic: str
    stored_ms: int
    checks: int
    due_ms: int  # when its turn is next


class TransactionChecks:
    """Invariant: each pending half is in `_due` at its due_ms; other entries there mean nothing."""

    def __init__(
        self,
        store: LeaderStore,
        deliveries: Deliveries,
        is_ended: Callable[[int], bool],
        is_ending: Callable[[int], bool],
        give_up: Callable[[int, HalfMessage | None], None],
    ) -> None:
        """Of halves by their queue offset: whether it has ended, whether that is on its way, and what ends one that is
        not to be asked about any more, None for what is no half.
        """
        self.producers: Producers = NoProducers()
        self.pending: dict[int, PendingHalf] = {}  # by queue offset
        self.counts: Counter[str] = Counter()  # of these, by topic
        self._store = store
        self._config = store.config
        self._deliveries = deliveries
        self._is_ended = is_ended
        self._is_ending = is_ending
        self._give_up = give_up
        self._due: list[tuple[int, int]] = []  # a heap: when, queue offset
        self._unasked: dict[str, set[int]] = {}  # by group, while it has no producer
        self._look_from = self._look_to = 0  # what is looked through now
        self._look_ms = 0  # when it is looked further
        self._seen_end = 0  # of the queue, as of the last look

    def clear(self) -> None:
        self.pending.clear()
        self.counts.clear()
        self._due.clear()
        self._unasked.clear()
        self._look_from = self._look_to = self._look_ms = self._seen_end = 0

    @property
    def due_ms(self) -> int | None:
        """When tick() has something to do, as far as is known."""
        return self._due[0][0] if self._due else None

    def forget(self, offset: int) -> None:
        """It has ended."""
        pending = self.pending.pop(offset, None)
        if pending is not None:
            self.counts[pending.topic] -= 1
            if not self.counts[pending.topic]:
                del self.counts[pending.topic]
            unasked = self._unasked.get(pending.group)
            if unasked is not None:
                unasked.discard(offset)
                if not unasked:
                    del self._unasked[pending.group]

    def tick(self, first_offset: int, now_ms: int) -> None:
        """`first_offset`: of the first half that may be undecided. Raises UnitDamagedError, MessageDamagedError,
        DiskError.
        """
        self._look(first_offset, now_ms)
        self._make_due_before(self._store.retention.kept_end or 0, now_ms)
        due = self._due
        checks = 0
        while due and due[0][0] <= now_ms and checks < CHECKS_MAX:
            due_ms, offset = heappop(due)
            pending = self.pending.get(offset)
            if pending is not None and pending.due_ms == due_ms:
                checks += 1
                self._check(offset, pending, now_ms)

    def _make_due_before(self, kept_end: int, now_ms: int) -> None:
        """Those that keep a file which is to go; they lie in the order of their offsets."""
        for offset, pending in self.pending.items():
            if pending.phy_offset >= kept_end:
                return
            if pending.due_ms > now_ms and not self._is_ending(offset):
                self._put_off(offset, now_ms)

    def _look(self, first_offset: int, now_ms: int) -> None:
        """Reads some halves that nobody has looked at yet."""
        queue = self._store.queues.find(HALF_TOPIC_BYTES, 0)
        if queue is None:
            return
        self._look_from = max(self._look_from, first_offset)
        if self._look_from >= self._look_to:
            # A clock that is set back must not make a long pause of a short one.
            if 0 < self._look_ms - now_ms <= LOOK_PAUSE_MS:
                return
            self._look_ms = now_ms + LOOK_PAUSE_MS
            self._ask_groups(now_ms)
            self._look_to, self._seen_end = self._seen_end, queue.max_offset
            if self._look_from >= self._look_to:
                return
        begin = self._look_from
        for unit, offset, behind in queue.parse(queue.units(begin, LOOKS_MAX), begin):
            if offset >= self._look_to:
                break
            if not self._is_ended(offset):
                record = self._deliveries.record_at(queue, offset, unit)
                if record is not None:
                    self._add(offset, unit[0], record)
            self._look_from = behind

    def _add(self, offset: int, phy_offset: int, record: bytes) -> None:
        half = half_message(record)
        if half is None:
            self._give_up(offset, None)
            return
        message = half.message
        # The producer's clock may be ahead.
        born_ms = min(message.born_timestamp, message.store_timestamp)
        self.pending[offset] = PendingHalf(
            phy_offset,
            sys.intern(half.group or ""),
            sys.intern(half.real_topic),
            message.store_timestamp,
            number_of(message.properties, const.TRANSACTION_CHECK_TIMES) or 0,
            0,
        )
        self.counts[half.real_topic] += 1
        due_ms = born_ms + immunity_ms(half, self._config.transaction_timeout_ms)
        self._put_off(offset, min(due_ms, self._expires_ms(self.pending[offset])))

    def _check(self, offset: int, pending: PendingHalf, now_ms: int) -> None:
        config, retention = self._config, self._store.retention
        expires_ms = self._expires_ms(pending)
        self._put_off(offset, now_ms + config.transaction_check_interval_ms)
        if self._is_ending(offset):
            return
        half = half_message(self._store.reader.look_message_by_offset(pending.phy_offset))
        reason = None
        if now_ms >= expires_ms:
            reason = (
                f"it is older than {retention.file_reserved_time_ms // 3_600_000} hours, fileReservedTime"
            )
        elif pending.phy_offset < (retention.kept_end or 0):
            reason = "the disk needs the space of the file that it lies in"
        elif pending.checks >= config.transaction_check_max:
            reason = f"no producer has said how it ends, asked {pending.checks} times"
        if half is None or reason is not None:
            log.warning(
                "transaction given up, its message goes to TRANS_CHECK_MAX_TIME_TOPIC topic=%s group=%s offset=%d: %s",
                pending.topic, pending.group, offset, reason,
            )  # fmt: skip
            self._give_up(offset, half)
        elif self.producers.ask(half, pending.checks + 1):
            pending.checks += 1
        else:
            self._unasked.setdefault(pending.group, set()).add(offset)
            self._put_off(offset, expires_ms)

    def _ask_groups(self, now_ms: int) -> None:
        """Those that had no producer, and have one now."""
        for group in [group for group in self._unasked if self.producers.has_producer(group)]:
            for offset in sorted(self._unasked.pop(group)):
                self._put_off(offset, now_ms)

    def _put_off(self, offset: int, due_ms: int) -> None:
        pending = self.pending.get(offset)
        if pending is not None:
            pending.due_ms = due_ms
            if len(self._due) > 2 * len(self.pending):  # of those that ended, or were put off before
                self._due[:] = [(other.due_ms, number) for number, other in self.pending.items()]
                heapify(self._due)
            else:
                heappush(self._due, (due_ms, offset))

    def _expires_ms(self, pending: PendingHalf) -> int:
        """When messages are not kept any longer, whatever its immunity says."""
        return pending.stored_ms + self._store.retention.file_reserved_time_ms
