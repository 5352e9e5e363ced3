"""Popped messages that are not acknowledged: they come again once, under one leader and the next."""

from collections.abc import Callable
from pathlib import Path

import pytest
from store_group import StoreGroup, StoreMember, message
from test_delayed_messages import bodies_of, messages_of, zero_from

from dledger.entry import Index
from store.layout.config_json import CONSUMER_OFFSETS, parse_config
from store.services.deliveries import BATCH_COUNT_MAX
from store.state.state_proposals import ProposeStatus
from store.state.table import StateChange
from store.state.table_configs import SubscriptionGroupConfig
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.pop_queue import NO_OFFSET
from store.state.tables.pop_table import (
    AckMessages,
    ChangeInvisible,
    PopMessages,
    Popped,
    PoppedQueue,
)
from store.state.tables.subscription_group_table import PutSubscriptionGroup

RETRY, INVISIBLE_MS = "%RETRY%g_T", 1000


def group_with(tmp_path: Path, count: int, size: int = 1) -> tuple[StoreGroup, StoreMember]:
    """Starts a group, whose leader then has this many messages."""
    group = StoreGroup(tmp_path, size)
    group.start()
    leader = group.lead()
    for number in range(count):
        leader.put(message("T", body=b"%d" % number))
    group.settle()
    return group, leader


def propose(member: StoreMember, change: StateChange) -> list[ProposeStatus]:
    statuses: list[ProposeStatus] = []
    member.store.propose(change, statuses.append, member.group.now_ms)
    return statuses


def pop(group: StoreGroup, leader: StoreMember, count: int, begin: int = NO_OFFSET) -> Popped:
    """What is in flight from then on."""
    start = max(begin, 0)
    bits = (1 << count) - 1
    queue = PoppedQueue("T", 0, begin, start, start + count, bits)
    pop_time = group.now_ms
    statuses = propose(leader, PopMessages("g", pop_time, INVISIBLE_MS, (queue,)))
    group.run_until(lambda: bool(statuses))
    assert statuses == [ProposeStatus.APPLIED]
    return Popped("g", "T", 0, start, pop_time, bits)


def in_flight(leader: StoreMember) -> int:
    return leader.store.tables.pop_table.in_flight_count


def test_what_is_not_acknowledged_in_time_comes_again_and_not_before(tmp_path: Path) -> None:
    group, leader = group_with(tmp_path, 3)
    popped = pop(group, leader, 3)
    propose(leader, AckMessages((popped._replace(bits=0b010),)))
    group.run_for(popped.pop_time + INVISIBLE_MS - 1 - group.now_ms)
    assert bodies_of(leader, RETRY) == []
    group.run_for(50)
    again = messages_of(leader, RETRY)
    assert [(each.body, each.reconsume_times) for each in again] == [(b"0", 1), (b"2", 1)]
    assert again[0].properties["1ST_POP_TIME"] == str(popped.pop_time)
    assert again[0].properties["ORIGIN_GROUP"] == "g"
    assert in_flight(leader) == 0
    assert leader.store.tables.consumer_offset_table.query("g", RETRY, 0) == 0
    group.run_for(10_000)
    assert len(messages_of(leader, RETRY)) == 2


@pytest.mark.parametrize("kept", range(5))
def test_what_is_left_of_a_revival_counts_and_the_rest_comes_later(tmp_path: Path, kept: int) -> None:
    """The log ends within the batch: behind none of its entries, its record, its first message, and so on."""
    group, leader = group_with(tmp_path, 3)
    pop(group, leader, 3)
    end_before = leader.replica.log.ledger_end_index
    group.run_until(lambda: leader.replica.log.ledger_end_index > end_before)
    assert leader.replica.log.ledger_end_index == end_before + 4
    assert leader.store.reads.applied_index == end_before
    end_pos = leader.replica.log.end_pos_at(Index(end_before + kept))
    leader.crash()
    zero_from(group, end_pos)
    group.start()
    leader = group.lead()
    group.run_for(5000)
    assert sorted(bodies_of(leader, RETRY)) == [b"0", b"1", b"2"]
    assert in_flight(leader) == 0


def test_a_new_leader_revives_and_knows_the_acks(tmp_path: Path) -> None:
    group, leader = group_with(tmp_path, 3, size=3)
    popped = pop(group, leader, 3)
    statuses = propose(leader, AckMessages((popped._replace(bits=0b001),)))
    group.run_until(lambda: bool(statuses))
    leader.crash()
    leader = group.lead()
    propose(leader, AckMessages((popped._replace(bits=0b100),)))
    group.run_for(5000)
    assert bodies_of(leader, RETRY) == [b"1"]
    tables = [member.store.tables.pop_table for member in group.members.values()]
    assert tables[0].rows() == tables[1].rows()


@pytest.mark.parametrize("is_changed", [False, True])
def test_an_ack_on_its_way_holds_up_the_revival(tmp_path: Path, is_changed: bool) -> None:
    """Also an ack that came after a change of the invisible time, by the handle that its client had before it."""
    group, leader = group_with(tmp_path, 2)
    popped = pop(group, leader, 2)
    service = leader.store.services.pop_revive_service
    held = service.hold(popped)
    if is_changed:
        propose(leader, ChangeInvisible(popped._replace(bits=0b01), popped.pop_time + 1, 100))
    group.run_for(3000)
    assert bodies_of(leader, RETRY) == []
    propose(leader, AckMessages((popped._replace(bits=0b01),)))
    group.settle()
    service.release([held])
    group.run_for(1000)
    assert bodies_of(leader, RETRY) == [b"1"]


