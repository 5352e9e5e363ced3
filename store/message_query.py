"""A look-up of messages by key that is under way: it goes on in steps, for one hash may lead to millions of entries."""

from collections.abc import Callable
from typing import Final

from dledger.entry import Index
from message.dispatch_columns import scan_records
from message.errors import MessageDecodeError
from message.key_columns import keys_of
from store.errors import StoreDamagedError
from store.index.index_file_query import IndexFileQuery
from store.index.index_service import IndexService

# Of one step: records are read one by one, from wherever they lie.
RECORDS_PER_STEP: Final = 64
# Of one answer, in bytes; the first record counts whatever its size. RocketMQ has no limit but the number of messages.
RESULT_SIZE_MAX: Final = 4 << 20


class MessageQuery:
    """Finds the newest `count_max` messages of a topic with a key that were stored from `begin_ms` to `end_ms`, both
    included. What lies before the physical offset `begin_of_topic` is of an earlier topic of that name. Waits for the
    index to cover what was visible when it began; begins anew when the index does.
    """

    def __init__(
        self,
        index: IndexService,
        visible_index: Index,
        look_message_by_offset: Callable[[int], bytes | None],
        begin_of_topic: int,
        topic: bytes,
        key: bytes,
        count_max: int,
        begin_ms: int,
        end_ms: int,
    ) -> None:
        self.is_done = False
        self.is_incomplete = False  # it did not wait long enough to see all that was visible
        self._index = index
        self._generation = index.generation
        self._visible_index = visible_index
        self._look = look_message_by_offset
        self._begin_of_topic = begin_of_topic
        self._topic = topic
        self._key = key
        self._count_max = count_max
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._walk: IndexFileQuery | None = None
        self._found: list[bytes] = []  # newest first
        self._size = 0

    @property
    def is_waiting(self) -> bool:
        """For the index to come so far."""
        return self._walk is None and not self._index.covers(self._visible_index)

    @property
    def records(self) -> list[bytes]:
        """Found so far, oldest first."""
        return self._found[::-1]

    def look(self) -> None:
        """Looks at some more of what the index has, whether that is all or not. Raises DiskError, StoreDamagedError."""
        if self._generation != self._index.generation:
            self._generation = self._index.generation
            self._walk, self._size = None, 0
            self._found.clear()
            return  # the caller may rather wait once more than be told what there is
        if self._walk is None:
            self.is_incomplete = self.is_waiting
            self._walk = self._index.query(self._topic, self._key, self._begin_ms, self._end_ms)
        for phy_offset in self._walk.next_offsets(RECORDS_PER_STEP):
            if len(self._found) >= self._count_max:
                break
            record = self._look(phy_offset) if phy_offset >= self._begin_of_topic else None
            if record is None or not self._is_wanted(record):
                continue
            if self._found and self._size + len(record) > RESULT_SIZE_MAX:
                self.is_done = True
                return
            self._found.append(record)
            self._size += len(record)
        self.is_done = self._walk.is_done or len(self._found) >= self._count_max

    def _is_wanted(self, record: bytes) -> bool:
        """Other keys have the same hash, and the index knows times by the second."""
        try:
            columns = scan_records(record, [0])
        except MessageDecodeError as error:
            raise StoreDamagedError(f"an entry of the log holds no sound message: {error}") from error
        return (
            columns.topics[0] == self._topic
            and self._begin_ms <= columns.store_timestamps[0] <= self._end_ms
            and self._key in keys_of(columns.properties[0])
        )
