"""What may be asked of a store and changes nothing: messages, offsets, how far it is."""

from dledger.entry import Index
from store.errors import UnitDamagedError
from store.filter.message_filter import MessageFilter
from store.get_message import BoundaryType, GetMessageResult
from store.index.index_service import IndexService
from store.message_query import MessageQuery
from store.message_reader import MessageReader
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_rebuild import UnitRebuild
from store.reput import Reput
from store.state.state_machine import StateMachine
from store.state.state_proposals import StateProposals


class StoreReads:
    """Invariant: nothing is seen here that is not applied, but for query_offset(). A reader that meets a damaged unit
    has it mended soon, and raises.
    """

    def __init__(
        self,
        queues: ConsumeQueueStore,
        reader: MessageReader,
        index: IndexService,
        reput: Reput,
        state: StateMachine,
        proposals: StateProposals,
        unit_rebuild: UnitRebuild,
    ) -> None:
        self._queues = queues
        self._reader = reader
        self._index = index
        self._reput = reput
        self._state = state
        self._proposals = proposals
        self._unit_rebuild = unit_rebuild

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
        self._unit_rebuild.want(topic.encode(), queue_id, error.queue_offset)

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        return self._reader.is_in_memory(topic.encode(), queue_id, offset)

    # -- offsets and how far it is -----------------------------------------------------------------------------

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
        if pending is not None:
            return pending
        return self._state.tables.consumer_offset_table.query(group, topic, queue_id)

    @property
    def applied_index(self) -> Index:
        return self._reput.applied_index

    @property
    def committed_index(self) -> Index:
        return self._reput.committed_index

    @property
    def confirm_offset(self) -> int:
        """Position behind the last entry that readers can see."""
        return self._reput.confirm_offset

    @property
    def reput_behind(self) -> int:
        """Entries that are committed and not yet dispatched."""
        return self._reput.committed_index - self._reput.applied_index
