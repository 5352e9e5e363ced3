"""Makes halves of messages that were given up, so that producers are asked about them from the beginning.

Each becomes one once: which have is a replicated table. Else one message could become two halves, and two messages. A
resume is one append, as an end of a transaction is: a record, and the half behind it. One is under way at a time.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from dledger.entry import Index
from message import const
from message.names import TRANS_CHECK_MAX_TIME_TOPIC
from store.queues.unit_queue import UnitQueue
from store.services.deliveries import Deliveries
from store.services.half_message import prepared_again
from store.services.leader_service import LeaderStore
from store.state.tables.resumed_half_table import ResumeHalf

_TOPIC: Final = TRANS_CHECK_MAX_TIME_TOPIC.encode()


class ResumeStatus(Enum):
    RESUMED = auto()
    RESUMED_BEFORE = auto()
    NOT_GIVEN_UP = auto()
    TOPIC_DELETED = auto()
    BUSY = auto()
    UNKNOWN = auto()  # the leadership ended with it under way


OnResumed = Callable[[ResumeStatus], None]


class ResumeCheckService:
    """Invariant: each resume is told once how it went."""

    def __init__(self, store: LeaderStore) -> None:
        self._store = store
        self._table = store.state.tables.resumed_half_table
        self.deliveries = Deliveries(store)
        self._on_resumed: OnResumed = lambda status: None  # of the one under way

    @property
    def refusal(self) -> str | None:
        """Why nothing can be resumed now."""
        return self._store.refusal_of_outdated(self._table.name, "resumes")

    def resume(self, record: bytes, on_resumed: OnResumed, now_ms: int) -> None:
        """At a serving leader. `record`: of the message. `on_resumed` may be called within.

        Raises MessageDecodeError.
        """
        given_up = prepared_again(record)
        if given_up is None:
            on_resumed(ResumeStatus.NOT_GIVEN_UP)
            return
        message, half = given_up
        if message.phy_offset < self._store.state.deleted_topics.begin_of(
            message.properties[const.REAL_TOPIC]
        ):
            on_resumed(ResumeStatus.TOPIC_DELETED)
        elif self._table.is_ended(message.queue_offset):
            on_resumed(ResumeStatus.RESUMED_BEFORE)
        elif not self.deliveries.may_begin(now_ms):
            on_resumed(ResumeStatus.BUSY)
        else:
            queue = self._store.queues.find(_TOPIC, 0)
            begin = queue.min_offset if queue is not None else 0  # what is gone is not resumed any more
            is_appended = self.deliveries.append(
                lambda first_index: [ResumeHalf(first_index, (message.queue_offset,), (), begin)],
                [half],
                now_ms,
            )
            if is_appended:
                self._on_resumed = on_resumed
            else:
                on_resumed(ResumeStatus.BUSY)

    # -- LeaderService -----------------------------------------------------------------------------------------

    @property
    def due_ms(self) -> int | None:
        return None

    def serving_changed(self) -> None:
        was_under_way = self.deliveries.awaited_index is not None
        self.deliveries.clear()
        if was_under_way:
            self._on_resumed(ResumeStatus.UNKNOWN)

    def catch_up(self, now_ms: int) -> None:
        """Nothing is kept beside the log."""

    def tick(self, now_ms: int) -> None:
        """Nothing is due by itself."""

    def applied(self, applied_index: Index, now_ms: int) -> None:
        if self.deliveries.applied(applied_index):
            self._on_resumed(ResumeStatus.RESUMED)

    def first_waiting_pos(self) -> int | None:
        """What was given up goes with its file."""
        return None

    def units_mended(self, queue: UnitQueue) -> None:
        """Nothing is kept of units."""
