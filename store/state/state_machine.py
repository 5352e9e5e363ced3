"""The replicated tables as a state machine: applies state entries, and writes and reads full-state records.

A member whose log does not reach back to the first entry has no whole state at first. It keeps the changes that it
meets until a full-state record completes, takes that, and applies what came after the record's index.

Entries that Java's broker wrote say nothing of the tables, which it changed in its config/*.json. So behind them the
state is unknown in the same way, until a leader has put into the log what it found in its files: that, too, is a
full-state record.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import msgpack

from dledger.entry import Index, Term
from store.errors import StateRecordError
from store.queues.consume_queue_store import QueueRow
from store.state.deleted_topics import DeletedTopics
from store.state.full_state import FullState, FullStateLog, split_full_state
from store.state.state_record import FullStatePart, pack_full_state_part, unpack_record
from store.state.state_tables import StateTables
from store.state.table import StateChange
from store.state.tables.topic_config_table import DeleteTopic

# Of a full-state part's message around its data.
_PART_OVERHEAD = 512
_NO_INDEX = Index(-1)


class StateMachine:
    """Invariant: if `is_whole`, the tables are those of every member that has applied the same entries."""

    def __init__(
        self,
        *,
        is_whole: bool,
        before_begin_index: Index = _NO_INDEX,
        imported_tables: list[Any] | None = None,
        imported_index: Index = _NO_INDEX,
        topic_deleted: Callable[[str], None] = lambda topic: None,
    ) -> None:
        """`is_whole`: the log begins with its first entry, so what is applied from there is all there is. Else it
        begins behind `before_begin_index`. `imported_tables` are the state at `imported_index`: state entries up to
        there are of a life of the store that ended. `topic_deleted` hears of each deletion once all entries before it
        are applied, also where the state is not whole. Raises StateRecordError.
        """
        self.tables = StateTables()
        self.deleted_topics = DeletedTopics()
        self._topic_deleted = topic_deleted
        if imported_tables:
            self.tables.unpack(imported_tables)
        self._imported_index = imported_index
        self.full_state_log = FullStateLog()
        self.is_whole = is_whole
        self.needs_import = False  # Java's entries were applied, and no state was written behind them
        self._before_begin_index = before_begin_index
        # Index, timestamp, changes; None for changes: the no-op of a new term.
        self._kept: list[tuple[Index, int, list[StateChange] | None]] = []
        self._to_write: deque[FullStatePart] = deque()
        self._part_index: Index | None = None  # of the part appended and not applied yet

    def restore(self, tables: list[Any], full_state_log: list[Any], deleted_topics: list[Any]) -> None:
        """From a checkpoint. Raises StateRecordError."""
        self.tables.unpack(tables)
        self.deleted_topics.unpack(deleted_topics)
        self.full_state_log.unpack(full_state_log)
        self.is_whole, self.needs_import = True, False

    def is_in_log(self, full_state_log: list[Any]) -> bool:
        """Whether the log alone makes the state whole, a checkpoint says of its full states this."""
        checked = FullStateLog()
        checked.unpack(full_state_log)
        return self.is_whole or checked.complete_index >= self._before_begin_index

    def begin_anew(self, before_begin_index: Index) -> None:
        """The log begins anew. Behind a later entry than before the tables stay as they were, to be looked at, until a
        full-state record takes their place; with its first entry, all there ever was is applied once more.
        """
        self.full_state_log = FullStateLog()
        self.is_whole, self.needs_import = before_begin_index < 0, False
        if self.is_whole:
            self.tables.unpack(StateTables().pack())
        self._before_begin_index = before_begin_index
        self._kept.clear()
        self.stop_writing()

    def java_term_began(self, index: Index) -> None:
        """The entries from `index` on, up to the next no-op, are Java's."""
        self.begin_anew(index)
        self.needs_import = True

    @property
    def java_index(self) -> Index:
        """While `needs_import`: of the first entry of Java's last term."""
        return self._before_begin_index

    def apply(self, body: bytes, index: Index, pos: int, timestamp: int) -> list[QueueRow]:
        """One state entry: its message's body and storeTimestamp (ms), its index and position. Returns queues to be
        known from now on, with their offsets. Raises StateRecordError.
        """
        record = unpack_record(body)
        if not isinstance(record, FullStatePart):
            self._note_deletions(record, pos)
        if index <= self._imported_index:
            return []
        if isinstance(record, FullStatePart):
            full_state = self.full_state_log.add(record, pos)
            if full_state is None or self.is_whole:
                return []
            # Its parts may lie far behind what it speaks of: changes in between are gone with the log's beginning.
            if full_state.applied_index < self._before_begin_index:
                return []
            return self._take(full_state)
        if self.is_whole:
            self._apply_changes(record, index, timestamp)
        else:
            self._kept.append((index, timestamp, record))
        return []

    def _apply_changes(self, changes: list[StateChange], index: Index, timestamp: int) -> None:
        """All entries before `index` are applied, whether somebody has settled the tables since or not."""
        self.tables.settle(Index(index - 1))
        self.tables.apply(changes, timestamp)

    def _note_deletions(self, changes: list[StateChange], pos: int) -> None:
        for change in changes:
            if isinstance(change, DeleteTopic):
                self.deleted_topics.add(change.topic, pos)
                self._topic_deleted(change.topic)

    def term_began(self, no_op_index: Index) -> None:
        """Another term's leader does not complete what the one before has begun."""
        if no_op_index <= self._imported_index:
            return
        self.full_state_log.void()
        if self.is_whole:
            self.tables.term_began(no_op_index)
        else:
            self._kept.append((no_op_index, 0, None))

    def settle(self, applied_index: Index) -> None:
        """Entries up to there are applied, of whatever kind."""
        if self.is_whole:
            self.tables.settle(applied_index)

    # -- writing full states, as leader ------------------------------------------------------------------------

    def begin_full_state(
        self,
        end_pos: int,
        data_file_size: int,
        record_size_max: int,
        term: Term,
        applied_index: Index,
        rows: Callable[[], list[QueueRow]],
    ) -> None:
        """Freezes the state as it is at `applied_index`, if a full-state record is due."""
        if self._to_write or self._part_index is not None or not self.is_whole:
            return
        if self.full_state_log.is_due(end_pos, data_file_size):
            self._freeze(self.tables, rows(), record_size_max, term, applied_index, is_imported=False)

    def begin_import(
        self,
        tables: StateTables,
        rows: list[QueueRow],
        record_size_max: int,
        term: Term,
        applied_index: Index,
    ) -> None:
        """As begin_full_state(), of tables that Java left."""
        assert self.needs_import, "Java's entries are in the log"
        assert not self._to_write, "one full state at a time"
        self._freeze(tables, rows, record_size_max, term, applied_index, is_imported=True)

    def _freeze(
        self,
        tables: StateTables,
        rows: list[QueueRow],
        record_size_max: int,
        term: Term,
        applied_index: Index,
        *,
        is_imported: bool,
    ) -> None:
        data = msgpack.packb([tables.pack(), rows], unicode_errors="surrogateescape")
        part_size_max = record_size_max - _PART_OVERHEAD
        self._to_write.extend(
            split_full_state(data, term, applied_index, part_size_max, is_imported=is_imported)
        )

    def next_part(self) -> bytes | None:
        """The body of the next part to append, None while one is under way or none is left."""
        if self._part_index is not None or not self._to_write:
            return None
        return pack_full_state_part(self._to_write[0])

    def part_appended(self, index: Index) -> None:
        self._to_write.popleft()
        self._part_index = index

    def part_applied(self, index: Index) -> None:
        if index == self._part_index:
            self._part_index = None

    def stop_writing(self) -> None:
        """The leadership has ended, or a new one begins."""
        self._to_write.clear()
        self._part_index = None

    def _take(self, full_state: FullState) -> list[QueueRow]:
        try:
            tables, rows = msgpack.unpackb(
                full_state.data, strict_map_key=False, unicode_errors="surrogateescape"
            )
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise StateRecordError(f"a full state that cannot be read: {error!r}") from error
        self.tables.unpack(tables)
        self.is_whole, self.needs_import = True, False
        for index, timestamp, changes in self._kept:
            if index <= full_state.applied_index:
                continue
            if changes is None:
                self.tables.term_began(index)
            else:
                self._apply_changes(changes, index, timestamp)
        self._kept.clear()
        return [(topic, queue_id, low, high) for topic, queue_id, low, high in rows]
