"""What a group has in flight of one queue, as the pop table keeps it."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from store.state.tables.order_info import OrderInfo

QueueKey = tuple[str, str, int]  # group, topic, queue id
CheckPointKey = tuple[int, int]  # start, pop time

NO_OFFSET: Final = -1
NO_TIME: Final = -1


class CheckPoint(msgspec.Struct, gc=False):
    waiting: int  # bit i: the message at offset start + i is in flight
    visible_ms: int  # when it comes again
    suspend: bool = False  # that is no further attempt
    first_pop_time: int = NO_TIME  # of the message at start, if its invisible time was changed since

    def is_changed_since(self, pop_time: int) -> bool:
        """Whether the message at start was changed since a pop or a change of that time, and not popped since."""
        return bool(self.waiting & 1) and NO_TIME < self.first_pop_time <= pop_time


class PopQueue(msgspec.Struct):
    check_points: dict[CheckPointKey, CheckPoint] = msgspec.field(default_factory=dict)
    end: int = 0  # behind all offsets that were popped
    order: OrderInfo | None = None
    changed: dict[int, CheckPointKey] = msgspec.field(
        default_factory=dict
    )  # with a first pop time, by offset

    def find(self, start: int, pop_time: int, bits: int) -> Iterator[tuple[CheckPointKey, int]]:
        """Find the check points, and in each the bits, of the messages in flight that a handle names.

        A change of a message's invisible time makes a newer handle of it. The older ones go on naming it, but for those
        of an earlier pop.
        """
        here = 0
        if (check_point := self.check_points.get((start, pop_time))) is not None:
            here = check_point.waiting & bits
            if here:
                yield (start, pop_time), here
        if not self.changed or here == bits:
            return
        for number in bit_numbers(bits & ~here):
            key = self.changed.get(start + number, (0, 0))
            check_point = self.check_points.get(key)
            if pop_time < key[1] and check_point is not None and check_point.is_changed_since(pop_time):
                yield key, 1

    def end_messages(self, key: CheckPointKey, bits: int) -> int:
        """End messages of a check point. Returns how many of them were in flight."""
        check_point = self.check_points[key]
        count = (check_point.waiting & bits).bit_count()
        check_point.waiting &= ~bits
        if not check_point.waiting:
            del self.check_points[key]
            if self.changed.get(key[0]) == key:
                del self.changed[key[0]]
        return count

    @property
    def is_empty(self) -> bool:
        return not self.check_points and self.order is None

    @property
    def check_point_count(self) -> int:
        """How many messages check points have in flight."""
        return sum(check_point.waiting.bit_count() for check_point in self.check_points.values())

    @property
    def order_count(self) -> int:
        """How many messages FIFO consumers have in flight."""
        return len(self.order.visible) if self.order is not None else 0

    @property
    def in_flight_count(self) -> int:
        return self.check_point_count + self.order_count

    def pack(self) -> list[Any]:
        # Of tuples: there may be 200,000, and a list of each takes twice the time.
        check_points = [
            (start, pop_time, pack_bits(check_point.waiting), check_point.visible_ms)
            if check_point.first_pop_time == NO_TIME
            else (
                *(start, pop_time, pack_bits(check_point.waiting), check_point.visible_ms),
                *(check_point.suspend, check_point.first_pop_time),
            )
            for (start, pop_time), check_point in self.check_points.items()
        ]
        return [check_points, self.end, self.order.pack() if self.order is not None else []]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "PopQueue":
        packed_check_points, end, order = packed
        check_points = {
            (start, pop_time): CheckPoint(unpack_bits(waiting), visible_ms, *changed)
            for start, pop_time, waiting, visible_ms, *changed in packed_check_points
        }
        changed = {
            key[0]: key for key, check_point in check_points.items() if check_point.first_pop_time != NO_TIME
        }
        return cls(check_points, end, OrderInfo.unpack(order) if order else None, changed)


class Due(NamedTuple):
    """What may be over at `visible_ms`; start NO_OFFSET: of FIFO consumers."""

    visible_ms: int
    key: QueueKey
    start: int
    pop_time: int


def due_of(key: QueueKey, queue: PopQueue) -> list[Due]:
    """List the times at which something of the queue may be over."""
    found = [
        Due(check_point.visible_ms, key, start, pop_time)
        for (start, pop_time), check_point in queue.check_points.items()
    ]
    if queue.order is not None:
        times = set(queue.order.visible.values())
        found += [Due(visible_ms, key, NO_OFFSET, queue.order.pop_time) for visible_ms in times]
    return found


def pack_bits(bits: int) -> bytes:
    """As in BATCH_ACK: bit i of byte 0, 1 and so on."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def unpack_bits(packed: bytes) -> int:
    return int.from_bytes(packed, "little")


def lowest_bit(bits: int) -> int:
    """Return the number of the lowest bit that is set; there must be one."""
    return (bits & -bits).bit_length() - 1


def bit_numbers(bits: int) -> list[int]:
    """Return the numbers of the bits that are set, ascending. A client may set any bit, so gaps cost nothing."""
    numbers = []
    while bits:
        numbers.append(number := lowest_bit(bits))
        bits ^= 1 << number
    return numbers
