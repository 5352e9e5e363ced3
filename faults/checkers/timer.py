"""A timer message is delivered, not before its time, and not at all once it was recalled before that.

Two clocks say when it came. The leader's stands in the message: when it was stored for consumers. If a time of day was
asked for, that must not be earlier, not by a millisecond. The host's monotonic clock says when a consumer got it, and
shows a leader whose own clock is ahead: EARLY_NS is for two processes that read their clocks apart. A wall clock that
jumps is no excuse, for members keep their own time from their start on.

A recall that was acknowledged before the time is in the log before the delivery. One that was acknowledged later, or
whose end nobody knows, may have come in time or not. That a timer comes once is duplicate.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from faults.checkers.checker import MessageName, Place, Violation, message_of, queue_of
from faults.checkers.numbered import Flags, Numbered, Values
from faults.history import (
    READ_BACK,
    Delivered,
    Poll,
    QueueEnd,
    Recall,
    RecallBegun,
    Record,
    Timer,
    TimerBegun,
)

EARLY_NS: Final = 10_000_000

_STORED: Final = 1
_ONCE: Final = 2  # it was sent once: no copy of it can be there that the recall did not meet
_RECALL_BEGUN: Final = 4
_RECALLED: Final = 8  # before its time
_READ_BACK: Final = 16
_NAMED: Final = 32


class TimerPromises:
    """Each timer is named once."""

    name = "timer"

    def __init__(self) -> None:
        self._messages = Numbered[str]()
        self._due_ns = Values()
        self._due_ms = Values()
        self._states = Flags()
        self._topics: set[str] = set()
        self._read_topics: set[str] = set()  # to their ends

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {
            TimerBegun: self._begun,
            Timer: self._ended,
            RecallBegun: self._recall_begun,
            Recall: self._recalled,
            Poll: self._poll,
            QueueEnd: self._queue_end,
        }

    def _begun(self, begun: TimerBegun) -> Iterator[Violation]:
        self._topics.add(begun.topic)
        message = self._messages.pack(*message_of(begun))
        self._due_ns.put(message, begun.due_ns)
        self._due_ms.put(message, begun.due_ms)
        self._states.add(message, 0)
        return iter(())

    def _ended(self, timer: Timer) -> Iterator[Violation]:
        flags = (_STORED if timer.outcome == "ok" else 0) | (_ONCE if timer.attempts == 1 else 0)
        self._states.add(self._messages.pack(*message_of(timer)), flags)
        return iter(())

    def _recall_begun(self, begun: RecallBegun) -> Iterator[Violation]:
        self._states.add(self._messages.pack(*message_of(begun)), _RECALL_BEGUN)
        return iter(())

    def _recalled(self, recall: Recall) -> Iterator[Violation]:
        message = self._messages.pack(*message_of(recall))
        if recall.outcome == "ok" and recall.at_ns < (self._due_ns.get(message) or 0):
            self._states.add(message, _RECALLED)
        return iter(())

    def _poll(self, poll: Poll) -> Iterator[Violation]:
        if poll.topic not in self._topics:
            return
        for delivered in poll.messages:
            if not delivered.producer:
                continue
            message = self._messages.pack(*message_of(delivered))
            due_ns = self._due_ns.get(message)
            if due_ns is None:
                continue  # phantom.py's
            state = self._states.add(message, _READ_BACK if poll.group == READ_BACK else 0)
            where = Place(queue_of(poll), delivered.queue_offset)
            if state & _RECALLED and state & _ONCE:
                what = f"was recalled before its time, which was acknowledged, and was read at {where}"
                yield from self._named(message, what, poll.at_ns)
            elif (early := self._early(message, due_ns, poll, delivered)) is not None:
                yield from self._named(message, f"was read at {where}, {early}", poll.at_ns)

    def _early(self, message: int, due_ns: int, poll: Poll, delivered: Delivered) -> str | None:
        due_ms = self._due_ms.get(message) or 0
        if 0 < delivered.store_ms < due_ms:
            return f"stored {due_ms - delivered.store_ms} ms before its time by the leader's clock"
        if poll.at_ns + EARLY_NS < due_ns:
            return f"{(due_ns - poll.at_ns) // 1_000_000} ms before its time by the host's clock"
        return None

    def _queue_end(self, end: QueueEnd) -> Iterator[Violation]:
        if end.group == READ_BACK:
            self._read_topics.add(end.topic)
        return iter(())

    def finish(self) -> Iterator[Violation]:
        if not self._topics <= self._read_topics:
            return  # coverage.py's
        for message, state in self._states.items():
            if state & _STORED and not state & (_RECALL_BEGUN | _READ_BACK):
                what = "was acknowledged and never recalled, and has not been delivered when all is healed"
                yield from self._named(message, what, None)

    def _named(self, message: int, what: str, at_ns: int | None) -> Iterator[Violation]:
        if self._states.add_first(message, _NAMED):
            name = MessageName(*self._messages.unpack(message))
            yield Violation(self.name, f"timer {name} {what}", at_ns=at_ns, messages=(name,))
