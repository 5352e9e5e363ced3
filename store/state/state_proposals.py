"""Changes of the replicated tables on their way into the log: what is proposed while one record is under way becomes
the next record. So a burst of offset commits costs one entry, and a lone topic creation does not wait for a timer.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from dledger.core.messages import PeerId
from dledger.core.output import AppendStatus
from dledger.entry import Index
from store.dledger_commit_log import DLedgerCommitLog
from store.put_message import PutRefusal
from store.state.state_record import pack_change, pack_changes
from store.state.state_tables import StateTables
from store.state.table import StateChange
from store.state.tables.consumer_offset_table import CommitOffset, ResetOffset
from store.state.tables.topic_config_table import DeleteTopic

log = logging.getLogger(__name__)

# Of a record's head, topic and entry around the packed changes.
_RECORD_OVERHEAD = 512


class ProposeStatus(Enum):
    APPLIED = "APPLIED"  # committed, and the tables of this member hold it
    NOT_LEADER = "NOT_LEADER"  # definite: never appended
    UNKNOWN = "UNKNOWN"  # the leadership ended with it under way
    REFUSED = "REFUSED"  # definite: too large for a record
    MEMBER_OUTDATED = "MEMBER_OUTDATED"  # definite: not all members know the table


OnProposed = Callable[[ProposeStatus], None]


class _UnderWay(msgspec.Struct):
    last_index: Index
    on_done: list[OnProposed]
    offsets: dict[tuple[str, str, int], int] = msgspec.field(default_factory=dict)


class StateProposals:
    """Invariant: while serving, every change proposed is waiting, or in the record under way, or applied. When serving
    ends all of them have been answered.
    """

    def __init__(
        self,
        commit_log: DLedgerCommitLog,
        record_size_max: int,
        members_without: Callable[[str], Sequence[PeerId]],
    ) -> None:
        """`members_without`: those that do not know a feature, here a table by its name."""
        self._commit_log = commit_log
        self._members_without = members_without
        self._table_names = {
            change: name for name, table in StateTables().named.items() for change in table.changes
        }
        self._record_size_max = record_size_max - _RECORD_OVERHEAD
        self._waiting: deque[tuple[bytes, OnProposed | None]] = deque()
        # Commits of one queue's offset: the last one wins while they wait.
        self._waiting_offsets: dict[tuple[str, str, int], int] = {}
        self._under_way: _UnderWay | None = None
        self._deletions: Counter[str] = Counter()  # topics whose deletion is waiting or under way

    @property
    def deletes_topics(self) -> bool:
        """Whether a topic's deletion is on its way."""
        return bool(self._deletions)

    def deletes(self, topic: str) -> bool:
        return topic in self._deletions

    def propose(self, change: StateChange, on_done: OnProposed | None, now_ms: int) -> None:
        """`on_done` may be called before this returns, if the change is refused."""
        if self._commit_log.serving_term is None:
            if on_done is not None:
                on_done(ProposeStatus.NOT_LEADER)
            return
        if on_done is None and isinstance(change, CommitOffset):
            self._waiting_offsets[change.group, change.topic, change.queue_id] = change.offset
            return  # one-way: the next flush takes it along
        table_name = self._table_names.get(type(change))
        if table_name is not None and (outdated := self._members_without(table_name)):
            log.warning(
                "change refused: %s run a release without the table of %s, or were not seen since this start; upgrade "
                "them, or remove them from the group", ", ".join(outdated), table_name,
            )  # fmt: skip
            if on_done is not None:
                on_done(ProposeStatus.MEMBER_OUTDATED)
            return
        packed = pack_change(change)
        if len(packed) > self._record_size_max:
            if on_done is not None:
                on_done(ProposeStatus.REFUSED)
            return
        if isinstance(change, DeleteTopic):
            on_done = self._noted_deletion(change.topic, on_done)
        if isinstance(change, CommitOffset | ResetOffset):
            # It came after what waits for the same queue, and must not be overtaken by it.
            self._waiting_offsets.pop((change.group, change.topic, change.queue_id), None)
        self._waiting.append((packed, on_done))
        self.flush(now_ms)

    def _noted_deletion(self, topic: str, on_done: OnProposed | None) -> OnProposed:
        self._deletions[topic] += 1

        def ended(status: ProposeStatus) -> None:
            self._deletions[topic] -= 1
            self._deletions = +self._deletions
            if on_done is not None:
                on_done(status)

        return ended

    def pending_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset committed last by a one-way request that is not applied yet."""
        key = (group, topic, queue_id)
        offset = self._waiting_offsets.get(key)
        if offset is None and self._under_way is not None:
            offset = self._under_way.offsets.get(key)
        return offset

    def flush(self, now_ms: int) -> None:
        """Appends what waits, unless a record is under way; called each tick. Raises DiskError."""
        if self._under_way is not None or not (self._waiting or self._waiting_offsets):
            return
        packed: list[bytes] = []
        done: list[OnProposed] = []
        offsets: dict[tuple[str, str, int], int] = {}
        size = count = 0
        for change, on_done in self._waiting:
            size += len(change)
            if size > self._record_size_max:
                break
            count += 1
            packed.append(change)
            if on_done is not None:
                done.append(on_done)
        if count == len(self._waiting):
            for key, offset in self._waiting_offsets.items():
                change = pack_change(CommitOffset(*key, offset))
                size += len(change)
                if size > self._record_size_max:
                    break
                packed.append(change)
                offsets[key] = offset
        batch = self._commit_log.append_state([pack_changes(packed)], self._appended, now_ms)
        if isinstance(batch, PutRefusal):
            return  # back-pressure, or a disk without space: all of it waits on
        for _ in range(count):
            self._waiting.popleft()
        for key in offsets:
            del self._waiting_offsets[key]
        self._under_way = _UnderWay(batch.last_index, done, offsets)

    def applied(self, index: Index, now_ms: int) -> None:
        """The state entry with this index has been applied."""
        under_way = self._under_way
        if under_way is None or under_way.last_index != index:
            return
        self._under_way = None
        self.flush(now_ms)
        for on_done in under_way.on_done:
            on_done(ProposeStatus.APPLIED)

    def stop(self) -> None:
        """Serving has ended: nobody waits any longer."""
        waiting, under_way = self._waiting, self._under_way
        self._waiting, self._under_way = deque(), None
        self._waiting_offsets.clear()
        if under_way is not None:
            for on_done in under_way.on_done:
                on_done(ProposeStatus.UNKNOWN)
        for _, callback in waiting:
            if callback is not None:
                callback(ProposeStatus.NOT_LEADER)

    def _appended(self, status: AppendStatus) -> None:
        """Nothing to do: success shows when the entry is applied, failure when serving ends."""
