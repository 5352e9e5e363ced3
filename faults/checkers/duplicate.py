"""A message that was sent once is stored once; of a transaction or a timer, for consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faults.checkers.checker import MessageName, Place, Queue, Violation, message_of, queue_of
from faults.checkers.numbered import Numbered, Values
from faults.history import Poll, Record, Send, Sent, Timer, Transaction


class Duplicate:
    """Of a send that was tried again, or whose end nobody noted, two places are no wonder. A message that is delivered
    again from its one place is none either, nor its copy in a retry topic.
    """

    name = "duplicate"

    def __init__(self) -> None:
        self._messages = Numbered[str]()
        self._places = Numbered[Queue]()
        self._attempts = Values()
        self._read_at = Values()  # message to the first place
        self._second: dict[int, tuple[int, int]] = {}  # message to another place, and when it was read there

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {**dict.fromkeys((Send, Sent, Transaction, Timer), self._send), Poll: self._poll}

    def _send(self, send: Send | Sent | Transaction | Timer) -> Iterator[Violation]:
        self._attempts.put(self._messages.pack(*message_of(send)), send.attempts)
        return iter(())

    def _poll(self, poll: Poll) -> Iterator[Violation]:
        queue = queue_of(poll)
        for delivered in poll.messages:
            if not delivered.producer:
                continue
            message = self._messages.pack(*message_of(delivered))
            place = self._places.pack(queue, delivered.queue_offset)
            first = self._read_at.get(message)
            if first is None:
                self._read_at.put(message, place)
            elif first != place and self._places.unpack(first)[0].topic == poll.topic:
                self._second.setdefault(message, (place, poll.at_ns))
        return iter(())

    def finish(self) -> Iterator[Violation]:
        for message, (second, at_ns) in self._second.items():
            if self._attempts.get(message) != 1:
                continue
            name = MessageName(*self._messages.unpack(message))
            first = self._read_at.get(message)
            assert first is not None, "a second place comes after a first one"
            places = tuple(Place(*self._places.unpack(packed)) for packed in (first, second))
            yield Violation(
                self.name,
                f"message {name} was sent once, and was read at {places[0]} and at {places[1]}",
                at_ns=at_ns,
                messages=(name,),
                places=places,
            )