def test_fifo_messages_that_are_due_one_after_the_other_are_dead_once(tmp_path: Path) -> None:
    """One tick finds both expired."""
    group, leader = group_with(tmp_path, 2)
    propose(leader, PutSubscriptionGroup(SubscriptionGroupConfig("g", retry_max_times=0)))
    pop_time = group.now_ms
    queue = PoppedQueue("T", 0, NO_OFFSET, 0, 2, 0b11)
    propose(leader, PopMessages("g", pop_time, INVISIBLE_MS, (queue,), is_order=True))
    statuses = propose(leader, ChangeInvisible(Popped("g", "T", 0, 0, pop_time, 1), pop_time, 900))
    group.run_until(lambda: bool(statuses))
    group.skip(2 * INVISIBLE_MS)
    group.run_for(3000)
    assert sorted(bodies_of(leader, "%DLQ%g")) == [b"0", b"1"]
    assert in_flight(leader) == 0
    assert leader.store.tables.consumer_offset_table.query("g", "T", 0) == 2


def test_more_than_a_batch_comes_again_whole(tmp_path: Path) -> None:
    count = BATCH_COUNT_MAX + 100
    group, leader = group_with(tmp_path, count)
    for start in range(0, count, 32):
        pop(group, leader, min(32, count - start), start or NO_OFFSET)
    group.run_for(5000)
    assert sorted(map(int, bodies_of(leader, RETRY))) == list(range(count))
    assert in_flight(leader) == 0


def test_messages_that_the_group_has_before_it_again_get_no_copy(tmp_path: Path) -> None:
    group, leader = group_with(tmp_path, 3)
    pop(group, leader, 3)
    propose(leader, CommitOffset("g", "T", 0, 1))
    group.run_for(3000)
    assert bodies_of(leader, RETRY) == [b"0"]
    assert in_flight(leader) == 0


def test_a_message_whose_record_is_gone_ends(tmp_path: Path) -> None:
    group, leader = group_with(tmp_path, 1)
    queue = PoppedQueue("T", 0, NO_OFFSET, 0, 2, 0b11)  # there is no second message
    propose(leader, PopMessages("g", group.now_ms, INVISIBLE_MS, (queue,)))
    propose(leader, CommitOffset("g", "T", 0, 2))
    group.run_for(3000)
    assert bodies_of(leader, RETRY) == [b"0"]
    assert in_flight(leader) == 0


def test_a_clean_stop_has_rocketmq_begin_with_the_oldest_message_in_flight(tmp_path: Path) -> None:
    """It knows no check points of ours. Ours goes on where it was."""
    group, leader = group_with(tmp_path, 6)
    popped = pop(group, leader, 3)
    pop(group, leader, 3, begin=3)
    group.run_for(500)
    statuses = propose(leader, AckMessages((popped._replace(bits=0b001),)))
    group.run_until(lambda: bool(statuses))
    root = Path(leader.store.config.store_path_root_dir)
    leader.stop()
    told = parse_config((root / "config" / CONSUMER_OFFSETS).read_text())["offsetTable"]
    assert told["T@g"] == {0: 1}
    group.start()
    leader = group.lead()
    assert leader.store.tables.consumer_offset_table.query("g", "T", 0) == 6
    group.run_for(5000)
    assert sorted(bodies_of(leader, RETRY)) == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("topic", ["T", RETRY, "%RETRY%g+T"])
def test_a_retry_topic_stays_what_it_is(tmp_path: Path, topic: str) -> None:
    group = StoreGroup(tmp_path, enable_retry_topic_v2=topic == "T")
    group.start()
    leader = group.lead()
    leader.put(message(topic, body=b"x"))
    group.settle()
    queue = PoppedQueue(topic, 0, NO_OFFSET, 0, 1, 1)
    propose(leader, PopMessages("g", group.now_ms, INVISIBLE_MS, (queue,)))
    group.run_for(3000)
    again = messages_of(leader, "%RETRY%g+T" if topic == "T" else topic)
    assert [each.reconsume_times for each in again] == ([1] if topic == "T" else [0, 1])


def test_a_record_that_a_full_log_refuses_is_offered_again(tmp_path: Path) -> None:
    group, leader = group_with(tmp_path, 2)
    pop(group, leader, 2)
    commit_log = leader.store._commit_log
    deliver: Callable[..., Index | None] = commit_log.deliver
    refused: list[int] = []

    def refuse(*args: object) -> None:
        refused.append(group.now_ms)

    commit_log.deliver = refuse  # type: ignore[method-assign,assignment]
    group.run_for(2000)
    assert 2 < len(refused) < 15
    commit_log.deliver = deliver  # type: ignore[method-assign]
    group.run_for(1000)
    assert bodies_of(leader, RETRY) == [b"0", b"1"]
