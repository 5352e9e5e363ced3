"""What the services have in common that turn messages which wait, in a topic of the broker's own, into others.

Delayed messages, timer messages and halves wait in different order, and differ in who says when one ends. What they
share is here: one batch is appended at a time, behind a state record that says whose messages it has (popped messages
that come again do as well); and a record that waits is read so that a damaged one is repaired, and neither passed over
nor taken by retention.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from dledger.entry import Index
from store.errors import UnitDamagedError
from store.message_reader import is_head_of
from store.put_message import PutMessage
from store.queues.unit_queue import Unit, UnitQueue
from store.services.leader_service import LeaderStore
from store.state.state_record import pack_change, pack_changes
from store.state.table import StateChange

log = logging.getLogger(__name__)

# Of one batch. A backlog after a downtime goes out as fast as batches are committed, beside all other sends.
BATCH_COUNT_MAX: Final = 256
BATCH_SIZE_MAX: Final = 256 * 1024
# Before what the log refused is offered again: it refuses when the leader is at its limits.
REFUSED_PAUSE_MS: Final = 100


class Deliveries:
    """The batches of one service. Invariant: at most one batch is appended and not applied yet."""

    def __init__(self, store: LeaderStore) -> None:
        self._store = store
        self.awaited_index: Index | None = None  # the last one of the batch under way
        self.refused_until_ms = 0

    def clear(self) -> None:
        """Serving has begun or ended: what was under way shows when it is applied, or never was."""
        self.awaited_index = None
        self.refused_until_ms = 0

    def may_begin(self, now_ms: int) -> bool:
        # A clock that is set back must not make a long pause of a short one.
        is_refused = 0 < self.refused_until_ms - now_ms <= REFUSED_PAUSE_MS
        # Behind the deletion of its topic a message would be that of a new one.
        return self.awaited_index is None and not is_refused and not self._store.deletes_topics()

    def append(
        self,
        changes_of: Callable[[Index], Sequence[StateChange]],
        messages: Sequence[PutMessage],
        now_ms: int,
    ) -> bool:
        """Append the record of changes_of(index of the first message), and the messages behind it.

        Returns False if the log refuses: then nothing may begin for a while.
        """
        self.awaited_index = self._store.commit_log.deliver(
            lambda first_index: pack_changes([*map(pack_change, changes_of(first_index))]), messages, now_ms
        )
        if self.awaited_index is None:
            self.refused_until_ms = now_ms + REFUSED_PAUSE_MS
        return self.awaited_index is not None

    def applied(self, applied_index: Index) -> bool:
        """Note that entries up to there are applied. Returns whether that ends the batch under way."""
        if self.awaited_index is None or applied_index < self.awaited_index:
            return False
        self.awaited_index = None
        return True

    # -- records that wait -------------------------------------------------------------------------------------

    def record_at(self, queue: UnitQueue, offset: int, unit: Unit) -> bytes | None:
        """Read the record of a unit; None: it is gone. Raises UnitDamagedError, MessageDamagedError, DiskError."""
        phy_offset, size, _ = unit
        reader = self._store.reader
        if size > 0 and reader.is_gone(queue, offset, phy_offset):
            log.warning(
                "message expired while it waited topic=%s queue=%d offset=%d",
                queue.topic_name, queue.queue_id, offset,
            )  # fmt: skip
            return None
        record = reader.look_message_by_offset(phy_offset)
        if record is None or len(record) != size or not is_head_of(record, queue, offset):
            fault = f"unit {offset} says {size} bytes at {phy_offset}, where the log has no such record"
            raise self.damaged(queue, offset, fault)
        return record

    def first_pos(self, queue: UnitQueue | None, offset: int) -> int | None:
        """Return the physical offset of the record at `offset`: retention keeps the log from there on.

        None: the queue ends there. If the record is gone, its unit cannot be checked, and is believed. Raises
        UnitDamagedError, DiskError.
        """
        if queue is None or offset >= queue.max_offset:
            return None
        unit, reader = queue.unit(offset), self._store.reader
        if unit is None or not (
            reader.is_gone(queue, offset, unit[0]) or reader.leads_to_its_record(queue, offset, unit)
        ):
            raise self.damaged(queue, offset, f"unit {offset} leads nowhere: {unit}")
        return unit[0]

    def may_become(
        self, message: PutMessage | None, real_topic: str, queue: UnitQueue, offset: int, phy_offset: int
    ) -> PutMessage | None:
        """Return `message`, made of the record at `phy_offset`; None: it cannot be stored, or went with its topic."""
        said = queue.topic_name, queue.queue_id, offset
        if message is None or not self._store.commit_log.fits(message):
            log.error("message cannot be delivered topic=%s queue=%d offset=%d", *said)
            return None
        if phy_offset < self._store.state.deleted_topics.begin_of(real_topic):
            log.info("message goes with its topic %s topic=%s queue=%d offset=%d", real_topic, *said)
            return None
        return message

    def damaged(self, queue: UnitQueue, offset: int, fault: str) -> UnitDamagedError:
        """Have the unit mended. Returns the error to raise: what needs the unit waits until then."""
        self._store.mend(queue.topic, queue.queue_id, offset)
        return UnitDamagedError(f"{queue.topic_name}, queue {queue.queue_id}: {fault}", offset)
