"""A history held against all checkers: one pass to judge, and one more for the records of what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from faults.checkers.availability import Availability
from faults.checkers.checker import (
    Checker,
    MessageName,
    Place,
    Violation,
    message_of,
    place_of,
    queue_of,
)
from faults.checkers.duplicate import Duplicate
from faults.checkers.filtered import Filtered
from faults.checkers.inconsistent_offset import InconsistentOffset
from faults.checkers.leader_per_term import LeaderPerTerm
from faults.checkers.lost_write import LostWrite
from faults.checkers.monotonic_commit import MonotonicCommit
from faults.checkers.monotonic_poll import MonotonicPoll
from faults.checkers.order import Order
from faults.checkers.phantom import Phantom
from faults.checkers.poll_skip import PollSkip
from faults.checkers.pop import PopPromises
from faults.checkers.reply import Reply
from faults.checkers.timer import TimerPromises
from faults.checkers.transaction import TransactionPromises
from faults.coverage import Coverage
from faults.history import AnyRecord, OfMessage, Poll, Record, Send, SendBegun, Sent, Timer, Transaction
from faults.kinds import Kinds

SHOWN_PER_CHECKER = 50
RECORDS_PER_VIOLATION = 12


@dataclass(frozen=True, slots=True)
class Judgement:
    """`totals` counts all violations by checker; `violations` shows SHOWN_PER_CHECKER of each, in the order of time."""

    violations: tuple[Violation, ...]
    totals: Counter[str]
    availability: Availability
    coverage: Coverage
    kinds: Kinds
    begin_ns: int
    end_ns: int

    def shortfalls(self) -> list[str]:
        """Why this run proves less than it should; none if it is whole."""
        return [*self.coverage.shortfalls(), *self.kinds.shortfalls()]


def all_checkers() -> list[Checker]:
    """But availability, whose gaps a judgement shows as well."""
    return [
        LostWrite(),
        Phantom(),
        Duplicate(),
        InconsistentOffset(),
        Order(),
        PollSkip(),
        MonotonicPoll(),
        MonotonicCommit(),
        LeaderPerTerm(),
        TransactionPromises(),
        TimerPromises(),
        Filtered(),
        Reply(),
        PopPromises(),
    ]


def judge(history: Callable[[], Iterable[AnyRecord]], *further: Checker) -> Judgement:
    """`history` is asked for the records, and once more if something was found. `further`: what sees them go by, too.

    Raises what `history` raises.
    """
    coverage, availability, kinds = Coverage(), Availability(), Kinds()
    checkers: list[Checker] = [*all_checkers(), availability, coverage, kinds, *further]
    callbacks: dict[type[Record], list[Callable[[Any], Iterable[Violation]]]] = {}
    for checker in checkers:
        for kind, callback in checker.takes().items():
            callbacks.setdefault(kind, []).append(callback)
    shown: list[Violation] = []
    totals: Counter[str] = Counter()

    def found(violations: Iterable[Violation]) -> None:
        for violation in violations:
            totals[violation.checker] += 1
            if totals[violation.checker] <= SHOWN_PER_CHECKER:
                shown.append(violation)

    begin_ns: int | None = None
    end_ns = 0
    for record in history():
        begin_ns = record.at_ns if begin_ns is None else begin_ns
        end_ns = record.at_ns
        for callback in callbacks.get(type(record), ()):
            found(callback(record))
    for checker in checkers:
        found(checker.finish())
    if shown:
        shown = _with_records(shown, history())
    shown.sort(key=lambda violation: violation.at_ns or 0)
    return Judgement(tuple(shown), totals, availability, coverage, kinds, begin_ns or 0, end_ns)


def _with_records(violations: Sequence[Violation], history: Iterable[AnyRecord]) -> list[Violation]:
    """What is said of their messages and places, and where a timeline shows those that only the end has shown."""
    by_message: dict[MessageName, list[int]] = {}
    by_place: dict[Place, list[int]] = {}
    records: list[list[AnyRecord]] = [list(violation.records) for violation in violations]
    for number, violation in enumerate(violations):
        for message in violation.messages:
            by_message.setdefault(message, []).append(number)
        for place in violation.places:
            by_place.setdefault(place, []).append(number)
    for record in history:
        for concerned, part in _parts(record, by_message, by_place):
            for number in concerned:
                if len(records[number]) < RECORDS_PER_VIOLATION and part not in records[number]:
                    records[number].append(part)
    return [
        replace(
            violation,
            records=tuple(sorted(of_it, key=lambda record: record.at_ns)),
            at_ns=violation.at_ns if violation.at_ns is not None else _time_of(of_it),
        )
        for violation, of_it in zip(violations, records, strict=True)
    ]


def _parts(
    record: AnyRecord, by_message: dict[MessageName, list[int]], by_place: dict[Place, list[int]]
) -> Iterator[tuple[set[int], AnyRecord]]:
    """Numbers of the violations that a record is about, and what of it they are shown."""
    if isinstance(record, SendBegun | OfMessage):
        yield {*by_message.get(message_of(record), ())}, record
    elif isinstance(record, Send):
        at_place = by_place.get(place_of(record), ()) if record.outcome == "ok" else ()
        yield {*by_message.get(message_of(record), ()), *at_place}, record
    elif isinstance(record, Poll):
        queue = queue_of(record)
        of_whom: dict[int, list[Any]] = {}
        for delivered in record.messages:
            place = Place(queue, delivered.queue_offset)
            for number in {*by_message.get(message_of(delivered), ()), *by_place.get(place, ())}:
                of_whom.setdefault(number, []).append(delivered)
        for number, messages in of_whom.items():
            yield {number}, msgspec.structs.replace(record, messages=tuple(messages))


def _time_of(records: Sequence[AnyRecord]) -> int | None:
    """The end of the send that something is about, or whatever there is."""
    sends = [record.at_ns for record in records if isinstance(record, Send | Sent | Transaction | Timer)]
    return sends[0] if sends else records[-1].at_ns if records else None
