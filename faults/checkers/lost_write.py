"""What was acknowledged is read back once all is healed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faults.checkers.checker import MessageName, Place, Queue, Violation, message_of, place_of, queue_of
from faults.checkers.numbered import Numbered, Values
from faults.history import READ_BACK, Poll, QueueEnd, Record, Send


class LostWrite:
    """Judges the queues alone that were read to their ends: of the others nobody knows what is in them."""

    name = "lost_write"

    def __init__(self) -> None:
        self._messages = Numbered[str]()
        self._places = Numbered[Queue]()
        self._acknowledged = Values()  # message to place
        self._read_back = Values()  # message to 1
        self._ends: dict[Queue, int] = {}

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {Send: self._send, Poll: self._poll, QueueEnd: self._queue_end}

    def _send(self, send: Send) -> Iterator[Violation]:
        if send.outcome == "ok":
            message = self._messages.pack(*message_of(send))
            self._acknowledged.put(message, self._places.pack(*place_of(send)))
        return iter(())

    def _poll(self, poll: Poll) -> Iterator[Violation]:
        if poll.group == READ_BACK:
            for delivered in poll.messages:
                if delivered.producer:
                    self._read_back.put(self._messages.pack(*message_of(delivered)), 1)
        return iter(())

    def _queue_end(self, end: QueueEnd) -> Iterator[Violation]:
        if end.group == READ_BACK:
            self._ends[queue_of(end)] = end.max_offset
        return iter(())

    def finish(self) -> Iterator[Violation]:
        for message, packed in self._acknowledged.items():
            if self._read_back.get(message) is not None:
                continue
            place = Place(*self._places.unpack(packed))
            end = self._ends.get(place.queue)
            if end is None:
                continue
            name = MessageName(*self._messages.unpack(message))
            where = (
                f"{place.queue} ends at {end}"
                if place.offset >= end
                else "something else or nothing is there"
            )
            yield Violation(
                self.name,
                f"message {name} was acknowledged at {place}, and is not there when all is healed: {where}",
                messages=(name,),
                places=(place,),
            )
