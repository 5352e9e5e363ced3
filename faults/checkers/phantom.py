"""What is read was sent by somebody, and what was surely not stored is never read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from faults.checkers.checker import Place, Violation, message_of, queue_of
from faults.checkers.numbered import Flags, Numbered
from faults.history import (
    Delivered,
    Poll,
    Record,
    Send,
    SendBegun,
    Sent,
    Timer,
    TimerBegun,
    Transaction,
    TransactionBegun,
)

_BEGUN: Final = 1
_READ: Final = 2
_REFUSED: Final = 4
_NAMED: Final = 8


class Phantom:
    """Each message is named once."""

    name = "phantom"

    def __init__(self) -> None:
        self._messages = Numbered[str]()
        self._states = Flags()
        self._foreign: set[Place] = set()

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {
            SendBegun: self._begun,
            TransactionBegun: self._begun,
            TimerBegun: self._begun,
            Send: self._ended,
            Sent: self._ended,
            Transaction: self._ended,
            Timer: self._ended,
            Poll: self._poll,
        }

    def finish(self) -> Iterator[Violation]:
        return iter(())

    def _begun(self, begun: SendBegun | TransactionBegun | TimerBegun) -> Iterator[Violation]:
        self._states.add(self._messages.pack(*message_of(begun)), _BEGUN)
        return iter(())

    def _ended(self, send: Send | Sent | Transaction | Timer) -> Iterator[Violation]:
        if send.outcome == "fail":
            message = self._messages.pack(*message_of(send))
            state = self._states.add(message, _REFUSED)
            if state & _READ and not state & _NAMED:
                self._states.add(message, _NAMED)
                yield Violation(
                    self.name,
                    f"message {message_of(send)} was read, and its send ended as surely not stored: {send.reason}",
                    at_ns=send.at_ns,
                    messages=(message_of(send),),
                )

    def _poll(self, poll: Poll) -> Iterator[Violation]:
        for delivered in poll.messages:
            if not delivered.producer:
                yield from self._foreign_body(poll, delivered)
                continue
            message = self._messages.pack(*message_of(delivered))
            state = self._states.add(message, _READ)
            if state & _NAMED or state & (_BEGUN | _REFUSED) == _BEGUN:
                continue
            self._states.add(message, _NAMED)
            why = "its send ended as surely not stored" if state & _REFUSED else "nobody had sent it"
            yield Violation(
                self.name,
                f"message {message_of(delivered)} was read at {queue_of(poll)} offset {delivered.queue_offset}, "
                f"and {why}",
                at_ns=poll.at_ns,
                messages=(message_of(delivered),),
            )

    def _foreign_body(self, poll: Poll, delivered: Delivered) -> Iterator[Violation]:
        place = Place(queue_of(poll), delivered.queue_offset)
        if place not in self._foreign:
            self._foreign.add(place)
            yield Violation(
                self.name,
                f"at {place} a body was read that no producer of the run sent (id {delivered.msg_id})",
                at_ns=poll.at_ns,
                places=(place,),
            )
