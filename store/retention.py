"""What is old goes: whole data files of the log, oldest first, and then the ConsumeQueue files that point into them.
Those of a plain CommitLog that came before the log are the oldest.

Decides what may go and when; how a file goes is the log's business. Each member decides for itself, so members may
begin at different entries. Nothing goes that is not committed and applied, nor what the newest complete full-state
record or the newest checkpoint does not stand for, nor what waits for its time or for the end of its transaction, nor
the file in which the log ends. Time and disk are the caller's.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from msgspec.structs import replace

from disk.disk import Disk
from dledger.entry import Index
from dledger.errors import FaultyEntryError
from dledger.log.errors import LedgerError
from message.names import is_system_topic
from message.record_layout import RECORD_SIZE_MIN
from store.dledger_commit_log import store_timestamp_of
from store.errors import MessageDamagedError, StoreDamagedError, UnitDamagedError
from store.java.old_commit_log import OldCommitLog
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_queue import UnitQueue
from store.replicated_log import ReplicatedLog
from store.store_config import StoreConfig

log = logging.getLogger(__name__)

WhichQueues = Callable[[UnitQueue], bool]
HourOf = Callable[[int], int]  # ms since the epoch -> hour of the day
FirstWaitingPos = Callable[[], int | None]  # of what waits for its time or its end

# RocketMQ's: so many checks delete what has expired, whatever the hour, once somebody has asked for it.
MANUAL_CHECKS: Final = 20
# RocketMQ's diskSpaceCleanForciblyRatio and diskSpaceWarningLevelRatio, percent used.
FORCE_RATIO: Final = 85
FULL_RATIO: Final = 90
_MS_PER_HOUR: Final = 3_600_000
# Of one tick: thousands of queues must not keep the event loop from its sockets.
_QUEUES_PER_TICK: Final = 100
# A log may not let go of a file for long, and each look at what may go next reads headers and queues.
_RETRY_MS: Final = 100


def has_expired(queue: UnitQueue) -> bool:
    """Of all of its messages none is left. For let_go()."""
    return queue.min_offset == queue.max_offset and not is_system_topic(queue.topic_name)


def utc_hour(now_ms: int) -> int:
    return now_ms // _MS_PER_HOUR % 24


class LogRetention:
    """Invariant: at most one file is being deleted."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        replica: ReplicatedLog,
        old_commit_log: OldCommitLog,
        first_waiting_pos: FirstWaitingPos,
        hour_of: HourOf,
    ) -> None:
        self.disk_full: str | None = None  # why writes are to be refused
        self.disk_free = self.disk_size = 0  # bytes, as of the last look
        # Behind the first file, if it is to go for want of space, and a message that waits in it keeps it.
        self.kept_end: int | None = None
        self._config = config
        self._disk = disk
        self._replica = replica
        self._old = old_commit_log
        self._first_waiting_pos = first_waiting_pos
        self._hour_of = hour_of
        self._checked_ms: int | None = None
        self._refused_ms = -_RETRY_MS  # when the log could not let a file go, last
        self._manual_checks = 0
        self._deletes = False  # as the last check has found, until nothing more may go
        self._by_force = False

    @property
    def file_reserved_time_ms(self) -> int:
        return self._config.file_reserved_time_ms

    def configure(
        self, file_reserved_time_ms: int, delete_when: frozenset[int], disk_max_used_space_ratio: int
    ) -> None:
        """Changes what may go, from the next check on, which comes at once."""
        self._config = replace(
            self._config,
            file_reserved_time_ms=file_reserved_time_ms,
            delete_when=delete_when,
            disk_max_used_space_ratio=disk_max_used_space_ratio,
        )
        self._checked_ms = None

    def delete_expired(self) -> None:
        """By hand: what has expired goes now and not at its hour."""
        self._manual_checks = MANUAL_CHECKS
        self._checked_ms = None

    def tick(self, needed_from: Index, now_ms: int) -> None:
        """`needed_from`: the first entry that something still needs.

        Raises LedgerError, StoreDamagedError, DiskError.
        """
        if self._checked_ms is None or now_ms - self._checked_ms >= self._config.clean_resource_interval_ms:
            self._checked_ms = now_ms
            self._check(now_ms)
        elif self._deletes and self._by_force:
            self._look_at_disk()  # each file that is gone may have been enough
        if self._deletes and not 0 <= now_ms - self._refused_ms < _RETRY_MS:
            self._deletes = self._delete_one(needed_from, now_ms)

    def _check(self, now_ms: int) -> None:
        config = self._config
        used = self._look_at_disk()
        manual = self._manual_checks > 0
        if manual:
            self._manual_checks -= 1
        self._deletes = (
            manual
            or self._by_force
            or used > config.disk_max_used_space_ratio
            or self._hour_of(now_ms) in config.delete_when
        )

    def _look_at_disk(self) -> float:
        """Percent used."""
        config = self._config
        free, total = self._disk.free_space(config.commit_log_directory or config.ledger_directory)
        self.disk_free, self.disk_size = free, total
        used = 100 * (total - free) / total if total else 0.0
        if used > FULL_RATIO:
            if self.disk_full is None:
                log.error("disk used=%.1f%% limit=%d%%, sends are refused", used, FULL_RATIO)
            self.disk_full = f"the disk is {used:.1f} % full, the limit is {FULL_RATIO} %"
        elif self.disk_full is not None:
            log.info("disk used=%.1f%%, sends are taken again", used)
            self.disk_full = None
        self._by_force = used > max(FORCE_RATIO, config.disk_max_used_space_ratio)
        return used

    def _delete_one(self, needed_from: Index, now_ms: int) -> bool:
        """Whether to try again soon: a deletion has begun, or the last one is not done."""
        self.kept_end = None
        if self._old.end_pos:
            return self._delete_old_one(needed_from, now_ms)
        ledger = self._replica.log
        last_index = ledger.first_file_last_index
        if last_index is None or last_index >= needed_from:
            return False
        if not self._by_force:
            head = ledger.read(ledger.pos_at(last_index) + ledger.head_size, RECORD_SIZE_MIN)
            if now_ms - store_timestamp_of(head) < self._config.file_reserved_time_ms:
                return False
        waiting_pos = self._first_waiting_pos()
        if waiting_pos is not None and waiting_pos < (end_pos := ledger.end_pos_at(last_index)):
            self.kept_end = end_pos if self._by_force else None
            return False
        if self._replica.delete_first_file(now_ms):
            log.info(
                "oldest data file deleted last_index=%d by_force=%s begin_pos=%d",
                last_index, self._by_force, ledger.ledger_begin_pos,
            )  # fmt: skip
        else:
            self._refused_ms = now_ms
        return True

    def _delete_old_one(self, needed_from: Index, now_ms: int) -> bool:
        """As _delete_one(), of the log before the log."""
        old, ledger = self._old, self._replica.log
        if needed_from <= ledger.ledger_begin_index:
            return False  # the offsets of its queues are known from its records alone
        end = old.first_file_end
        if not self._by_force:
            # Of the record behind the file: where the file's last one begins, only a reading of all of it would tell.
            if end < old.end_pos:
                head = old.read(end, RECORD_SIZE_MIN)
            else:
                head = ledger.read(ledger.ledger_begin_pos + ledger.head_size, RECORD_SIZE_MIN)
            if now_ms - store_timestamp_of(head) < self._config.file_reserved_time_ms:
                return False
        waiting_pos = self._first_waiting_pos()
        if waiting_pos is not None and waiting_pos < end:
            self.kept_end = end if self._by_force else None
            return False
        old.delete_first_file()
        log.info("oldest file before the log deleted end=%d by_force=%s", end, self._by_force)
        return True


