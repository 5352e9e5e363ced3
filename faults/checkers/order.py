"""What was acknowledged before another send began lies before it in their queue.

Of one producer this is the order that RocketMQ promises, if it sends one after the other. It holds between producers
as well, for an acknowledged message is committed, and what is sent later is appended behind it. Of sends that overlap
in time the order says nothing. One whose end nobody knows is judged by where it is read back.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faults.checkers.checker import MessageName, Queue, Violation, message_of, queue_of
from faults.checkers.numbered import Numbered
from faults.history import READ_BACK, Poll, Record, Send, SendBegun


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
        self._begun_ns: dict[int, int] = {}  # of messages that were neither acknowledged nor refused

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {SendBegun: self._begun, Send: self._send, Poll: self._poll}

    def finish(self) -> Iterator[Violation]:
        return iter(())

    def _begun(self, begun: SendBegun) -> Iterator[Violation]:
        self._begun_ns[self._messages.pack(*message_of(begun))] = begun.at_ns
        return iter(())

    def _send(self, send: Send) -> Iterator[Violation]:
        message = self._messages.pack(*message_of(send))
        if send.outcome == "unknown":
            return
        self._begun_ns.pop(message, None)
        if send.outcome == "ok":
            queue = queue_of(send)
            yield from self._stored(message, queue, send.queue_offset, send.begun_ns, send.at_ns)
            self._highest.setdefault(queue, _Highest()).add(send.at_ns, send.queue_offset, message)

    def _poll(self, poll: Poll) -> Iterator[Violation]:
        if poll.group != READ_BACK:
            return
        for delivered in poll.messages:
            if not delivered.producer:
                continue
            message = self._messages.pack(*message_of(delivered))
            begun_ns = self._begun_ns.get(message)
            if begun_ns is not None:
                yield from self._stored(message, queue_of(poll), delivered.queue_offset, begun_ns, None)

    def _stored(
        self, message: int, queue: Queue, offset: int, begun_ns: int, at_ns: int | None
    ) -> Iterator[Violation]:
        highest = self._highest.get(queue)
        before = None if highest is None else highest.before(begun_ns)
        if before is not None and before[0] > offset:
            earlier, name = (MessageName(*self._messages.unpack(packed)) for packed in (before[1], message))
            yield Violation(
                self.name,
                f"message {earlier} was acknowledged at {queue} offset {before[0]} before {name} was sent, "
                f"which was stored before it, at offset {offset}",
                at_ns=at_ns,
                messages=(earlier, name),
            )
