"""The ConsumeQueue of one topic and queue id: where each of its messages lies, by queue offset."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count as numbers_from

from store.dispatch_request import DispatchRequest, unit_bytes
from store.layout.consume_queue_unit import CQ_UNIT, CQ_UNIT_SIZE, FILLER
from store.queues.unit_queue import Unit, UnitQueue

log = logging.getLogger(__name__)


class ConsumeQueue(UnitQueue):
    """Invariant: the number of a unit is its message's queue offset."""

    is_batch = False
    unit_size = CQ_UNIT_SIZE
    __slots__ = ()

    @property
    def min_offset(self) -> int:
        return self.first_unit

    @property
    def max_offset(self) -> int:
        return self.end_unit

    def put(self, request: DispatchRequest) -> int:
        queue_offset, units = request.queue_offset, unit_bytes(request)
        expected = self.end_unit
        count = len(units) // CQ_UNIT_SIZE
        if expected == self.first_unit and expected:
            self._begin_again()
        if queue_offset != expected:
            if queue_offset < expected:
                repeated = expected - queue_offset
                if repeated >= count:
                    return 0
                units = units[repeated * CQ_UNIT_SIZE :]
                count -= repeated
            elif expected == 0:
                self._begin_at(queue_offset)
            else:
                # A leader gives dense offsets, so this is a log of other hands or a fault; every reader sees the gap.
                log.error(
                    "queue offset gap topic=%s queue_id=%d expected=%d found=%d",
                    self.topic.decode(errors="replace"),
                    self.queue_id,
                    expected,
                    queue_offset,
                )
                self._tail += FILLER * (queue_offset - expected)
                self.end_unit = queue_offset
        self._tail += units
        self.end_unit += count
        return count

    def units(self, offset: int, count: int) -> bytes:
        return self._read(offset, count)

    def unit(self, offset: int) -> Unit | None:
        return self._unit_at(offset) if self.first_unit <= offset < self.end_unit else None

    def parse(self, units: bytes, offset: int) -> Iterator[tuple[Unit, int, int]]:
        return zip(CQ_UNIT.iter_unpack(units), numbers_from(offset), numbers_from(offset + 1), strict=False)

    def number_of(self, offset: int) -> int:
        return offset

    def unit_at(self, number: int) -> tuple[int, Unit] | None:
        unit = self.unit(number)
        return (number, unit) if unit is not None else None

    def first_offset_of_next_file(self, offset: int) -> int:
        return offset - offset % self.units_per_file + self.units_per_file

    def restore(self, min_offset: int, max_offset: int) -> str | None:
        self.files.delete_listed_before(min_offset * CQ_UNIT_SIZE)
        self.files.load(accept_short=True)
        self.first_unit, self.end_unit = min_offset, max_offset
        self.flushed_unit = self._tail_from = max_offset
        if fault := self._fault_of_files():
            return fault
        self._zero_behind()
        return None

    def start_empty(self, offset: int) -> None:
        assert self.end_unit == 0, "only a new queue can start anywhere"
        self.first_unit = self.end_unit = self.flushed_unit = self._tail_from = offset
        self.sums.begin(offset, offset)

    def correct_min_offset(self, min_phy_offset: int) -> None:
        self.begin_with(self._first_at_or_behind(min_phy_offset))

    def begin_with(self, number: int) -> None:
        self.first_unit = number

    def _unit_at(self, number: int) -> Unit | None:
        data = self._read(number, 1)
        return CQ_UNIT.unpack(data) if data else None

    def _begin_again(self) -> None:
        """A unit comes to a queue of which none was left."""
        offset = self.end_unit
        if not self._tail and self.files.find_mapped_file_by_offset(offset * CQ_UNIT_SIZE) is None:
            self._begin_at(offset)

    def _begin_at(self, queue_offset: int) -> None:
        """The first message of a queue whose earlier ones are gone: fillers lead up to it from its file's start."""
        first = queue_offset - queue_offset % self.units_per_file
        if self.files.mapped_files and self.files.end_offset != first * CQ_UNIT_SIZE:
            # Nothing in them counts any more, and the new one would not lie behind them.
            self.files.delete_from(0)
        self._tail_from = self.flushed_unit = first
        self.sums.begin(first, first)
        self._tail += FILLER * (queue_offset - first)
        self.first_unit = self.end_unit = queue_offset
