"""Of messages that a group is given by pops, each ends acknowledged or dead, and comes no more once it is acknowledged.

Of a message group none is given before those that were acknowledged before it was sent have ended, unless one answer
brings them together: then they are in its order. How often a message comes before it ends says nothing. A group with an
expression is given what matches, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from faults.checkers.checker import MessageName, Violation, message_of
from faults.checkers.numbered import Numbered, Values
from faults.history import (
    Acknowledgement,
    Dead,
    FilteredGroup,
    OfMessage,
    RecallBegun,
    Received,
    Record,
    Run,
    Sent,
    Timer,
    Transaction,
    TransactionSaid,
)

_STORED: Final = 1
_COMMIT: Final = 2
_RECALLED: Final = 4  # maybe
_TRANSACTION: Final = 8
_MAYBE_TWICE: Final = 16  # it was sent again, and each copy is to be acknowledged


@dataclass(slots=True)
class _Group:
    topic: str
    ended: Values = field(default_factory=Values)  # message to 1: acknowledged, maybe so, or dead
    acked_ns: Values = field(default_factory=Values)  # surely
    given_ns: Values = field(default_factory=Values)  # when the answer was asked for that brought it last
    open: dict[str, int] = field(default_factory=dict)  # by message group: how many of its first have ended


class PopPromises:
    """Messages of one message group have one producer, and their sequences rise."""

    name = "pop"

    def __init__(self) -> None:
        self._messages = Numbered[str]()
        self._states = Values()
        self._topics: dict[str, list[int]] = {}  # the messages that were acknowledged to their producers
        self._in_order: dict[str, list[int]] = {}  # likewise, by message group
        self._groups: dict[str, _Group] = {}
        self._filtered: dict[str, FilteredGroup] = {}

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {
            Run: self._run,
            Sent: self._sent,
            Timer: self._sent,
            Transaction: self._sent,
            TransactionSaid: self._said,
            RecallBegun: self._recalled,
            Received: self._received,
            Acknowledgement: self._acknowledged,
            Dead: self._dead,
        }

    def _run(self, run: Run) -> Iterator[Violation]:
        self._filtered = {filtered.group: filtered for filtered in run.filtered}
        return iter(())

    def _matches(self, group: str, message: int) -> bool:
        filtered = self._filtered.get(group)
        return filtered is None or filtered.takes(self._name(message).sequence)

    def _sent(self, sent: Sent | Timer | Transaction) -> Iterator[Violation]:
        message = self._pack(sent)
        self._add(message, _MAYBE_TWICE if sent.attempts > 1 else 0)
        if sent.outcome == "ok":
            self._add(message, _STORED | (_TRANSACTION if isinstance(sent, Transaction) else 0))
            self._topics.setdefault(sent.topic, []).append(message)
            if isinstance(sent, Sent) and sent.message_group:
                self._in_order.setdefault(sent.message_group, []).append(message)
        return iter(())

    def _said(self, said: TransactionSaid) -> Iterator[Violation]:
        self._add(self._pack(said), _COMMIT if said.state == "commit" else 0)
        return iter(())

    def _recalled(self, begun: RecallBegun) -> Iterator[Violation]:
        self._add(self._pack(begun), _RECALLED)
        return iter(())

    def _received(self, received: Received) -> Iterator[Violation]:
        message = self._pack(received)
        if not self._matches(received.group, message):
            what = f"was given to group {received.group}, whose expression does not match it"
            yield self._violation(message, what, received.at_ns)
        group = self._groups.setdefault(received.group, _Group(received.topic))
        acked_ns = group.acked_ns.get(message)
        is_one = not self._add(message, 0) & _MAYBE_TWICE
        if is_one and acked_ns is not None and acked_ns < received.begun_ns:
            after_ms = (received.begun_ns - acked_ns) // 1_000_000
            yield self._violation(
                message,
                f"was given to group {received.group} by an answer that was asked for {after_ms} ms after "
                "its acknowledgement was confirmed",
                received.at_ns,
            )
        if received.message_group and group.given_ns.get(message) is None:
            yield from self._overtaken(message, group, received)
        group.given_ns.put(message, received.begun_ns)

    def _overtaken(self, message: int, group: _Group, received: Received) -> Iterator[Violation]:
        """Of the message group's earlier ones, those that have not ended."""
        in_order = self._in_order.get(received.message_group, [])
        first = group.open.get(received.message_group, 0)
        while first < len(in_order) and group.ended.get(in_order[first]) is not None:
            first += 1
        group.open[received.message_group] = first
        for earlier in in_order[first:]:
            if earlier >= message:
                return
            if group.ended.get(earlier) is None and group.given_ns.get(earlier) != received.begun_ns:
                yield self._violation(
                    message,
                    f"was given to group {received.group} before {self._name(earlier)} of its message group "
                    f"{received.message_group} had ended",
                    received.at_ns,
                )
                return

    def _acknowledged(self, ack: Acknowledgement) -> Iterator[Violation]:
        group = self._groups.get(ack.group)
        if group is not None and ack.outcome != "fail":
            group.ended.put(self._pack(ack), 1)
            if ack.outcome == "ok":
                group.acked_ns.put(self._pack(ack), ack.at_ns)
        return iter(())

    def _dead(self, dead: Dead) -> Iterator[Violation]:
        group = self._groups.get(dead.group)
        if group is not None:
            group.ended.put(self._pack(dead), 1)
        return iter(())

    def finish(self) -> Iterator[Violation]:
        for name, group in self._groups.items():
            for message in self._topics.get(group.topic, ()):
                state = self._add(message, 0)
                is_due = not state & _RECALLED and (not state & _TRANSACTION or state & _COMMIT)
                if is_due and self._matches(name, message) and group.ended.get(message) is None:
                    what = (
                        "neither acknowledged by group"
                        if group.given_ns.get(message)
                        else "never given to group"
                    )
                    yield self._violation(
                        message,
                        f"was acknowledged to its producer, and was {what} {name}, nor is it dead",
                        None,
                    )

    def _violation(self, message: int, what: str, at_ns: int | None) -> Violation:
        name = self._name(message)
        return Violation(self.name, f"message {name} {what}", at_ns=at_ns, messages=(name,))

    def _name(self, message: int) -> MessageName:
        return MessageName(*self._messages.unpack(message))

    def _pack(self, record: OfMessage) -> int:
        return self._messages.pack(*message_of(record))

    def _add(self, message: int, flags: int) -> int:
        state = (self._states.get(message) or 0) | flags
        self._states.put(message, state)
        return state
