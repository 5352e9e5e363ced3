"""The checkers of transactions, timers, filters and replies, as test_checkers.py has it for the others."""

import random
from collections.abc import Callable, Iterable

import msgspec
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from made_history import GROUP, MS, changed, of_kind, without_messages
from made_kinds import END_MS, FILTERED, PLAIN, TIMERS, TRANSACTIONS, WALL_MS, made_kinds
from told import in_order

from faults.checkers.checker import MessageName, Violation, message_of
from faults.history import (
    READ_BACK,
    AnyRecord,
    Delivered,
    Poll,
    QueueEnd,
    Recall,
    RecallBegun,
    Request,
    Run,
    Timer,
    TimerBegun,
    Transaction,
    TransactionSaid,
)
from faults.judge import judge

SEEDS = st.integers(0, 2**32)
replaced = msgspec.structs.replace
Spoiler = Callable[[list[AnyRecord], random.Random], list[AnyRecord]]


def found(records: list[AnyRecord]) -> list[Violation]:
    """All but outages: the checkers of kinds do not judge for how long sends fail."""
    return [one for one in judge(lambda: records).violations if one.checker != "availability"]


def pick(dice: random.Random, names: Iterable[MessageName]) -> MessageName:
    """Of a history that has none there is nothing to be seen."""
    choice = sorted(names)
    if not choice:
        reject()
    return dice.choice(choice)


def read_names(records: list[AnyRecord], topic: str) -> set[MessageName]:
    """Of what lies in the topic at the end."""
    polls = [poll for poll in of_kind(records, Poll) if (poll.group, poll.topic) == (READ_BACK, topic)]
    return {message_of(one) for poll in polls for one in poll.messages}


def sent_once(records: list[AnyRecord], kind: type[Transaction] | type[Timer]) -> set[MessageName]:
    """Acknowledged after one attempt."""
    ends = of_kind(records, kind)
    return {message_of(end) for end in ends if end.outcome == "ok" and end.attempts == 1}


def without(records: list[AnyRecord], topic: str, name: MessageName) -> list[AnyRecord]:
    """As if it had never come; what follows moves up."""

    def changed_to(record: AnyRecord) -> AnyRecord | None:
        if isinstance(record, QueueEnd) and record.topic == topic:
            return replaced(record, max_offset=record.max_offset - len(gone))
        if not isinstance(record, Poll) or record.topic != topic:
            return record
        kept = without_messages(record, lambda one: message_of(one) == name)
        if record.group != READ_BACK and not kept.messages:
            return None
        moved = tuple(
            replaced(one, queue_offset=one.queue_offset - sum(offset < one.queue_offset for offset in gone))
            for one in kept.messages
        )
        first = moved[0].queue_offset if moved else 0
        return replaced(kept, messages=moved, offset=first, next_offset=first + len(moved))

    gone = {
        one.queue_offset
        for poll in of_kind(records, Poll)
        if (poll.group, poll.topic) == (READ_BACK, topic)
        for one in poll.messages
        if message_of(one) == name
    }
    return changed(records, changed_to)


def with_one_more(
    records: list[AnyRecord], topic: str, name: MessageName, at_ms: int = END_MS - 1
) -> list[AnyRecord]:
    """Stored behind all that is in the topic, then, and given to the group."""
    (end,) = (one for one in of_kind(records, QueueEnd) if one.topic == topic)
    more = Delivered(end.max_offset, *name, store_ms=WALL_MS + at_ms)

    def changed_to(record: AnyRecord) -> AnyRecord:
        if isinstance(record, QueueEnd) and record.topic == topic:
            return replaced(record, max_offset=record.max_offset + 1)
        if isinstance(record, Poll) and (record.group, record.topic) == (READ_BACK, topic):
            return replaced(record, messages=(*record.messages, more), next_offset=end.max_offset + 1)
        return record

    given_to = {"group": GROUP, "consumer": "late", "broker": end.broker, "topic": topic, "queue_id": 0}
    given = Poll(
        at_ns=at_ms * MS,
        offset=end.max_offset,
        next_offset=end.max_offset + 1,
        messages=(more,),
        in_order=False,
        **given_to,
    )
    return in_order(changed(records, changed_to), given)


@given(SEEDS, st.integers(0, 60))
def test_nothing_is_found_in_what_a_sound_group_may_do(seed: int, count: int) -> None:
    assert found(made_kinds(random.Random(seed), count)) == []


