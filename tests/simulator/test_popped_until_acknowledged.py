"""What consumers of pops know is silent on a sound story, and fires on a made-up bad one."""

import pytest

from dledger.entry import Index
from simulator.harness.oracle import CommittedMessage, Oracle
from simulator.invariants.invariant import ViolationError
from simulator.invariants.kinds.popped_until_acknowledged import PoppedUntilAcknowledged

GROUP, DEAD = "g", "%DLQ%g"


def of_three() -> PoppedUntilAcknowledged:
    """Messages 100, 101, 102 of one queue, in entries 10, 11, 12."""
    oracle = Oracle()
    oracle.queues[b"T", 0] = [
        CommittedMessage(Index(10 + offset), b"T", 0, offset, 0, 50, 7, 100 + offset) for offset in range(3)
    ]
    return PoppedUntilAcknowledged(oracle)


def ack(fates: PoppedUntilAcknowledged, uid: int, now_us: int) -> None:
    fates.ack_asked(GROUP, uid)
    fates.ack_told(GROUP, uid, now_us)


def test_an_acknowledged_message_is_not_given_to_a_pop_that_was_asked_for_later():
    fates = of_three()
    fates.given(GROUP, 100, 0, asked_us=1, now_us=2)
    ack(fates, 100, now_us=5)
    fates.given(GROUP, 100, 1, asked_us=4, now_us=6)
    fates.given("other", 100, 0, asked_us=6, now_us=7)
    with pytest.raises(ViolationError, match="message 100 is given out, and was acknowledged 1 us before"):
        fates.given(GROUP, 100, 2, asked_us=6, now_us=7)


def test_a_message_comes_again_with_its_count_raised():
    fates = of_three()
    fates.given(GROUP, 100, 0, asked_us=1, now_us=2)
    fates.given(GROUP, 100, 1, asked_us=3, now_us=4)
    fates.given(GROUP, 100, 0, asked_us=2, now_us=5)  # an answer that was late
    with pytest.raises(ViolationError, match="with count 1, and had 1 before"):
        fates.given(GROUP, 100, 1, asked_us=6, now_us=7)


def test_fifo_consumers_get_a_message_once_all_before_it_have_ended():
    fates = of_three()
    fates.given_in_order(GROUP, "T", 0, 0)
    fates.ack_asked(GROUP, 100)
    fates.given_in_order(GROUP, "T", 0, 1)
    with pytest.raises(ViolationError, match="message 101 has not ended, and offset 2"):
        fates.given_in_order(GROUP, "T", 0, 2)
    fates._oracle.dead[DEAD][101] = 1
    fates.given_in_order(GROUP, "T", 0, 2)


def test_fifo_consumers_pass_over_what_retention_took():
    fates = of_three()
    fates.begin_index = 12
    fates.given_in_order(GROUP, "T", 0, 2)


def test_in_the_end_each_message_is_acknowledged_or_dead_or_gone():
    fates = of_three()
    fates.begin_index = 11
    ack(fates, 101, now_us=5)
    with pytest.raises(ViolationError, match="message 102 of entry 12 was lost"):
        fates.check_ended(GROUP, ["T"])
    fates._oracle.dead[DEAD][102] = 1
    fates.check_ended(GROUP, ["T"])


def test_a_message_is_dead_once_and_not_acknowledged_as_well():
    fates = of_three()
    fates._oracle.dead[DEAD][102] = 2
    with pytest.raises(ViolationError, match="message 102 is dead 2 times"):
        fates.check_ended(GROUP, ["T"])
    fates._oracle.dead[DEAD][102] = 1
    ack(fates, 102, now_us=5)
    with pytest.raises(ViolationError, match="message 102 is dead, and was acknowledged"):
        fates.check_ended(GROUP, ["T"])
