"""What FIFO consumers of a group have in flight of one queue: RocketMQ's OrderInfo."""

from collections.abc import Sequence
from typing import Any, Self

import msgspec


class OrderInfo(msgspec.Struct):
    """The last pop of the queue, and which of its messages have their ack. Until then, or until they may come again,
    the queue gives no others.
    """

    pop_time: int  # ms; with it a handle names the pop
    attempt_id: str  # a client that asks again with it has not got the answer
    next: int  # queue offset behind what was popped
    visible: dict[int, int]  # offset of each message without ack -> when it may come again, ms
    done: set[int]  # offsets of those that have their ack, behind others that have none
    counts: dict[int, int]  # offset -> how often it was popped before, if it was

    @classmethod
    def of_pop(
        cls,
        previous: Self | None,
        pop_time: int,
        attempt_id: str,
        visible_ms: int,
        offsets: Sequence[int],
        next_offset: int,
    ) -> Self:
        """Note a pop of `offsets`, which are none where all messages up to `next_offset` are gone or acknowledged."""
        counts: dict[int, int] = {}
        done: set[int] = set()
        if previous is not None:
            counts, done = previous.counts, previous.done
            if not attempt_id or attempt_id != previous.attempt_id:
                counts = counts | {offset: counts.get(offset, 0) + 1 for offset in previous.visible}
        order = cls(pop_time, attempt_id, next_offset, dict.fromkeys(offsets, visible_ms), done, counts)
        order._forget_before_first()
        return order

    @property
    def first(self) -> int:
        """The first offset without ack: where the group's offset stands as long as this counts."""
        return min(self.visible, default=self.next)

    def is_blocked(self, attempt_id: str, now_ms: int) -> bool:
        """Whether a pop gets nothing yet."""
        if attempt_id and attempt_id == self.attempt_id:
            return False
        return any(visible_ms > now_ms for visible_ms in self.visible.values())

    def has_ended(self, start: int, bits: int) -> bool:
        """Whether one of these has its ack. Bit i: the message at offset start + i."""
        return any(bits >> offset - start & 1 for offset in self.done if offset >= start)

    def over(self, attempts_max: int, now_ms: int) -> list[int]:
        """Offsets of the messages whose last attempt has expired: they do not come again."""
        return [
            offset
            for offset, visible_ms in self.visible.items()
            if visible_ms <= now_ms and self.counts.get(offset, 0) >= attempts_max
        ]

    @property
    def blocked_until_ms(self) -> int:
        return max(self.visible.values(), default=0)

    def end(self, offset: int) -> None:
        """Note the ack of the message at `offset`, which is in flight."""
        del self.visible[offset]
        self.counts.pop(offset, None)
        self.done.add(offset)
        self._forget_before_first()

    def _forget_before_first(self) -> None:
        if not self.visible:
            while self.next in self.done:
                self.next += 1
        first = self.first
        self.done = {offset for offset in self.done if offset > first}
        self.counts = {offset: count for offset, count in self.counts.items() if offset >= first}

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to remember."""
        return not self.visible and not self.done and not self.counts

    def pack(self) -> list[Any]:
        return [
            self.pop_time,
            self.attempt_id,
            self.next,
            list(self.visible.items()),
            sorted(self.done),
            list(self.counts.items()),
        ]

    @classmethod
    def unpack(cls, values: list[Any]) -> Self:
        pop_time, attempt_id, next_offset, visible, done, counts = values
        return cls(pop_time, attempt_id, next_offset, dict(visible), set(done), dict(counts))
