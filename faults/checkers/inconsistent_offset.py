"""An offset belongs to one message, whoever tells it, and a message is where its acknowledgement said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faults.checkers.checker import MessageName, Place, Queue, Violation, message_of, place_of, queue_of
from faults.checkers.numbered import Numbered, Values
from faults.history import Poll, Record, Send


class InconsistentOffset:
    """Each place is named once. One message that was read at two places is duplicate.py's."""

    name = "inconsistent_offset"

    def __init__(self) -> None:
        self._messages = Numbered[str]()
        self._places = Numbered[Queue]()
        self._owner_told = Values()  # place to message, by acknowledgements
        self._owner_read = Values()  # place to message, by polls
        self._told_at = Values()  # message to place, by its acknowledgement
        self._read_at = Values()  # message to the first place where it was read
        self._named: set[int] = set()

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {Send: self._send, Poll: self._poll}

    def _send(self, send: Send) -> Iterator[Violation]:
        if send.outcome == "ok":
            message = self._messages.pack(*message_of(send))
            place = self._places.pack(*place_of(send))
            self._told_at.put(message, place)
            yield from self._claim(self._owner_told, place, message, send.at_ns, "acknowledged")

    def _poll(self, poll: Poll) -> Iterator[Violation]:
        queue = queue_of(poll)
        for delivered in poll.messages:
            if not delivered.producer:
                continue
            message = self._messages.pack(*message_of(delivered))
            place = self._places.pack(queue, delivered.queue_offset)
            if self._read_at.get(message) is None:
                self._read_at.put(message, place)
            yield from self._claim(self._owner_read, place, message, poll.at_ns, "read")

    def _claim(self, owners: Values, place: int, message: int, at_ns: int, verb: str) -> Iterator[Violation]:
        owner = owners.get(place)
        if owner is None:
            owners.put(place, message)
        elif owner != message and place not in self._named:
            yield self._two(place, owner, message, f"both {verb}", at_ns)

    def _two(self, place: int, first: int, second: int, how: str, at_ns: int | None) -> Violation:
        self._named.add(place)
        names = tuple(MessageName(*self._messages.unpack(message)) for message in (first, second))
        where = Place(*self._places.unpack(place))
        return Violation(
            self.name,
            f"messages {names[0]} and {names[1]} are {how} at {where}",
            at_ns=at_ns,
            messages=names,
            places=(where,),
        )

    def finish(self) -> Iterator[Violation]:
        for message, told in self._told_at.items():
            there = self._owner_read.get(told)
            if there == message or told in self._named:
                continue
            if there is not None:
                yield self._two(told, message, there, "acknowledged and read, in this order,", None)
                continue
            read = self._read_at.get(message)
            if read is not None:
                name = MessageName(*self._messages.unpack(message))
                places = tuple(Place(*self._places.unpack(packed)) for packed in (told, read))
                yield Violation(
                    self.name,
                    f"message {name} was acknowledged at {places[0]}, and was read at {places[1]} only",
                    messages=(name,),
                    places=places,
                )