class Checkpoints(Protocol):
    """Of StoreFlusher."""

    checkpoint_index: Index  # applied index of the newest one on disk
    capture_number: int  # of the newest state captured
    written_number: int  # of the newest one that is on disk

    def want_checkpoint(self) -> None: ...


class Retention:
    """Of the log and of the queues, in this order."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        replica: ReplicatedLog,
        old_commit_log: OldCommitLog,
        queues: ConsumeQueueStore,
        checkpoints: Checkpoints,
        first_waiting_pos: FirstWaitingPos,
        hour_of: HourOf,
    ) -> None:
        self.log = LogRetention(config, disk, replica, old_commit_log, first_waiting_pos, hour_of)
        self.queues = QueueRetention(queues, checkpoints)
        self._ledger = replica.log
        self._old = old_commit_log
        self._checkpoints = checkpoints

    def begin_anew(self) -> None:
        """All queues are gone."""
        self.queues.begin_anew()

    def tick(self, full_state_index: Index, now_ms: int) -> None:
        """`full_state_index`: that the newest complete full-state record speaks of.

        Raises StoreDamagedError, DiskError.
        """
        # An entry is needed until its effect is in a checkpoint here, and in a full-state record for the others.
        last_index = min(full_state_index, self._checkpoints.checkpoint_index)
        try:
            self.log.tick(Index(last_index + 1), now_ms)
        except (FaultyEntryError, MessageDamagedError, UnitDamagedError):
            pass  # what may go is looked at again when it is repaired
        except LedgerError as error:
            raise StoreDamagedError(f"retention cannot read the log: {error}") from error
        # A checkpoint has what the queues begin with: it must not leave out what a power loss would bring back.
        self.queues.tick(self._old.begin_after_power_loss(self._ledger.durable_begin_pos))


class QueueRetention:
    """Follows the begin of the log, and lets whole queues go when somebody asks for it. A queue's file goes when a
    checkpoint is on disk that does not count its units: a start that found fewer files than its checkpoint speaks of
    would have to build all queues anew.
    """

    def __init__(self, queues: ConsumeQueueStore, checkpoints: Checkpoints) -> None:
        self._queues = queues
        self._checkpoints = checkpoints
        self._begin_pos = 0  # as it was when the queues were looked at last
        self._to_correct: deque[UnitQueue] = deque()
        self._emptied: list[UnitQueue] = []  # their topics were deleted
        self._corrected: list[tuple[UnitQueue, int]] = []  # with their first units
        self._asked: list[WhichQueues] = []
        self._asked_before: list[WhichQueues] = []  # of the queues that are looked at now
        self._let_go: set[UnitQueue] = set()  # their last files go, too
        self._awaited_number: int | None = None  # of a capture that has all of these
        self._to_clean: deque[tuple[UnitQueue, int]] = deque()

    def begin_anew(self) -> None:
        """All queues are gone."""
        self._to_correct.clear()
        self._emptied.clear()
        self._corrected.clear()
        self._let_go.clear()
        self._to_clean.clear()
        self._awaited_number = None

    def let_go(self, which: WhichQueues) -> None:
        """By hand: no message of these is to be read any more, and all of their files go. What comes later stays."""
        if which not in self._asked:
            self._asked.append(which)

    def emptied(self, queues: list[UnitQueue]) -> None:
        """None of their messages is to be read any more, for their topic was deleted: all of their files go."""
        self._emptied += queues

    @property
    def has_work(self) -> bool:
        """For the next tick, for there were more queues than one looks at."""
        return bool(self._to_clean or self._to_correct)

    def tick(self, begin_pos: int) -> None:
        """`begin_pos`: of the log. Raises DiskError."""
        for _ in range(min(_QUEUES_PER_TICK, len(self._to_clean))):
            queue, first_unit = self._to_clean.popleft()
            if queue in self._let_go:
                self._let_go.discard(queue)
                if queue.delete_files_if_empty():
                    continue  # else there are messages again
            # A queue that was empty meanwhile may count its units anew.
            queue.delete_files_before(min(first_unit, queue.first_unit))
        if self._to_correct:
            self._correct(self._begin_pos)
        elif self._awaited_number is not None:
            if self._checkpoints.written_number >= self._awaited_number:
                self._awaited_number = None
                self._to_clean.extend(self._corrected)
                self._corrected.clear()
        elif self._emptied:
            self._let_go.update(self._emptied)
            self._corrected += [(queue, queue.first_unit) for queue in self._emptied]
            self._emptied.clear()
            self._await_checkpoint()
        elif begin_pos != self._begin_pos or self._asked:
            self._begin_pos = begin_pos
            self._asked_before, self._asked = self._asked, []
            self._to_correct.extend(self._queues)

    def _correct(self, begin_pos: int) -> None:
        for _ in range(min(_QUEUES_PER_TICK, len(self._to_correct))):
            queue = self._to_correct.popleft()
            queue.correct_min_offset(begin_pos)
            if queue.has_units and any(which(queue) for which in self._asked_before):
                queue.let_go()
                self._let_go.add(queue)
            if queue in self._let_go or queue.has_files_before(queue.first_unit):
                self._corrected.append((queue, queue.first_unit))
        if not self._to_correct and self._corrected:
            self._await_checkpoint()

    def _await_checkpoint(self) -> None:
        self._awaited_number = self._checkpoints.capture_number + 1
        self._checkpoints.want_checkpoint()
