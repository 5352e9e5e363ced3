"""What a checker is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from faults.history import AnyRecord, AtQueue, Delivered, OfMessage, Record, Send, SendBegun


class Queue(NamedTuple):
    broker: str
    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.broker} {self.topic}/{self.queue_id}"


class Place(NamedTuple):
    queue: Queue
    offset: int

    def __str__(self) -> str:
        return f"{self.queue} offset {self.offset}"


class MessageName(NamedTuple):
    producer: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.producer}/{self.sequence}"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: a sentence for a person, and the records that show it.

    `messages` and `places` say what the records of are to be looked up, for a checker that keeps none.
    """

    checker: str
    sentence: str
    at_ns: int | None = None  # where a timeline shows it; None: at the end of a send that it is about
    records: tuple[AnyRecord, ...] = ()
    messages: tuple[MessageName, ...] = ()
    places: tuple[Place, ...] = ()


class Checker(Protocol):
    """Sees the records of a history in the order of time, those of the kinds that it takes. No clock, no files.

    What it keeps grows by some bytes per message, never by whole records.
    """

    name: str

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterable[Violation]]]:
        """What to call with a record of each kind; it gives back what that record shows to be wrong."""
        ...

    def finish(self) -> Iterable[Violation]:
        """What only the end of the history shows."""
        ...


def queue_of(record: AtQueue | Send) -> Queue:
    return Queue(record.broker, record.topic, record.queue_id)


def message_of(record: SendBegun | Send | OfMessage | Delivered) -> MessageName:
    return MessageName(record.producer, record.sequence)


def place_of(send: Send) -> Place:
    """Of one that was acknowledged."""
    return Place(queue_of(send), send.queue_offset)
