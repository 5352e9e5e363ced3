"""Each checker on made-up histories: it is silent about whatever a sound group may do, and finds what it is for."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import pytest
import told
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from made_history import (
    BROKER,
    GROUP,
    MS,
    TOPIC,
    Model,
    changed,
    made_history,
    of_kind,
    without_messages,
)
from test_kind_checkers import KIND_SPOILERS

from faults.checkers.checker import Violation, message_of, queue_of
from faults.history import (
    READ_BACK,
    AnyRecord,
    Assigned,
    Commit,
    CommitBegun,
    Committed,
    Delivered,
    LeaderSeen,
    Phase,
    Poll,
    QueueEnd,
    Run,
    Send,
    SendBegun,
)
from faults.judge import all_checkers, judge

Item = TypeVar("Item")
SEEDS = st.integers(0, 2**32)
replaced = msgspec.structs.replace
Spoiler = Callable[[list[AnyRecord], random.Random], list[AnyRecord]]


def pick(dice: random.Random, items: Sequence[Item]) -> Item:
    """Of a history that has none there is nothing to be seen."""
    if not items:
        reject()
    return dice.choice(items)


def found(records: list[AnyRecord]) -> list[Violation]:
    return list(judge(lambda: records).violations)


@given(SEEDS, st.integers(0, 400))
def test_nothing_is_found_in_what_a_sound_group_may_do(seed: int, steps: int) -> None:
    assert found(made_history(random.Random(seed), steps)) == []


def acknowledged(records: list[AnyRecord], *, attempts: int = 1) -> list[Send]:
    return [send for send in of_kind(records, Send) if send.outcome == "ok" and send.attempts == attempts]


def read_at(records: list[AnyRecord], group: str) -> list[tuple[Poll, Delivered]]:
    return [(poll, one) for poll in of_kind(records, Poll) if poll.group == group for one in poll.messages]


def lose_a_write(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """The last message of a queue is cut off before all is read back."""
    polls = [poll for poll in of_kind(records, Poll) if poll.group == READ_BACK and poll.messages]
    last = {queue_of(poll): poll.messages[-1] for poll in polls}
    names = {message_of(send) for send in acknowledged(records)}
    queue, lost = pick(dice, [item for item in last.items() if message_of(item[1]) in names])

    def cut(record: AnyRecord) -> AnyRecord:
        if not isinstance(record, Poll | QueueEnd) or (record.group, queue_of(record)) != (READ_BACK, queue):
            return record
        if isinstance(record, QueueEnd):
            return replaced(record, max_offset=lost.queue_offset)
        kept = without_messages(record, lambda one: one.queue_offset == lost.queue_offset)
        return replaced(kept, next_offset=min(kept.next_offset, lost.queue_offset))

    return changed(records, cut)


def give_what_is_not_kept(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """Of a send whose end nobody knows: the group reads it at the end of a queue, which is cut off behind it."""
    poll = pick(dice, [poll for poll, _ in read_at(records, GROUP)][-1:])
    queue = queue_of(poll)
    end = next(one for one in of_kind(records, QueueEnd) if queue_of(one) == queue)
    begun = SendBegun(at_ns=poll.at_ns, producer="q", sequence=0, topic=TOPIC)
    given = (*poll.messages, Delivered(end.max_offset, "q", 0))
    if poll.next_offset != end.max_offset:
        reject()
    more = replaced(poll, messages=given, next_offset=end.max_offset + 1)
    at = records.index(poll)
    return [*records[:at], begun, more, *records[at + 1 :]]


def read_what_nobody_sent(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    name = message_of(pick(dice, read_at(records, READ_BACK))[1])
    return changed(
        records,
        lambda record: (
            None if isinstance(record, SendBegun | Send) and message_of(record) == name else record
        ),
    )


def read_what_was_refused(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    name = message_of(pick(dice, [one for one in acknowledged(records) if was_read(records, one)]))

    def refuse(record: AnyRecord) -> AnyRecord:
        if isinstance(record, Send) and message_of(record) == name:
            return replaced(record, outcome="fail", broker="", queue_id=-1, queue_offset=-1, phy_offset=-1)
        return record

    return changed(records, refuse)


def was_read(records: list[AnyRecord], send: Send) -> bool:
    return any(message_of(one) == message_of(send) for _, one in read_at(records, READ_BACK))


def read_a_body_of_nobody(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """Behind the end of a queue, so that no message of ours is missed."""
    *_, (poll, last) = read_at(records, READ_BACK)
    strange = Delivered(last.queue_offset + 1, "", -1, "x")
    more = replaced(poll, messages=(*poll.messages, strange), next_offset=last.queue_offset + 2)
    return changed(records, lambda record: more if record is poll else record)


def store_twice(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """Once more behind the end of its queue, though it was sent once."""
    *_, (poll, last) = read_at(records, READ_BACK)
    send = pick(dice, [one for one in acknowledged(records) if was_read(records, one)])
    again = Delivered(last.queue_offset + 1, send.producer, send.sequence, send.msg_id)
    more = replaced(poll, messages=(*poll.messages, again), next_offset=last.queue_offset + 2)
    return changed(records, lambda record: more if record is poll else record)


def acknowledge_an_offset_twice(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """The one of two that is told first has its message read there."""
    of_queue: dict[object, list[Send]] = {}
    for send in acknowledged(records):
        of_queue.setdefault(queue_of(send), []).append(send)
    sends = pick(dice, [sends for sends in of_queue.values() if len(sends) > 1])
    at = dice.randrange(1, len(sends))
    early, late = sends[at - 1 : at + 1]
    told = replaced(late, queue_offset=early.queue_offset)
    return changed(records, lambda record: told if record is late else record)


def read_another_at_an_offset(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """A consumer was given a message that others see elsewhere."""
    polls = [
        poll
        for poll, _ in read_at(records, READ_BACK)
        # A message that was tried again may be there twice.
        if len(poll.messages) > 1 and message_of(poll.messages[0]) != message_of(poll.messages[1])
    ]
    poll = pick(dice, polls)
    first, second, *rest = poll.messages
    names = [
        replaced(second, queue_offset=first.queue_offset),
        replaced(first, queue_offset=second.queue_offset),
    ]
    swapped = replaced(poll, messages=(*names, *rest))
    return changed(records, lambda record: swapped if record is poll else record)


def store_before_what_was_acknowledged(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """As if a message had been sent only after one behind it was acknowledged."""
    pairs = [
        (early, late)
        for early in acknowledged(records)
        for late in acknowledged(records)
        if queue_of(early) == queue_of(late)
        and early.queue_offset > late.queue_offset
        and early.at_ns < late.at_ns
    ]
    early, late = pick(dice, pairs)
    return changed(
        records, lambda record: replaced(late, begun_ns=early.at_ns + 1) if record is late else record
    )


def store_what_nobody_knows_of_before_what_was_acknowledged(
    records: list[AnyRecord], dice: random.Random
) -> list[AnyRecord]:
    """The same, and the later one has no acknowledgement: it is where it is read back."""
    spoiled = store_before_what_was_acknowledged(records, dice)
    (late,) = (
        one for one, old in zip(spoiled, records, strict=True) if one is not old and isinstance(one, Send)
    )

    def forget(record: AnyRecord) -> AnyRecord:
        if isinstance(record, SendBegun | Send) and message_of(record) == message_of(late):
            if isinstance(record, Send):
                return replaced(record, outcome="unknown", broker="", queue_id=-1, queue_offset=-1)
            return replaced(record, at_ns=late.begun_ns)
        return record

    return changed(spoiled, forget)


def pass_over_messages(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    polls = [poll for poll, _ in read_at(records, GROUP) if len(poll.messages) > 1]
    poll = pick(dice, polls)
    gone = pick(dice, poll.messages[:-1])
    less = without_messages(poll, lambda one: one is gone)
    return changed(records, lambda record: less if record is poll else record)


def assign_beyond_what_was_read(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """Each poll begins where its consumer was assigned, and there is a message that nobody got."""
    places = Counter((queue_of(poll), one.queue_offset) for poll, one in read_at(records, GROUP))
    poll = pick(
        dice,
        [
            poll
            for poll in of_kind(records, Poll)
            if poll.group == GROUP
            and len(poll.messages) > 2
            and places[queue_of(poll), poll.messages[1].queue_offset] == 1
        ],
    )
    first, missed, *rest = poll.messages
    where = {name: getattr(poll, name) for name in ("group", "consumer", "broker", "topic", "queue_id")}
    at = records.index(poll)
    return [
        *records[:at],
        replaced(poll, messages=(first,), next_offset=missed.queue_offset),
        Assigned(at_ns=poll.at_ns, offset=missed.queue_offset + 1, **where),
        replaced(poll, offset=missed.queue_offset + 1, messages=tuple(rest)),
        *records[at + 1 :],
    ]


def stop_delivering(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """What lies at the end of a queue nobody of the group is given, and it may be committed as consumed."""
    poll, first = pick(dice, read_at(records, READ_BACK))

    def stopped(record: AnyRecord) -> AnyRecord | None:
        if not isinstance(record, Poll) or (record.group, queue_of(record)) != (GROUP, queue_of(poll)):
            return record
        if record.offset > first.queue_offset:
            return None
        less = without_messages(record, lambda one: one.queue_offset >= first.queue_offset)
        return replaced(less, next_offset=min(less.next_offset, first.queue_offset))

    return changed(records, stopped)


def begin_behind_the_first_message(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    poll, last = pick(dice, read_at(records, READ_BACK))
    begin = last.queue_offset + 1

    def later(record: AnyRecord) -> AnyRecord:
        if not isinstance(record, Poll | Assigned) or (record.group, queue_of(record)) != (
            GROUP,
            queue_of(poll),
        ):
            return record
        late = replaced(record, offset=max(record.offset, begin))
        if isinstance(late, Assigned):
            return late
        less = without_messages(late, lambda one: one.queue_offset < begin)
        return replaced(less, next_offset=max(less.next_offset, begin))

    return changed(records, later)


def go_back(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """The same messages once more, and nobody had assigned the consumer anew."""
    poll = pick(dice, [poll for poll, _ in read_at(records, GROUP)])
    at = records.index(poll)
    return [*records[: at + 1], replaced(poll, at_ns=poll.at_ns + 1), *records[at + 1 :]]


def be_sent_back(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    *_, (poll, _) = read_at(records, GROUP)
    at = records.index(poll)
    told = replaced(
        poll, at_ns=poll.at_ns + 1, offset=poll.next_offset, messages=(), next_offset=poll.next_offset - 1
    )
    return [*records[: at + 1], told, *records[at + 1 :]]


def forget_a_commit(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """When nothing can be under way any more."""
    where = {"group": GROUP, "consumer": "new", "broker": BROKER, "topic": TOPIC, "queue_id": 0}
    end_ns = records[-1].at_ns + 60_000 * MS
    offset = dice.randint(1, 1_000)
    return [
        *records,
        CommitBegun(at_ns=end_ns + 1, offset=offset, **where),
        Commit(at_ns=end_ns + 2, begun_ns=end_ns + 1, offset=offset, outcome="ok", **where),
        Committed(at_ns=end_ns + 4, begun_ns=end_ns + 3, offset=dice.randrange(offset), **where),
    ]


def commit_less(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    begun = [one for one in of_kind(records, CommitBegun) if one.offset > 0]
    one = pick(dice, begun[-1:])
    at = records.index(one)
    return [
        *records[: at + 1],
        replaced(one, at_ns=one.at_ns + 1, offset=one.offset - 1),
        *records[at + 1 :],
    ]


def elect_two(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    seen = pick(dice, of_kind(records, LeaderSeen))
    at = records.index(seen)
    other = replaced(seen, at_ns=seen.at_ns + 1, leader="n9")
    return [*records[: at + 1], other, *records[at + 1 :]]


def acknowledge_nothing_for_two_seconds(records: list[AnyRecord], dice: random.Random) -> list[AnyRecord]:
    """Long after the last fault ended."""
    end_ns = records[-1].at_ns + 60_000 * MS
    tries = [
        SendBegun(at_ns=end_ns + step * 100 * MS, producer="late", sequence=step, topic=TOPIC)
        for step in range(21)
    ]
    return [*records, *tries]


SPOILERS: list[tuple[Spoiler, set[str]]] = [
    (lose_a_write, {"lost_write"}),
    (give_what_is_not_kept, {"lost_write"}),
    (read_what_nobody_sent, {"phantom"}),
    (read_what_was_refused, {"phantom"}),
    (read_a_body_of_nobody, {"phantom"}),
    (store_twice, {"duplicate"}),
    (acknowledge_an_offset_twice, {"inconsistent_offset"}),
    (read_another_at_an_offset, {"inconsistent_offset"}),
    (store_before_what_was_acknowledged, {"order"}),
    (store_what_nobody_knows_of_before_what_was_acknowledged, {"order"}),
    (pass_over_messages, {"poll_skip"}),
    (assign_beyond_what_was_read, {"poll_skip"}),
    (stop_delivering, {"poll_skip"}),
    (begin_behind_the_first_message, {"poll_skip"}),
    (go_back, {"monotonic_poll"}),
    (be_sent_back, {"monotonic_poll"}),
    (forget_a_commit, {"monotonic_commit"}),
    (commit_less, {"monotonic_commit"}),
    (elect_two, {"leader_per_term"}),
    (acknowledge_nothing_for_two_seconds, {"availability"}),
]
# What else such a history shows: one anomaly may be seen from several sides.
BESIDE: dict[Spoiler, set[str]] = {
    # It has another place than was told.
    read_another_at_an_offset: {"duplicate"},
    # Whoever is told another's offset is told it out of order, too.
    acknowledge_an_offset_twice: {"order"},
}


@pytest.mark.parametrize(("spoil", "expected"), SPOILERS, ids=lambda value: getattr(value, "__name__", ""))
@given(SEEDS)
@settings(max_examples=25)
def test_what_a_sound_group_never_does_is_found(spoil: Spoiler, expected: set[str], seed: int) -> None:
    dice = random.Random(seed)
    spoiled = spoil(made_history(dice, 300), dice)
    checkers = {violation.checker for violation in found(spoiled)}
    assert expected <= checkers <= expected | BESIDE.get(spoil, set())


def test_of_a_group_that_is_not_to_get_everything_nobody_knows_where_it_ends() -> None:
    def not_named(record: AnyRecord) -> AnyRecord:
        return replaced(record, groups=()) if isinstance(record, Run) else record

    def ended_early(record: AnyRecord) -> AnyRecord | None:
        return None if isinstance(record, Phase) and record.name == "level" else record

    dice = random.Random(1)
    for spoil in (stop_delivering, begin_behind_the_first_message):
        spoiled = spoil(made_history(dice, 300), dice)
        assert found(spoiled) != []
        assert found(changed(spoiled, not_named)) == found(changed(spoiled, ended_early)) == []


def test_a_consumer_that_is_sent_to_where_no_queue_ends_is_told_of_in_the_memory_there_is() -> None:
    where = {"group": GROUP, "consumer": "c", "broker": BROKER, "topic": TOPIC, "queue_id": 0}
    records: list[AnyRecord] = [
        SendBegun(at_ns=1, producer="p", sequence=0, topic=TOPIC),
        Assigned(at_ns=2, offset=0, **where),
        Poll(at_ns=3, offset=0, next_offset=1 << 39, **where),
        Poll(
            at_ns=4,
            offset=1 << 39,
            next_offset=(1 << 39) + 1,
            messages=(Delivered(1 << 39, "p", 0),),
            **where,
        ),
    ]
    assert [violation.checker for violation in found(records)] == ["poll_skip"]


def test_each_checker_is_shown_to_catch_something() -> None:
    shown = {name for _, names in SPOILERS for name in names} | {name for _, name in KIND_SPOILERS} | {"pop"}
    assert shown == {checker.name for checker in all_checkers()} | {"availability"}


def test_of_a_message_that_was_tried_again_the_copy_that_was_acknowledged_and_read_is_kept() -> None:
    seen = [*told.acknowledged(0, 0, 0), *told.acknowledged(5, 1, 2, attempts=2), told.poll(10, 0, [0, 1, 1])]
    assert found([*seen, *told.read_back(20, [0, 1, 1])]) == []
    (violation,) = found([*seen, *told.read_back(20, [0, 1])])
    assert violation.checker == "lost_write"
    assert violation.sentence.startswith(
        f"message p/1 was given to a consumer at {BROKER} {TOPIC}/0 offset 2"
    )


def test_a_violation_has_the_records_that_show_it() -> None:
    dice = random.Random(8)
    (violation,) = found(lose_a_write(made_history(dice, 300), dice))
    (name,) = violation.messages
    assert f"message {name} was acknowledged at {violation.places[0]}" in violation.sentence
    begun, end, *reads = violation.records
    assert isinstance(begun, SendBegun)
    assert isinstance(end, Send)
    assert message_of(begun) == message_of(end) == name
    assert violation.at_ns == end.at_ns
    assert all(
        isinstance(poll, Poll) and [message_of(one) for one in poll.messages] == [name] for poll in reads
    )


def test_of_many_violations_the_first_are_shown_and_all_are_counted() -> None:
    model = Model(random.Random(3))
    for sequence in range(200):
        model.pass_time(1)
        model.note(
            Poll(
                at_ns=model.now_ns,
                group="h",
                consumer="c",
                broker=BROKER,
                topic=TOPIC,
                queue_id=0,
                offset=sequence,
                next_offset=sequence + 1,
                messages=(Delivered(sequence, "nobody", sequence),),
            )
        )
    judgement = judge(lambda: model.records)
    assert judgement.totals == {"phantom": 200}
    assert len(judgement.violations) == 50


def test_consumers_that_work_on_several_messages_at_once_are_asked_for_no_order() -> None:
    model = Model(random.Random(5), queue_count=1)
    for _ in range(8):
        model.begin_send("ok")
        model.end_send(model.sending[0])
    where = {"group": "push", "consumer": "c", "broker": BROKER, "topic": TOPIC, "queue_id": 0}
    order = [3, 1, 0, 2, 5, 4]
    model.note(Assigned(at_ns=model.now_ns, offset=0, **where))
    for offset in order:
        message = Delivered(offset, *model.queues[0][offset])
        model.note(
            Poll(
                at_ns=model.now_ns,
                offset=offset,
                next_offset=offset + 1,
                messages=(message,),
                in_order=False,
                **where,
            )
        )
    records = model.finish()
    assert found(records) == []
    # Yet each message must come to somebody.
    without = [
        record
        for record in records
        if not (isinstance(record, Poll) and record.group == "push" and record.offset == 2)
    ]
    assert [violation.checker for violation in found(without)] == ["poll_skip"]
