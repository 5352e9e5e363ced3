"""The message of a transaction reaches consumers if, and only if, its producer said commit; and not before that.

Whether it was prepared is a third thing while the outcome of its send is unknown, until the broker asks about it: from
then on it is known to be there. That it comes once is duplicate.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from faults.checkers.checker import MessageName, Place, Violation, message_of, queue_of
from faults.checkers.numbered import Flags, Numbered
from faults.history import (
    READ_BACK,
    Poll,
    QueueEnd,
    Record,
    Transaction,
    TransactionBegun,
    TransactionSaid,
)

_BEGUN: Final = 1
_PREPARED: Final = 2
_REFUSED: Final = 4
_COMMIT: Final = 8
_ROLLBACK: Final = 16
_ASKED: Final = 32
_READ_BACK: Final = 64
_NAMED: Final = 128


class TransactionPromises:
    """Each transaction is named once."""

    name = "transaction"

    def __init__(self) -> None:
        self._messages = Numbered[str]()
        self._states = Flags()
        self._topics: set[str] = set()
        self._read_topics: set[str] = set()  # to their ends

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {
            TransactionBegun: self._begun,
            TransactionSaid: self._said,
            Transaction: self._ended,
            Poll: self._poll,
            QueueEnd: self._queue_end,
        }

    def _begun(self, begun: TransactionBegun) -> Iterator[Violation]:
        self._topics.add(begun.topic)
        self._states.add(self._messages.pack(*message_of(begun)), _BEGUN)
        return iter(())

    def _said(self, said: TransactionSaid) -> Iterator[Violation]:
        flags = {"commit": _COMMIT, "rollback": _ROLLBACK}.get(said.state, 0) | (_ASKED if said.asked else 0)
        yield from self._known(said, flags)

    def _ended(self, transaction: Transaction) -> Iterator[Violation]:
        flag = {"ok": _PREPARED, "fail": _REFUSED}.get(transaction.outcome, 0)
        yield from self._known(transaction, flag)

    def _known(self, record: Transaction | TransactionSaid, flags: int) -> Iterator[Violation]:
        message = self._messages.pack(*message_of(record))
        state = self._states.add(message, flags)
        if state & _REFUSED and state & _ASKED:
            yield from self._named(
                message,
                "the broker asked how it ends, and the send of its message has ended as surely not stored",
                record.at_ns,
            )

    def _poll(self, poll: Poll) -> Iterator[Violation]:
        if poll.topic not in self._topics:
            return
        for delivered in poll.messages:
            if not delivered.producer:
                continue
            message = self._messages.pack(*message_of(delivered))
            state = self._states.get(message)
            if state is None:
                continue  # phantom.py's
            if poll.group == READ_BACK:
                self._states.add(message, _READ_BACK)
            if not state & _COMMIT:
                said = "had said rollback" if state & _ROLLBACK else "had not said how it ends"
                where = Place(queue_of(poll), delivered.queue_offset)
                yield from self._named(
                    message, f"its message was read at {where}, and its producer {said}", poll.at_ns
                )

    def _queue_end(self, end: QueueEnd) -> Iterator[Violation]:
        if end.group == READ_BACK:
            self._read_topics.add(end.topic)
        return iter(())

    def finish(self) -> Iterator[Violation]:
        if not self._topics <= self._read_topics:
            return  # coverage.py's
        for message, state in self._states.items():
            if state & _COMMIT and state & (_PREPARED | _ASKED) and not state & _READ_BACK:
                known = "its message was acknowledged" if state & _PREPARED else "the broker asked about it"
                yield from self._named(
                    message,
                    f"{known}, its producer said commit, and the message is not there when all is healed",
                    None,
                )

    def _named(self, message: int, what: str, at_ns: int | None) -> Iterator[Violation]:
        if self._states.add_first(message, _NAMED):
            name = MessageName(*self._messages.unpack(message))
            yield Violation(self.name, f"transaction {name}: {what}", at_ns=at_ns, messages=(name,))
