"""What may be asked of a store without changing anything: messages, tables, how far it is."""

from collections.abc import Sequence

from dledger.entry import Index
from store.derived.derived_files import DerivedFiles
from store.dledger_commit_log import DLedgerCommitLog
from store.errors import UnitDamagedError
from store.filter.message_filter import MessageFilter
from store.get_message import BoundaryType, GetMessageResult
from store.index.index_service import IndexService
from store.message_query import MessageQuery
from store.message_reader import MessageReader
from store.queues.consume_queue_store import ConsumeQueueStore
from store.read_index_waits import OnReadIndex, ReadIndexWaits
from store.reput import Reput
from store.state.state_machine import StateMachine
from store.state.state_proposals import StateProposals
from store.state.state_tables import StateTables
from store.state.tables.consumer_offset_table import ConsumerOffsetTable
from store.state.tables.delay_offset_table import DelayOffsetTable
from store.state.tables.subscription_group_table import SubscriptionGroupTable
from store.state.tables.topic_config_table import TopicConfigTable


class StoreReads:
    """The part of MessageStore that looks. What it looks at is made when the store starts."""

    _queues: ConsumeQueueStore
    _commit_log: DLedgerCommitLog
    _reput: Reput
    _reader: MessageReader
    _index: IndexService
    _read_index_waits: ReadIndexWaits
    _state: StateMachine
    _proposals: StateProposals
    _derived: DerivedFiles

    # -- messages ----------------------------------------------------------------------------------------------

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        size_max: int,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult:
        """Without `message_filter` all messages are wanted. A pull from before the topic's very first message
        begins with that one. Raises UnitDamagedError, MessageDamagedError, DiskError.
        """
        if offset >= 0 and topic in self._state.deleted_topics:
            offset = max(offset, self.min_offset(topic, queue_id))
        try:
            return self._reader.get_message(
                topic.encode(), queue_id, offset, count_max, size_max, message_filter
            )
        except UnitDamagedError as error:
            self._note_damage(topic, queue_id, error)
            raise

    @property
    def min_phy_offset(self) -> int:
        """Of the first record that is still there."""
        return self._reader.min_phy_offset

    def earliest_store_timestamp(self) -> int:
        """ms, of the first record that is still there; -1 for none."""
        return self._reader.earliest_store_timestamp()

    def look_message_by_offset(self, phy_offset: int) -> bytes | None:
        """The record of a committed message, None where none begins."""
        return self._reader.look_message_by_offset(phy_offset)

    def query_message(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> MessageQuery:
        """By key, or by unique key; the look-up is driven by the caller."""
        return MessageQuery(
            self._index,
            self.applied_index,
            self.look_message_by_offset,
            self._state.deleted_topics.begin_of(topic),
            topic.encode(),
            key.encode(),
            count_max,
            begin_ms,
            end_ms,
        )

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset behind the newest visible message; 0 for an unknown queue."""
        return self._queues.max_offset((topic.encode(), queue_id))

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.find(topic.encode(), queue_id)
        return queue.min_offset if queue is not None else 0

    def begin_offset(self, topic: str, queue_id: int) -> int | None:
        """What the queue began with when its topic was made: more than 0 where another topic had the name before. None
        where that cannot be known, or is not there any more.
        """
        low = self.min_offset(topic, queue_id)
        return low if not low or topic in self._state.deleted_topics else None

    def is_deleting(self, topic: str) -> bool:
        """Whether the topic's deletion is on its way: what is appended now may come after it."""
        return self._proposals.deletes(topic)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """See MessageReader. Raises UnitDamagedError, DiskError."""
        try:
            return self._reader.offset_by_time(topic.encode(), queue_id, timestamp, boundary)
        except UnitDamagedError as error:
            self._note_damage(topic, queue_id, error)
            raise

    def store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        """ms; -1 where there is no message. Raises UnitDamagedError, DiskError."""
        try:
            return self._reader.store_timestamp(topic.encode(), queue_id, offset)
        except UnitDamagedError as error:
            self._note_damage(topic, queue_id, error)
            raise

    def _note_damage(self, topic: str, queue_id: int, error: UnitDamagedError) -> None:
        """Has what a reader has found damaged mended soon; readers ask again."""
        self._derived.mender.want(topic.encode(), queue_id, error.queue_offset)

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        return self._reader.is_in_memory(topic.encode(), queue_id, offset)

    def at_read_index(self, on_done: OnReadIndex, now_ms: int) -> None:
        """Calls `on_done` once, maybe within: with None as soon as what is read here misses nothing that anybody
        acknowledged before this call; else with the reason why that cannot be had.
        """
        self._read_index_waits.ask(on_done, now_ms)

    # -- replicated tables -------------------------------------------------------------------------------------

    @property
    def tables(self) -> StateTables:
        """As applied."""
        self._state.settle(self._reput.applied_index)
        return self._state.tables

    @property
    def features(self) -> Sequence[str]:
        """What members of an earlier release may not know: tables, by name."""
        return tuple(StateTables().named)

    @property
    def topic_config_table(self) -> TopicConfigTable:
        return self._state.tables.topic_config_table

    @property
    def subscription_group_table(self) -> SubscriptionGroupTable:
        return self._state.tables.subscription_group_table

    @property
    def consumer_offset_table(self) -> ConsumerOffsetTable:
        """As applied. What a client has just committed one-way is seen by query_offset() alone."""
        return self._state.tables.consumer_offset_table

    @property
    def delay_offset_table(self) -> DelayOffsetTable:
        return self.tables.delay_offset_table

    @property
    def full_state_index(self) -> Index:
        """Applied index that the newest complete full-state record speaks of, -1 for none: entries up to it are not
        needed to rebuild the tables."""
        return self._state.full_state_log.complete_index

    @property
    def is_state_whole(self) -> bool:
        """Whether the tables have all that the log says: not before a full state, where it began later than that."""
        return self._state.is_whole

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset to consume, -1 for none. On the leader also one that is still on its way into the log, so
        that a client reads its own one-way commit.
        """
        pending = self._proposals.pending_offset(group, topic, queue_id)
        return pending if pending is not None else self.consumer_offset_table.query(group, topic, queue_id)

    # -- status ------------------------------------------------------------------------------------------------

    @property
    def serving(self) -> bool:
        return self._commit_log.serving_term is not None

    @property
    def applied_index(self) -> Index:
        return self._reput.applied_index

    @property
    def confirm_offset(self) -> int:
        """Position behind the last entry that readers can see."""
        return self._reput.confirm_offset

    @property
    def reput_behind(self) -> int:
        """Entries that are committed and not yet dispatched."""
        return self._reput.committed_index - self._reput.applied_index

    @property
    def index(self) -> IndexService:
        """For what it says of itself."""
        return self._index

    @property
    def queues(self) -> ConsumeQueueStore:
        """For listings; not to be changed."""
        return self._queues
