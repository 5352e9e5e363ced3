"""Has popped messages come again that were not acknowledged in time: RocketMQ's PopReviveService.

Only a serving leader ticks it: its clock decides what has expired, and the log then makes that true for all members.
One batch is under way at a time. The service remembers nothing but that batch, and which pops are held.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from dledger.entry import Index
from dledger.figures import Figures
from message.decoder import decode_message
from message.errors import MessageDecodeError
from message.names import DLQ_GROUP_TOPIC_PREFIX
from store.errors import MessageDamagedError, StoreDamagedError, UnitDamagedError
from store.get_message import GetMessageStatus
from store.put_message import PutMessage
from store.queues.unit_queue import UnitQueue
from store.services.deliveries import BATCH_COUNT_MAX, BATCH_SIZE_MAX, Deliveries
from store.services.leader_service import LeaderStore
from store.services.popped_message import dead, revived
from store.state.table import StateChange
from store.state.table_configs import TopicConfig
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.pop_queue import NO_OFFSET, Due, QueueKey, bit_numbers
from store.state.tables.pop_table import Popped, ReviveMessages
from store.state.tables.topic_config_table import PutTopicConfig

log = logging.getLogger(__name__)

# After this time a pop that is held is looked at again.
PAUSE_MS: Final = 100
# After this time a pop with damaged messages is looked at again: they are being repaired.
DAMAGE_PAUSE_MS: Final = 1000

_DLQ_PREFIX: Final = DLQ_GROUP_TOPIC_PREFIX.encode()

Copy = tuple[Popped, PutMessage | None]  # a message in flight, and what becomes of it
HeldPop = tuple[QueueKey, int]  # and when it was first popped


class PopReviveService:
    """Invariant: what has expired is offered by the table, or in the batch under way."""

    def __init__(self, store: LeaderStore) -> None:
        self._store = store
        self._commit_log = store.commit_log
        self._tables = store.state.tables
        self._table = store.state.tables.pop_table
        self.deliveries = Deliveries(store)
        self._taken: list[Due] = []  # of the batch under way
        # What is on its way into the log for a pop: acks, changes, another pop of the same messages. When these are
        # applied the pop is another one, or over, and copies made of it before would be one too many.
        self._held: Counter[HeldPop] = Counter()
        self.revived_count = self.dead_count = 0  # by this member, since its start

    def figures(self) -> Figures:
        """For programs that watch."""
        return {
            "popped_messages_in_flight": self._table.in_flight_count,
            "popped_messages_revived_total": self.revived_count,
            "popped_messages_dead_total": self.dead_count,
        }

    def hold(self, popped: Popped) -> HeldPop:
        """Keep a pop with messages in flight from expiring until release() is called, unless copies of it are on their
        way already. That holds also if the invisible time of its messages is changed meanwhile.
        """
        held = self._held_pop(popped)
        self._held[held] += 1
        return held

    def release(self, held: Iterable[HeldPop]) -> None:
        for each in held:
            self._held[each] -= 1
            if not self._held[each]:
                del self._held[each]

    def is_held(self, popped: Popped) -> bool:
        return self._held_pop(popped) in self._held

    def _held_pop(self, popped: Popped) -> HeldPop:
        return popped[:3], self._table.first_pop_time(popped)

    # -- LeaderService -----------------------------------------------------------------------------------------

    @property
    def due_ms(self) -> int | None:
        due_ms = self._table.next_due_ms if self.deliveries.awaited_index is None else None
        return max(due_ms, self.deliveries.refused_until_ms) if due_ms is not None else None

    def serving_changed(self) -> None:
        self.deliveries.clear()
        self._taken.clear()
        self._table.put_all_back()

    def catch_up(self, now_ms: int) -> None:
        """Nothing is kept beside the log by those that do not lead."""

    def first_waiting_pos(self) -> int | None:
        """None: a popped message whose record is gone does not come again."""
        return None

    def units_mended(self, queue: UnitQueue) -> None:
        """Nothing is kept of units."""

    def applied(self, applied_index: Index, now_ms: int) -> None:
        if self.deliveries.applied(applied_index):
            self._put_back(now_ms)
            self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        expired = self._take_expired(now_ms) if self.deliveries.may_begin(now_ms) else []
        if not expired:
            return
        revived_ = [(popped, message) for popped, message in expired if message is not None]
        dropped = tuple(popped for popped, message in expired if message is None)
        messages = [message for _, message in revived_]
        new_topics = self._new_topics(revived_)

        def changes_of(first_index: Index) -> list[StateChange]:
            popped = tuple(popped for popped, _ in revived_)
            return [*new_topics, ReviveMessages(first_index, popped, dropped)]

        if not self.deliveries.append(changes_of, messages, now_ms):
            self._put_back(self.deliveries.refused_until_ms)
            return
        dead_count = sum(message.topic.startswith(_DLQ_PREFIX) for message in messages)
        self.revived_count += len(messages) - dead_count
        self.dead_count += dead_count

    def _put_back(self, now_ms: int) -> None:
        """Have the table offer again what was taken, if that is still in flight."""
        for due in self._taken:
            self._table.put_back(due, max(due.visible_ms, now_ms))
        self._taken.clear()

    # -- inside ------------------------------------------------------------------------------------------------

    def _take_expired(self, now_ms: int) -> list[Copy]:
        """Take what has expired, as much as one batch may have, and make the copies."""
        copies: list[Copy] = []
        size = 0
        for due in self._table.take_due(now_ms):
            if self.is_held(Popped(*due.key, due.start, due.pop_time, 0)):
                self._table.put_back(due, now_ms + PAUSE_MS)
                continue
            try:
                found = self._copies_of(due, now_ms)
            except (UnitDamagedError, MessageDamagedError) as error:
                log.warning("popped messages wait for repair queue=%s error=%s", due.key, error)
                self._table.put_back(due, now_ms + DAMAGE_PAUSE_MS)
                continue
            if not found:
                continue
            self._taken.append(due)
            copies += found
            size += sum(len(message.body) + len(message.properties) for _, message in found if message)
            if len(copies) >= BATCH_COUNT_MAX or size >= BATCH_SIZE_MAX:
                break
        return copies

    def _copies_of(self, due: Due, now_ms: int) -> list[Copy]:
        """Make copies of what has expired. Of FIFO consumers these are the messages whose attempts are over: the others
        stay where they are and block their queue no more. Raises UnitDamagedError, MessageDamagedError.
        """
        attempts_max = self._tables.subscription_group_table.attempts_max(due.key[0])
        if due.start != NO_OFFSET:
            check_point = self._table.queues[due.key].check_points[due.start, due.pop_time]
            found = [
                Popped(*due.key, due.start, due.pop_time, 1 << number)
                for number in bit_numbers(check_point.waiting)
            ]
            is_attempt = not check_point.suspend
            return [(popped, self._copy(popped, attempts_max, is_attempt=is_attempt)) for popped in found]
        order = self._table.order_info(due.key)
        if order is None:
            return []
        found = [Popped(*due.key, offset, due.pop_time, 1) for offset in order.over(attempts_max, now_ms)]
        return [(popped, self._copy(popped, attempts_max=0)) for popped in found]

    def _copy(self, popped: Popped, attempts_max: int, *, is_attempt: bool = True) -> PutMessage | None:
        """Make the copy of a message; with `is_attempt` it counts as one more attempt. None: it does not come again,
        since it is gone, or the group's offset was set back to before it. Raises UnitDamagedError, MessageDamagedError.
        """
        record = self._record_of(popped)
        if record is None:
            log.warning("popped message is gone popped=%s", popped)
            return None
        try:
            message = decode_message(record)
            if is_attempt and message.reconsume_times >= attempts_max:
                copy = dead(record, popped.group)
            else:
                is_v2 = self._store.config.enable_retry_topic_v2
                copy = revived(record, popped.group, popped.pop_time, is_v2=is_v2, is_attempt=is_attempt)
        except MessageDecodeError as error:
            raise StoreDamagedError(f"the popped message {popped} is unsound: {error}") from error
        if not self._commit_log.fits(copy):
            log.error("popped message cannot be stored again popped=%s", popped)
            return None
        return copy

    def _record_of(self, popped: Popped) -> bytes | None:
        """Read a popped message; None: it does not come again. Raises UnitDamagedError, MessageDamagedError."""
        topic, offset = popped.topic.encode(), popped.start + popped.bits.bit_length() - 1
        group_offset = self._tables.consumer_offset_table.query(*popped[:3])
        if 0 <= group_offset <= offset and not self._table.is_order(popped):
            return None
        try:
            result = self._store.reader.get_message(topic, popped.queue_id, offset, 1, 1, None)
        except UnitDamagedError as error:
            self._store.mend(topic, popped.queue_id, error.queue_offset)
            raise
        is_there = result.status is GetMessageStatus.FOUND and result.next_begin_offset == offset + 1
        return result.buffers[0] if is_there else None

    def _new_topics(self, copies: Sequence[tuple[Popped, PutMessage]]) -> list[StateChange]:
        """Return the changes that make the missing topics of these copies, and have the groups begin with them."""
        changes: dict[str, list[StateChange]] = {}
        for popped, message in copies:
            topic = message.topic.decode()
            if topic in changes or self._tables.topic_config_table.get(topic) is not None:
                continue
            changes[topic] = [PutTopicConfig(TopicConfig(topic, 1, 1))]
            if not topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
                begin = self._commit_log.next_offset((message.topic, 0))
                changes[topic].append(CommitOffset(popped.group, topic, 0, begin))
        return [change for of_topic in changes.values() for change in of_topic]
