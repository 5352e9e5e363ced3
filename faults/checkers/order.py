"""What was acknowledged before another send began lies before it in their queue.

Of one producer this is the order that RocketMQ promises to who sends one after the other. It holds between producers
as well, for an acknowledged message is committed, and what is sent later is appended behind it. Of sends that overlap
in time the order says nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faults.checkers.checker import MessageName, Queue, Violation, message_of, queue_of
from faults.checkers.numbered import Numbered
from faults.history import Record, Send


class _Highest:
    """The highest offset that was acknowledged in a queue, by time: each step of it costs 24 bytes."""

    def __init__(self) -> None:
        self.ended_ns = array("q")
        self.offsets = array("q")
        self.messages = array("q")

    def add(self, ended_ns: int, offset: int, message: int) -> None:
        if not self.offsets or offset > self.offsets[-1]:
            self.ended_ns.append(ended_ns)
            self.offsets.append(offset)
            self.messages.append(message)

    def before(self, time_ns: int) -> tuple[int, int] | None:
        """(offset, message) as it was then."""
        step = bisect_left(self.ended_ns, time_ns) - 1
        return None if step < 0 else (self.offsets[step], self.messages[step])


class Order:
    name = "order"

    def __init__(self) -> None:
        self._messages = Numbered[str]()
        self._highest: dict[Queue, _Highest] = {}

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {Send: self._send}

    def finish(self) -> Iterator[Violation]:
        return iter(())

    def _send(self, send: Send) -> Iterator[Violation]:
        if send.outcome != "ok":
            return
        queue = queue_of(send)
        highest = self._highest.setdefault(queue, _Highest())
        before = highest.before(send.begun_ns)
        if before is not None and before[0] > send.queue_offset:
            earlier = MessageName(*self._messages.unpack(before[1]))
            yield Violation(
                self.name,
                f"message {earlier} was acknowledged at {queue} offset {before[0]} before {message_of(send)} was sent, "
                f"which was stored before it, at offset {send.queue_offset}",
                at_ns=send.at_ns,
                messages=(earlier, message_of(send)),
            )
        highest.add(send.at_ns, send.queue_offset, self._messages.pack(*message_of(send)))
