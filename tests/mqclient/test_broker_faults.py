"""The rule by which a producer leaves brokers alone, with times of the test's own."""

from mqclient import MessageQueue
from mqclient.producer.broker_faults import AVOIDED_S_MAX, BrokerFaults

GOOD, BAD = MessageQueue("T", "good", 0), MessageQueue("T", "bad", 0)


def is_avoided(faults: BrokerFaults, now: float) -> bool:
    return list(faults.usable([BAD, GOOD], now)) == [GOOD]


def test_a_broker_that_fails_is_avoided_for_twice_as_long_each_time_until_it_answers() -> None:
    faults = BrokerFaults()
    assert not is_avoided(faults, 0.0)
    faults.failed("bad", 0.0)
    assert is_avoided(faults, 0.09)
    assert not is_avoided(faults, 0.11)
    faults.failed("bad", 1.0)
    assert is_avoided(faults, 1.19)
    assert not is_avoided(faults, 1.21)
    faults.answered("bad")
    faults.failed("bad", 2.0)
    assert not is_avoided(faults, 2.11)


def test_sends_that_fail_together_are_one_failure() -> None:
    faults = BrokerFaults()
    for _ in range(100):
        faults.failed("bad", 0.05)
    assert is_avoided(faults, 0.14)
    assert not is_avoided(faults, 0.16)


def test_no_broker_is_avoided_for_ever() -> None:
    faults, now = BrokerFaults(), 0.0
    for _ in range(20):
        faults.failed("bad", now)
        now += AVOIDED_S_MAX + 1
    assert not is_avoided(faults, now)


def test_brokers_that_all_fail_are_all_tried() -> None:
    faults = BrokerFaults()
    faults.failed("bad", 0.0)
    faults.failed("good", 0.0)
    assert list(faults.usable([BAD, GOOD], 0.01)) == [BAD, GOOD]
