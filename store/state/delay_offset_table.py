"""How far each delay level is delivered: the offset in its queue of the next message to deliver.

A delivery is one append: a Delivery record, and behind it, in the entries from `first_index` on, the messages that it
speaks of. A replica may get a part of the batch and no more, so the record alone moves nothing: each of its entries
that is applied moves its level by one. Which entries those are is beyond doubt. A leader appends nothing else at these
indexes in its term, and the next term begins with a no-op, which ends the count: what was cut is still to deliver.
"""

from typing import Any

from dledger.entry import Index
from store.state.state_record import Delivery
from store.state.table_configs import DataVersion


class DelayOffsetTable:
    """Level -> offset of the next message to deliver. Invariant: after settle(index) it is a function of the entries up
    to `index`, however often and where it was settled before.
    """

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.data_version = DataVersion()
        self._under_way: Delivery | None = None
        self._counted = 0  # messages of it that are applied

    def offset(self, level: int) -> int:
        return self.offsets.get(level, 0)

    def begin(self, delivery: Delivery, timestamp: int) -> None:
        """A Delivery record is applied; all entries before it are."""
        self.settle(Index(delivery.first_index - 2))
        self._under_way, self._counted = delivery, 0
        self.data_version = self.data_version.next(timestamp)
        self.settle(Index(delivery.first_index - 1))

    def settle(self, applied_index: Index) -> None:
        """Entries up to there are applied."""
        delivery = self._under_way
        if delivery is None:
            return
        applied = min(max(applied_index + 1 - delivery.first_index, self._counted), delivery.count)
        left = applied
        for level, first_offset, count in delivery.runs:
            done = min(left, count)
            if done or not count:
                self.offsets[level] = first_offset + done
            left -= done
            if done < count:
                break
        version = self.data_version
        self.data_version = DataVersion(version.counter + applied - self._counted, version.timestamp)
        self._counted = applied
        if applied == delivery.count:
            self._under_way = None

    def term_began(self, no_op_index: Index) -> None:
        """What is behind the no-op was not announced by the leader before."""
        self.settle(Index(no_op_index - 1))
        self._under_way = None

    def pack(self) -> list[Any]:
        """For msgpack; unpack() gives an equal table."""
        delivery = self._under_way
        return [
            [self.data_version.counter, self.data_version.timestamp],
            list(self.offsets.items()),
            [delivery.first_index, delivery.runs, self._counted] if delivery is not None else [],
        ]

    def unpack(self, values: list[Any]) -> None:
        """Raises ValueError, TypeError; then it is as before."""
        version, offsets, under_way = values
        table, data_version = dict(offsets), DataVersion(*version)
        delivery, counted = None, 0
        if under_way:
            first_index, runs, counted = under_way
            delivery = Delivery(first_index, tuple((level, offset, count) for level, offset, count in runs))
        self.offsets, self.data_version = table, data_version
        self._under_way, self._counted = delivery, counted
