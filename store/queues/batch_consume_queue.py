"""The BatchConsumeQueue of one topic and queue id: where each of its inner batches lies, by the queue offsets of the
messages in it.

Its files hold unit behind unit whatever the offsets are, without fillers. Up to which unit they count is found in them:
a checkpoint knows the offsets alone.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator

from disk.mapped_file import DescriptorCache
from store.dispatch_request import DispatchRequest, unit_bytes
from store.layout.batch_unit import BATCH_UNIT, BATCH_UNIT_SIZE
from store.queues.unit_queue import Unit, UnitQueue

log = logging.getLogger(__name__)


class BatchConsumeQueue(UnitQueue):
    """Invariant: offsets grow from unit to unit; min_offset is the first one of unit `first_unit`, max_offset the one
    behind the last unit, unless no unit is left and both are what the next one begins with.
    """

    is_batch = True
    unit_size = BATCH_UNIT_SIZE
    __slots__ = ("_max_offset", "_min_offset")

    def __init__(
        self, descriptors: DescriptorCache, directory: str, file_size: int, topic: bytes, queue_id: int
    ) -> None:
        super().__init__(descriptors, directory, file_size, topic, queue_id)
        self._min_offset = 0
        self._max_offset = 0

    @property
    def min_offset(self) -> int:
        return self._min_offset

    @property
    def max_offset(self) -> int:
        return self._max_offset

    def put(self, request: DispatchRequest) -> int:
        bases = [values[4] for values in BATCH_UNIT.iter_unpack(unit_bytes(request))]
        skip = bisect_left(bases, self._max_offset)
        if skip == len(bases):
            return 0
        if self._min_offset == self._max_offset:
            self._begin_at(bases[skip])
        elif bases[skip] > self._max_offset:
            # As in a ConsumeQueue; but here a pull goes on with the next batch.
            log.error(
                "queue offset gap topic=%s queue_id=%d expected=%d found=%d",
                self.topic.decode(errors="replace"),
                self.queue_id,
                self._max_offset,
                bases[skip],
            )
        self._tail += b"".join(request.units[skip:])
        self.end_unit += len(bases) - skip
        self._max_offset = request.next_offset
        return len(bases) - skip

    def units(self, offset: int, count: int) -> bytes:
        return self._read(self.number_of(offset), count)

    def unit(self, offset: int) -> Unit | None:
        return (
            self._unit_at(self.number_of(offset)) if self._min_offset <= offset < self._max_offset else None
        )

    def parse(self, units: bytes, offset: int) -> Iterator[tuple[Unit, int, int]]:
        for phy_offset, size, tags_code, _, base, count, _, _ in BATCH_UNIT.iter_unpack(units):
            yield (phy_offset, size, tags_code), base, base + count

    def first_offset_of_next_file(self, offset: int) -> int:
        number = self.number_of(offset)
        bounds = self._bounds_of(number - number % self.units_per_file + self.units_per_file)
        return bounds[0] if bounds is not None else self._max_offset

    def restore(self, min_offset: int, max_offset: int) -> str | None:
        self.files.load(accept_short=True)
        first = self.files.min_offset // BATCH_UNIT_SIZE
        self.end_unit = self._tail_from = self.files.end_offset // BATCH_UNIT_SIZE

        def is_behind(number: int) -> bool:
            bounds = self._bounds_of(number)
            return bounds is None or bounds[0] >= max_offset or bounds[0] == bounds[1]

        self.end_unit = first + bisect_left(range(first, self.end_unit), True, key=is_behind)
        self.flushed_unit = self._tail_from = self.end_unit
        self._min_offset, self._max_offset = min_offset, max_offset
        self.first_unit = first
        if min_offset == max_offset:
            self.first_unit = self.end_unit
        else:
            self.first_unit = self.number_of(min_offset)
            begin, end = self._bounds_of(self.first_unit), self._bounds_of(self.end_unit - 1)
            if begin is None or end is None or (begin[0], end[1]) != (min_offset, max_offset):
                return f"the files do not hold the batches of offsets {min_offset} to {max_offset - 1}"
        if fault := self._fault_of_files():
            return fault
        self._zero_behind()
        return None

    def start_empty(self, offset: int) -> None:
        assert self._max_offset == 0, "only a new queue can start anywhere"
        self._min_offset = self._max_offset = offset

    def correct_min_offset(self, min_phy_offset: int) -> None:
        self.begin_with(self._first_at_or_behind(min_phy_offset))

    def begin_with(self, number: int) -> None:
        if number != self.first_unit:
            bounds = self._bounds_of(number)
            self.first_unit = number
            self._min_offset = bounds[0] if bounds is not None else self._max_offset

    def number_of(self, offset: int) -> int:
        """Of the first unit that ends behind `offset`."""

        def is_there(number: int) -> bool:
            bounds = self._bounds_of(number)
            return bounds is None or bounds[1] > offset

        return self.first_unit + bisect_left(range(self.first_unit, self.end_unit), True, key=is_there)

    def unit_at(self, number: int) -> tuple[int, Unit] | None:
        unit = self._unit_at(number) if self.first_unit <= number < self.end_unit else None
        bounds = self._bounds_of(number) if unit is not None else None
        return (bounds[0], unit) if unit is not None and bounds is not None else None

    def _bounds_of(self, number: int) -> tuple[int, int] | None:
        """The first queue offset of a batch, and the one behind its last; equal where nothing is written."""
        data = self._read(number, 1)
        if not data:
            return None
        _, _, _, _, base, count, _, _ = BATCH_UNIT.unpack(data)
        return base, base + count

    def _unit_at(self, number: int) -> Unit | None:
        data = self._read(number, 1)
        return BATCH_UNIT.unpack(data)[:3] if data else None

    def _begin_at(self, queue_offset: int) -> None:
        """A batch comes to a queue of which none is left. Java looks for the first one where a file begins."""
        if not self.has_units:
            self._tail.clear()
            self.end_unit = self.flushed_unit = self._tail_from = 0
            self.sums.begin(0, 0)
        self.first_unit = self.end_unit
        self._min_offset = queue_offset
