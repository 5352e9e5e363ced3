"""Puts into a table of ended offsets what RocketMQ has ended in a store that is taken over, before anything else ends.

A leader reads the records of RocketMQ that say so, by and by, and appends what it found: as ranges, in as many records
as they need. A leader that finds the last of these missing does all of it once more.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Container, Generator, Iterator
from typing import Final

from store.queues.unit_queue import UnitQueue
from store.services.deliveries import Deliveries
from store.services.leader_service import LeaderStore
from store.state.ended_offsets_table import NOT_TAKEN_OVER, EndedOffsetsTable, EndOffsets
from store.state.offset_ranges import OffsetRanges

# Of one step, with each tick.
_RECORDS_MAX: Final = 1024
# Of a range in a record, at most.
_RANGE_SIZE: Final = 20

# Yields after each record. Returns the offset below which all have ended, and which have from there on.
Reading = Generator[None, None, tuple[int, OffsetRanges]]


class TakeOver(ABC):
    """Of one leadership."""

    def __init__(
        self, store: LeaderStore, deliveries: Deliveries, table: EndedOffsetsTable, change: type[EndOffsets]
    ) -> None:
        self._store = store
        self._deliveries = deliveries
        self._table = table
        self._change = change
        self._reading: Reading | None = None
        # What is to be appended yet: ranges of what has ended, and below which offset all have.
        self._found: deque[tuple[tuple[tuple[int, int], ...], int]] | None = None

    @property
    def is_done(self) -> bool:
        """Whether all that RocketMQ has ended is in the table."""
        return self._table.first_waiting != NOT_TAKEN_OVER

    def step(self, now_ms: int) -> None:
        """Reads some records, or appends some of what it found, where something may begin. Raises UnitDamagedError,
        MessageDamagedError, DiskError: then the next step begins to read anew.
        """
        if self._found is None:
            self._read_on()
        elif self._found and not self._store.members_without(self._table.name):
            dropped, begin = self._found[0]
            if self._deliveries.append(lambda index: [self._change(index, (), dropped, begin)], (), now_ms):
                self._found.popleft()

    def _read_on(self) -> None:
        if self._reading is None:
            self._reading = self._read()
        try:
            for _ in range(_RECORDS_MAX):
                next(self._reading)
        except StopIteration as end:
            begin, ended = end.value
            ranges = tuple(ended.ranges())
            count = self._store.config.state_record_size_max // _RANGE_SIZE
            parts = [ranges[first : first + count] for first in range(0, len(ranges), count)] or [()]
            self._found = deque((part, NOT_TAKEN_OVER) for part in parts[:-1])
            self._found.append((parts[-1], begin))
        except Exception:
            self._reading = None
            raise

    @abstractmethod
    def _read(self) -> Reading: ...

    def _records(
        self, queue: UnitQueue, offset: int, left_out: Container[int] = ()
    ) -> Iterator[tuple[int, bytes]]:
        """The records of a queue from `offset` on, by their offsets, as far as they are there. Raises UnitDamagedError,
        MessageDamagedError, DiskError.
        """
        end = queue.max_offset
        while offset < end:
            units = queue.units(offset, _RECORDS_MAX)
            if not units:
                offset = queue.first_offset_of_next_file(offset)
                continue
            for unit, at, behind in queue.parse(units, offset):
                record = self._deliveries.record_at(queue, at, unit) if at not in left_out else None
                if record is not None:
                    yield at, record
                offset = behind