def said(records: list[AnyRecord], state: str) -> set[MessageName]:
    return {message_of(one) for one in of_kind(records, TransactionSaid) if one.state == state}


def show_what_was_rolled_back(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    return with_one_more(records, TRANSACTIONS, pick(dice, said(records, "rollback")))


def show_what_is_undecided(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """Its producer is never asked, and consumers get it all the same."""
    name = pick(dice, said(records, "unknown") & said(records, "rollback"))
    silent = [
        one
        for one in records
        if not (isinstance(one, TransactionSaid) and one.asked and message_of(one) == name)
    ]
    return with_one_more(silent, TRANSACTIONS, name)


def show_before_it_is_committed(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    name = pick(dice, said(records, "commit") & read_names(records, TRANSACTIONS))
    at_ns = max(one.at_ns for one in of_kind(records, Poll) if name in map(message_of, one.messages)) + 1
    late = [
        replaced(one, at_ns=at_ns)
        if isinstance(one, TransactionSaid) and message_of(one) == name and one.state == "commit"
        else one
        for one in records
    ]
    return in_order(late)


def lose_what_was_committed(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    names = said(records, "commit") & sent_once(records, Transaction)
    return without(records, TRANSACTIONS, pick(dice, names))


def lose_what_was_asked_about_and_committed(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """Nobody had acknowledged that it was prepared; the broker knew of it."""
    ends = of_kind(records, Transaction)
    unknown = {message_of(end) for end in ends if end.outcome == "unknown"}
    return without(records, TRANSACTIONS, pick(dice, unknown & said(records, "commit")))


def commit_twice(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    names = sent_once(records, Transaction) & read_names(records, TRANSACTIONS)
    return with_one_more(records, TRANSACTIONS, pick(dice, names))


def ask_about_what_was_refused(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """After its send has ended, or before."""
    refused = {message_of(end): end for end in of_kind(records, Transaction) if end.outcome == "fail"}
    name = pick(dice, refused)
    asked = TransactionSaid(
        at_ns=dice.choice(((END_MS - 1) * MS, refused[name].at_ns - MS)),
        producer=name.producer,
        sequence=name.sequence,
        state="rollback",
        asked=True,
    )
    return in_order([*records, asked])


def given_at_ms(records: list[AnyRecord], name: MessageName) -> int:
    return min(one.at_ns for one in of_kind(records, Poll) if name in map(message_of, one.messages)) // MS


def deliver_early_by_the_leaders_clock(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """A millisecond, and consumers get it later."""
    asked = {message_of(one): one.due_ms for one in of_kind(records, TimerBegun) if one.due_ms}
    name = pick(dice, asked.keys() & read_names(records, TIMERS))

    def changed_to(record: AnyRecord) -> AnyRecord:
        if not isinstance(record, Poll) or record.topic != TIMERS:
            return record
        messages = tuple(
            replaced(one, store_ms=asked[name] - 1) if message_of(one) == name else one
            for one in record.messages
        )
        return replaced(record, messages=messages)

    return changed(records, changed_to)


def deliver_early_by_a_clock_that_is_ahead(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """The leader's own clock says that it is in time."""
    name = pick(dice, read_names(records, TIMERS))
    later_ns = (given_at_ms(records, name) + 1_000) * MS
    return changed(
        records,
        lambda one: (
            replaced(one, due_ns=later_ns, due_ms=0)
            if isinstance(one, TimerBegun) and message_of(one) == name
            else one
        ),
    )


def fire_twice(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    names = sent_once(records, Timer) & read_names(records, TIMERS)
    return with_one_more(records, TIMERS, pick(dice, names))


def fire_what_was_recalled(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    due_ns = {message_of(one): one.due_ns for one in of_kind(records, TimerBegun)}
    recalled = {
        message_of(one)
        for one in of_kind(records, Recall)
        if one.outcome == "ok" and one.at_ns < due_ns[message_of(one)]
    }
    return with_one_more(records, TIMERS, pick(dice, recalled & sent_once(records, Timer)))


def never_fire(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    recalled = {message_of(one) for one in of_kind(records, RecallBegun)}
    names = sent_once(records, Timer) & read_names(records, TIMERS) - recalled
    return without(records, TIMERS, pick(dice, names))


def fire_what_was_refused(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    refused = {message_of(end) for end in of_kind(records, Timer) if end.outcome == "fail"}
    return with_one_more(records, TIMERS, pick(dice, refused))


def let_through_what_does_not_match(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    others = {name for name in read_names(records, PLAIN) if not FILTERED.takes(name.sequence)}
    name = pick(dice, others)
    given_to = next(
        poll
        for poll in of_kind(records, Poll)
        if (poll.group, poll.topic) == (GROUP, PLAIN) and name in map(message_of, poll.messages)
    )
    at = records.index(given_to)
    return [*records[:at], replaced(given_to, group=FILTERED.group, in_order=False), *records[at:]]


def hold_back_what_matches(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    name = pick(dice, {name for name in read_names(records, PLAIN) if FILTERED.takes(name.sequence)})
    return [
        one
        for one in records
        if not (
            isinstance(one, Poll) and one.group == FILTERED.group and name in map(message_of, one.messages)
        )
    ]


def reply_to_another(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    name = pick(dice, {message_of(one) for one in of_kind(records, Request) if one.outcome == "ok"})
    return changed(
        records,
        lambda one: (
            replaced(one, reply_sequence=name.sequence + 1)
            if isinstance(one, Request) and message_of(one) == name
            else one
        ),
    )


KIND_SPOILERS: list[tuple[Spoiler, str]] = [
    (show_what_was_rolled_back, "transaction"),
    (show_what_is_undecided, "transaction"),
    (show_before_it_is_committed, "transaction"),
    (lose_what_was_committed, "transaction"),
    (lose_what_was_asked_about_and_committed, "transaction"),
    (ask_about_what_was_refused, "transaction"),
    (commit_twice, "duplicate"),
    (deliver_early_by_the_leaders_clock, "timer"),
    (deliver_early_by_a_clock_that_is_ahead, "timer"),
    (fire_what_was_recalled, "timer"),
    (never_fire, "timer"),
    (fire_twice, "duplicate"),
    (fire_what_was_refused, "phantom"),
    (let_through_what_does_not_match, "filtered"),
    (hold_back_what_matches, "filtered"),
    (reply_to_another, "reply"),
]


@pytest.mark.parametrize(
    ("spoil", "expected"), KIND_SPOILERS, ids=lambda value: getattr(value, "__name__", "")
)
@given(SEEDS)
@settings(max_examples=25)
def test_what_a_sound_group_never_does_is_found(spoil: Spoiler, expected: str, seed: int) -> None:
    dice = random.Random(seed)
    spoiled = spoil(made_kinds(dice, 60), dice)
    assert {violation.checker for violation in found(spoiled)} == {expected}


def test_a_group_whose_consumers_ended_early_is_not_asked_for_the_rest() -> None:
    dice = random.Random(1)
    spoiled = hold_back_what_matches(made_kinds(dice, 60), dice)
    assert found(spoiled) != []
    assert found([one for one in spoiled if getattr(one, "name", "") != "level"]) == []


def test_topics_that_were_not_read_to_their_ends_hide_nothing_that_is_known() -> None:
    """What is missing cannot be told; what came that must not can."""
    dice = random.Random(1)
    for spoil, is_told in (
        (never_fire, False),
        (lose_what_was_committed, False),
        (fire_what_was_recalled, True),
    ):
        spoiled = spoil(made_kinds(dice, 60), dice)
        assert found(spoiled) != []
        unread = [one for one in spoiled if not isinstance(one, QueueEnd)]
        assert bool(found(unread)) == is_told


def test_a_run_that_shows_too_little_of_a_kind_says_of_which() -> None:
    records = made_kinds(random.Random(1), 60)
    assert judge(lambda: records).kinds.shortfalls() == []
    kinds = {
        "no timer was recalled": Recall,
        "no request was answered": Request,
        "no transaction was committed at once": TransactionSaid,
    }
    for told, kind in kinds.items():
        fewer = [one for one in records if not isinstance(one, kind)]
        assert told in judge(lambda fewer=fewer: fewer).shortfalls()  # type: ignore[misc]
    unfiltered = [one for one in records if not (isinstance(one, Poll) and one.group == FILTERED.group)]
    assert f"group {FILTERED.group} was given nothing" in judge(lambda: unfiltered).shortfalls()
    plain = [replaced(one, kinds=(), filtered=()) if isinstance(one, Run) else one for one in records]
    assert judge(lambda: plain).kinds.shortfalls() == []
