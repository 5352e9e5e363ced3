"""Histories of pops told record by record: what a sound group may do, and what it may not."""

import pytest
from made_history import MS

from faults.history import (
    Acknowledgement,
    AnyRecord,
    Dead,
    FilteredGroup,
    Outcome,
    RecallBegun,
    Received,
    Run,
    SendBegun,
    Sent,
    Timer,
    TimerBegun,
    Transaction,
    TransactionBegun,
    TransactionSaid,
)
from faults.judge import judge

GROUP, TOPIC = "workers", "Tasks"


def sent(
    at_ms: int, sequence: int, outcome: Outcome = "ok", *, message_group: str = "", attempts: int = 1
) -> list[AnyRecord]:
    name = {"producer": "p", "sequence": sequence}
    return [
        SendBegun(at_ns=at_ms * MS, topic=TOPIC, **name),
        Sent(
            at_ns=at_ms * MS,
            begun_ns=at_ms * MS,
            topic=TOPIC,
            outcome=outcome,
            message_group=message_group,
            attempts=attempts,
            **name,
        ),
    ]


def received(at_ms: int, sequence: int, *, begun_ms: int | None = None, message_group: str = "") -> Received:
    return Received(
        at_ns=at_ms * MS,
        begun_ns=(at_ms if begun_ms is None else begun_ms) * MS,
        group=GROUP,
        topic=TOPIC,
        message_group=message_group,
        producer="p",
        sequence=sequence,
    )


def acked(at_ms: int, sequence: int, outcome: Outcome = "ok") -> Acknowledgement:
    return Acknowledgement(
        at_ns=at_ms * MS, begun_ns=at_ms * MS, group=GROUP, outcome=outcome, producer="p", sequence=sequence
    )


def found(*records: AnyRecord | list[AnyRecord]) -> list[str]:
    flat = [one for part in records for one in (part if isinstance(part, list) else [part])]
    violations = judge(lambda: flat).violations
    assert {violation.checker for violation in violations} <= {"pop"}
    return [violation.sentence for violation in violations]


def test_each_message_may_come_often_before_it_ends() -> None:
    dead = Dead(at_ns=9 * MS, group=GROUP, producer="p", sequence=2)
    history = [
        *(sent(1, 0), sent(1, 1), sent(1, 2), sent(1, 3, "unknown"), sent(1, 4, "fail")),
        *(received(2, 0), received(3, 0), acked(4, 0)),
        *(received(5, 1), acked(6, 1, "unknown"), received(7, 1)),
        *(received(8, 2), dead),
    ]
    assert found(*history) == []


def test_what_neither_ends_nor_comes_is_told_of() -> None:
    assert found(sent(1, 0), sent(1, 1), sent(1, 2), received(2, 0), received(2, 2), acked(3, 2)) == [
        "message p/0 was acknowledged to its producer, and was neither acknowledged by group workers, nor is it dead",
        "message p/1 was acknowledged to its producer, and was never given to group workers, nor is it dead",
    ]


def test_a_refused_acknowledgement_ends_nothing() -> None:
    (sentence,) = found(sent(1, 0), received(2, 0), acked(3, 0, "fail"))
    assert "neither acknowledged" in sentence


@pytest.mark.parametrize(("begun_ms", "is_wrong"), [(3, False), (5, True)])
def test_what_was_asked_for_after_the_acknowledgement_does_not_bring_the_message(
    begun_ms: int, is_wrong: bool
) -> None:
    again = received(6, 0, begun_ms=begun_ms)
    assert bool(found(sent(1, 0), received(2, 0), acked(4, 0), again)) is is_wrong


def test_a_copy_of_what_was_sent_twice_may_come_after_the_acknowledgement() -> None:
    assert found(sent(1, 0, attempts=2), received(2, 0), acked(3, 0), received(5, 0)) == []


def test_of_a_message_group_none_comes_before_the_earlier_ones_have_ended() -> None:
    history = [sent(1, 0, message_group="g"), sent(2, 1, message_group="g")]
    end = [acked(9, 0), acked(9, 1)]
    assert found(*history, received(3, 0, message_group="g"), received(4, 1, message_group="g"), *end) == [
        "message p/1 was given to group workers before p/0 of its message group g had ended"
    ]
    assert found(*history, received(4, 1, message_group="g"), received(5, 0, message_group="g"), *end) != []
    together = [received(4, number, begun_ms=3, message_group="g") for number in (0, 1)]
    assert found(*history, *together, *end) == []
    one_by_one = [
        received(3, 0, message_group="g"),
        acked(4, 0),
        received(5, 1, message_group="g"),
        acked(6, 1),
    ]
    assert found(*history, *one_by_one) == []


def test_a_group_with_an_expression_is_given_what_matches_and_nothing_else() -> None:
    odd = FilteredGroup(group=GROUP, topic=TOPIC, modulus=2, remainders=(1,))
    run = Run(at_ns=0, seed=0, minutes=1, target="ours", members=(), filtered=(odd,))
    history = [run, sent(1, 0), sent(1, 1), sent(1, 3), received(2, 1), acked(3, 1)]
    assert found(*history, received(4, 3), acked(5, 3)) == []
    assert found(*history, received(4, 0), acked(5, 0)) == [
        "message p/3 was acknowledged to its producer, and was never given to group workers, nor is it dead",
        "message p/0 was given to group workers, whose expression does not match it",
    ]


def test_a_transaction_without_a_commit_and_a_recalled_timer_need_not_come() -> None:
    first = {"producer": "p", "sequence": 0}
    second = {"producer": "p", "sequence": 1}
    assert (
        found(
            TransactionBegun(at_ns=MS, topic=TOPIC, **first),
            TransactionSaid(at_ns=MS, state="rollback", **first),
            Transaction(at_ns=MS, begun_ns=MS, topic=TOPIC, outcome="ok", **first),
            TimerBegun(at_ns=MS, topic=TOPIC, due_ns=5 * MS, **second),
            Timer(at_ns=MS, begun_ns=MS, topic=TOPIC, outcome="ok", **second),
            RecallBegun(at_ns=MS, **second),
            sent(1, 2),
            received(2, 2),
            acked(3, 2),
        )
        == []
    )
