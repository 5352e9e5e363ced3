"""What was acknowledged, or given to a consumer, is read back once all is healed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faults.checkers.checker import MessageName, Place, Queue, Violation, message_of, place_of, queue_of
from faults.checkers.numbered import Numbered, Values
from faults.history import READ_BACK, Poll, QueueEnd, Record, Send


class LostWrite:
    """Judges the queues alone that were read to their ends: of the others nobody knows what is in them. Each message is
    named once. Another message in the place is inconsistent_offset.py's.
    """

    name = "lost_write"

    def __init__(self) -> None:
        self._messages = Numbered[str]()
        self._places = Numbered[Queue]()
        self._acknowledged = Values()  # message to place
        self._given = Values()  # place to message, by polls of groups
        self._read_back = Values()  # message to 1
        self._taken = Values()  # place to 1, where something was read back
        self._ends: dict[Queue, QueueEnd] = {}

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {Send: self._send, Poll: self._poll, QueueEnd: self._queue_end}

    def _send(self, send: Send) -> Iterator[Violation]:
        if send.outcome == "ok":
            message = self._messages.pack(*message_of(send))
            self._acknowledged.put(message, self._places.pack(*place_of(send)))
        return iter(())

    def _poll(self, poll: Poll) -> Iterator[Violation]:
        queue = queue_of(poll)
        for delivered in poll.messages:
            if not delivered.producer:
                continue
            place = self._places.pack(queue, delivered.queue_offset)
            message = self._messages.pack(*message_of(delivered))
            if poll.group == READ_BACK:
                self._taken.put(place, 1)
                self._read_back.put(message, 1)
            else:
                self._given.put(place, message)
        return iter(())

    def _queue_end(self, end: QueueEnd) -> Iterator[Violation]:
        if end.group == READ_BACK:
            self._ends[queue_of(end)] = end
        return iter(())

    def finish(self) -> Iterator[Violation]:
        named = set[int]()
        for message, packed in self._acknowledged.items():
            end = self._ends.get(self._places.unpack(packed)[0])
            if end is not None and self._read_back.get(message) is None:
                named.add(message)
                yield self._lost(message, packed, end, "acknowledged")
        for packed, message in self._given.items():
            queue, offset = self._places.unpack(packed)
            end = self._ends.get(queue)
            if end is None or offset < end.min_offset or message in named:
                continue
            if self._taken.get(packed) is None:
                named.add(message)
                yield self._lost(message, packed, end, "given to a consumer")

    def _lost(self, message: int, packed: int, end: QueueEnd, what: str) -> Violation:
        name, place = MessageName(*self._messages.unpack(message)), Place(*self._places.unpack(packed))
        where = (
            f"{place.queue} ends at {end.max_offset}"
            if place.offset >= end.max_offset
            else "something else or nothing is there"
        )
        return Violation(
            self.name,
            f"message {name} was {what} at {place}, and is not there when all is healed: {where}",
            messages=(name,),
            places=(place,),
        )
