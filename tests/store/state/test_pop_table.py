"""What pop consumers have in flight, as the changes of the log leave it."""

from collections import Counter
from random import Random

import msgpack
import pytest

from dledger.entry import Index
from store.state.state_machine import StateMachine
from store.state.state_record import pack_change, pack_changes, unpack_record
from store.state.state_tables import StateTables
from store.state.table import StateChange
from store.state.tables.consumer_offset_table import CommitOffset, ResetOffset
from store.state.tables.pop_queue import NO_OFFSET
from store.state.tables.pop_table import (
    AckMessages,
    ChangeInvisible,
    PopMessages,
    Popped,
    PoppedQueue,
    ReviveMessages,
)
from store.state.tables.subscription_group_table import DeleteSubscriptionGroup
from store.state.tables.topic_config_table import DeleteTopic

KEY = ("g", "T", 0)


def pop(begin: int, next_offset: int, pop_time: int, bits: int | None = None, **more: object) -> PopMessages:
    """Of queue 0, from `begin` on, and from 0 on if that is NO_OFFSET; all messages up to `next_offset`, or `bits`."""
    start = max(begin, 0)
    if bits is None:
        bits = (1 << next_offset - start) - 1
    queue = PoppedQueue("T", 0, begin, start, next_offset, bits)
    return PopMessages("g", pop_time, 100, (queue,), **more)  # type: ignore[arg-type]


def handle(start: int, pop_time: int, *offsets: int) -> Popped:
    return Popped(*KEY, start, pop_time, sum(1 << offset - start for offset in offsets))


def ack(start: int, pop_time: int, *offsets: int) -> AckMessages:
    return AckMessages((handle(start, pop_time, *offsets),))


class Tables(StateTables):
    def take(self, *changes: StateChange) -> None:
        """By way of a record each."""
        for change in changes:
            record = unpack_record(pack_changes([pack_change(change)]))
            assert isinstance(record, list)
            self.apply(record, 7)

    @property
    def in_flight(self) -> set[int]:
        queue = self.pop_table.queues.get(KEY)
        if queue is None:
            return set()
        found = [
            start + number
            for (start, _), check_point in queue.check_points.items()
            for number in range(check_point.waiting.bit_length())
            if check_point.waiting >> number & 1
        ]
        found += list(queue.order.visible) if queue.order is not None else []
        assert len(found) == len(set(found)), "a message is in flight once"
        assert self.pop_table.in_flight_count == len(found)
        order_count = len(queue.order.visible) if queue.order is not None else 0
        assert self.pop_table.check_point_count == len(found) - order_count
        assert self.pop_table.check_point_counts == Counter(
            {"g": self.pop_table.check_point_count} if self.pop_table.check_point_count else {}
        )
        return set(found)

    @property
    def offset(self) -> int:
        return self.consumer_offset_table.query(*KEY)


@pytest.fixture
def tables() -> Tables:
    return Tables()


def test_a_pop_moves_the_groups_offset_and_keeps_what_it_took(tables: Tables) -> None:
    tables.take(pop(NO_OFFSET, 3, 10), pop(3, 5, 10))
    assert (tables.offset, tables.in_flight) == (5, {0, 1, 2, 3, 4})


def test_a_pop_of_another_offset_takes_nothing(tables: Tables) -> None:
    """A commit or a reset came first in the log."""
    tables.take(pop(NO_OFFSET, 3, 10), CommitOffset("g", "T", 0, 1), pop(3, 5, 11))
    assert (tables.offset, tables.in_flight) == (1, {0, 1, 2})


def test_a_reset_in_the_same_record_comes_first(tables: Tables) -> None:
    tables.take(pop(NO_OFFSET, 3, 10))
    tables.apply([pop(3, 5, 11), ResetOffset("g", "T", 0, 1)], 7)
    assert (tables.offset, tables.in_flight) == (1, {0, 1, 2})
    assert tables.consumer_offset_table.reset_offset("g", "T", 0) == 1
    tables.take(pop(1, 4, 12))
    assert tables.consumer_offset_table.reset_offset("g", "T", 0) is None


def test_an_ack_ends_what_its_handle_names_and_nothing_else(tables: Tables) -> None:
    tables.take(pop(NO_OFFSET, 3, 10), pop(3, 6, 11))
    tables.take(ack(0, 10, 1), ack(0, 11, 2), ack(3, 11, 3, 5), ack(0, 10, 1))
    assert tables.in_flight == {0, 2, 4}
    tables.take(ack(0, 10, 0, 2), ack(3, 11, 4))
    assert tables.in_flight == set()
    assert tables.pop_table.queues == {}


def test_a_change_gives_a_message_a_handle_of_its_own(tables: Tables) -> None:
    tables.take(pop(NO_OFFSET, 3, 10), ChangeInvisible(handle(0, 10, 1), 20, 500))
    assert tables.in_flight == {0, 1, 2}
    assert [due.start for due in tables.pop_table.take_due(110)] == [0]
    assert [due.start for due in tables.pop_table.take_due(519)] == []
    assert [due.start for due in tables.pop_table.take_due(520)] == [1]
    tables.take(ack(1, 20, 1), ChangeInvisible(handle(1, 20, 1), 30, 500))
    assert tables.in_flight == {0, 2}


def test_handles_from_before_a_change_name_the_message_still(tables: Tables) -> None:
    """Whoever has one may not have heard of the change, or not of its end."""
    tables.take(pop(NO_OFFSET, 3, 10), ChangeInvisible(handle(0, 10, 1), 20, 500))
    tables.take(ChangeInvisible(handle(0, 10, 1), 30, 500))
    copy = Tables()
    copy.unpack(msgpack.unpackb(msgpack.packb(tables.pack()), strict_map_key=False))
    for each in (tables, copy):
        for start, pop_time in ((0, 10), (1, 20), (1, 30)):
            assert each.pop_table.in_flight(handle(start, pop_time, 1)) == [handle(1, 30, 1)]
        assert each.pop_table.in_flight(handle(0, 10, 0, 1, 2)) == [handle(0, 10, 0, 2), handle(1, 30, 1)]
        assert each.pop_table.in_flight(handle(0, 9, 1)) == []
        each.take(ack(1, 20, 1))
        assert each.in_flight == {0, 2}
        assert each.pop_table.in_flight(handle(1, 30, 1)) == []


def test_a_handle_names_no_message_that_was_popped_anew_since(tables: Tables) -> None:
    tables.take(pop(NO_OFFSET, 3, 10), ChangeInvisible(handle(0, 10, 1), 20, 500))
    tables.take(CommitOffset("g", "T", 0, 1), pop(1, 3, 30), ChangeInvisible(handle(1, 30, 1), 40, 500))
    for old in (handle(0, 10, 1), handle(1, 20, 1)):
        assert tables.pop_table.in_flight(old) == []
    assert tables.pop_table.in_flight(handle(1, 30, 1)) == [handle(1, 40, 1)]


def test_a_change_at_the_time_of_a_pop_from_the_same_start_loses_nothing(tables: Tables) -> None:
    """A clock that was set back."""
    tables.take(pop(NO_OFFSET, 3, 10), ChangeInvisible(handle(0, 10, 0), 10, 500))
    assert tables.in_flight == {0, 1, 2}


def test_a_message_that_is_popped_anew_is_in_flight_by_that_pop_alone(tables: Tables) -> None:
    tables.take(pop(NO_OFFSET, 3, 10), pop(3, 6, 11), CommitOffset("g", "T", 0, 1), pop(1, 5, 12, 0b1011))
    assert tables.in_flight == {0, 1, 2, 3, 4, 5}
    assert tables.pop_table.in_flight(handle(0, 10, 0, 1, 2)) == [handle(0, 10, 0)]
    assert tables.pop_table.in_flight(handle(3, 11, 3, 4, 5)) == [handle(3, 11, 3, 5)]
    assert tables.pop_table.in_flight(handle(1, 12, 1, 2, 4)) == [handle(1, 12, 1, 2, 4)]


@pytest.mark.parametrize("change", [DeleteTopic("T"), DeleteSubscriptionGroup("g", clean_offset=True)])
def test_a_topic_or_group_that_is_deleted_has_nothing_in_flight(tables: Tables, change: StateChange) -> None:
    tables.take(pop(NO_OFFSET, 3, 10), change)
    assert (tables.offset, tables.in_flight) == (-1, set())


def test_an_unused_table_leaves_no_trace_where_topics_are_deleted(tables: Tables) -> None:
    tables.take(DeleteTopic("T"), DeleteSubscriptionGroup("g"))
    assert tables.pop_table.pack() == StateTables().pop_table.pack()


def revival(first_index: int, *revived: Popped, dropped: tuple[Popped, ...] = ()) -> ReviveMessages:
    return ReviveMessages(Index(first_index), revived, dropped)


@pytest.mark.parametrize("applied", range(4))
def test_a_revived_message_ends_when_its_copy_is_applied(tables: Tables, applied: int) -> None:
    tables.take(pop(NO_OFFSET, 4, 10))
    revived = [handle(0, 10, offset) for offset in range(3)]
    tables.take(revival(50, *revived, dropped=(handle(0, 10, 3),)))
    tables.settle(Index(49 + applied))
    assert tables.in_flight == set(range(applied, 3))
    copy = Tables()
    copy.unpack(msgpack.unpackb(msgpack.packb(tables.pack()), strict_map_key=False))
    for each in (tables, copy):
        each.term_began(Index(50 + applied))
        each.settle(Index(99))
        assert each.in_flight == set(range(applied, 3))


@pytest.mark.parametrize("is_settled", [True, False])
def test_what_follows_a_revival_meets_it_done_however_many_entries_one_step_applies(
    *, is_settled: bool
) -> None:
    """The message has come again when its old handle asks for more time: on each member, or they would part."""
    machine = StateMachine(is_whole=True)
    changes: dict[int, StateChange] = {
        9: pop(NO_OFFSET, 1, 10),
        10: revival(11, handle(0, 10, 0)),
        12: ChangeInvisible(handle(0, 10, 0), 20, 100),
    }
    for index, change in changes.items():
        machine.apply(pack_changes([pack_change(change)]), Index(index), 0, 7)
        if is_settled:
            machine.settle(Index(index + (index == 10)))
    machine.settle(Index(12))
    assert machine.tables.pop_table.in_flight_count == 0


class TestFifo:
    def pop(self, tables: Tables, begin: int, next_offset: int, pop_time: int, attempt: str = "") -> None:
        tables.take(pop(begin, next_offset, pop_time, is_order=True, attempt_id=attempt))

    def counts(self, tables: Tables) -> dict[int, int]:
        order = tables.pop_table.order_info(KEY)
        return order.counts if order is not None else {}

    def test_the_offset_is_the_first_message_without_ack(self, tables: Tables) -> None:
        self.pop(tables, NO_OFFSET, 4, 10)
        assert (tables.offset, tables.in_flight) == (0, {0, 1, 2, 3})
        tables.take(ack(2, 10, 2))
        assert (tables.offset, tables.in_flight) == (0, {0, 1, 3})
        tables.take(ack(0, 10, 0), ack(1, 10, 1))
        assert (tables.offset, tables.in_flight) == (3, {3})
        tables.take(ack(3, 10, 3))
        assert (tables.offset, tables.in_flight) == (4, set())
        assert tables.pop_table.queues == {}

    def test_an_ack_of_another_pop_is_none(self, tables: Tables) -> None:
        self.pop(tables, NO_OFFSET, 2, 10)
        self.pop(tables, 0, 2, 20)
        tables.take(ack(0, 10, 0))
        assert tables.in_flight == {0, 1}

    def test_messages_that_come_again_are_counted_but_not_for_the_same_attempt(self, tables: Tables) -> None:
        self.pop(tables, NO_OFFSET, 2, 10, "a")
        self.pop(tables, 0, 2, 20, "a")
        assert self.counts(tables) == {}
        self.pop(tables, 0, 3, 30, "b")
        assert self.counts(tables) == {0: 1, 1: 1}
        self.pop(tables, 0, 1, 40)
        assert self.counts(tables) == {0: 2, 1: 2, 2: 1}

    def test_what_has_its_ack_stays_so_when_less_is_popped_again(self, tables: Tables) -> None:
        self.pop(tables, NO_OFFSET, 4, 10)
        tables.take(ack(1, 10, 1), ack(2, 10, 2))
        self.pop(tables, 0, 1, 20)
        tables.take(ack(0, 20, 0))
        assert (tables.offset, tables.in_flight) == (3, set())

    def test_the_count_of_a_message_outlives_a_pop_of_those_before_it_alone(self, tables: Tables) -> None:
        self.pop(tables, NO_OFFSET, 3, 10)
        self.pop(tables, 0, 1, 20)
        tables.take(ack(0, 20, 0))
        assert (tables.offset, tables.in_flight) == (1, set())
        self.pop(tables, 1, 3, 30)
        assert self.counts(tables) == {1: 1, 2: 1}
        tables.take(ack(1, 30, 1), ack(2, 30, 2))
        assert tables.pop_table.queues == {}

    def test_what_has_its_ack_stays_so_when_those_before_it_are_gone(self, tables: Tables) -> None:
        self.pop(tables, NO_OFFSET, 6, 10)
        tables.take(ack(2, 10, 2), ack(3, 10, 3), ack(5, 10, 5))
        tables.take(pop(0, 3, 20, 0, is_order=True))
        assert (tables.offset, tables.in_flight, self.counts(tables)) == (4, set(), {4: 1})
        self.pop(tables, 4, 6, 30)
        assert tables.in_flight == set()
        self.pop(tables, 4, 5, 40)
        tables.take(ack(4, 40, 4))
        assert (tables.offset, tables.pop_table.queues) == (6, {})

    def test_a_pop_does_not_take_what_has_ended_since_the_leader_looked(self, tables: Tables) -> None:
        self.pop(tables, NO_OFFSET, 3, 10)
        tables.take(ack(1, 10, 1))
        self.pop(tables, 0, 3, 20)
        assert (tables.offset, tables.in_flight) == (0, {0, 2})
        assert tables.pop_table.in_flight(handle(0, 20, 0, 2)) == []
        tables.take(pop(0, 3, 30, 0b101, is_order=True))
        assert tables.pop_table.in_flight(handle(0, 30, 0, 2)) == [handle(0, 30, 0, 2)]

    def test_a_queue_is_blocked_until_all_may_come_again(self, tables: Tables) -> None:
        self.pop(tables, NO_OFFSET, 2, 10, "a")
        order = tables.pop_table.order_info(KEY)
        assert order is not None
        assert order.is_blocked("b", 109)
        assert not order.is_blocked("a", 109)
        assert not order.is_blocked("b", 110)
        tables.take(ChangeInvisible(handle(1, 10, 1), 50, 500))
        assert order.is_blocked("b", 110)
        tables.take(ack(1, 10, 1))
        assert not order.is_blocked("b", 110)

    def test_an_offset_that_was_moved_ends_the_block(self, tables: Tables) -> None:
        self.pop(tables, NO_OFFSET, 4, 10)
        tables.take(ResetOffset("g", "T", 0, 2))
        assert tables.pop_table.order_info(KEY) is None
        tables.take(ack(0, 10, 0))
        assert tables.offset == 2
        self.pop(tables, 2, 4, 20)
        assert (tables.in_flight, self.counts(tables)) == ({2, 3}, {})


@pytest.mark.parametrize("seed", range(20))
def test_packed_tables_are_equal_and_go_on_alike(seed: int) -> None:
    """Pops, acks, changes, commits and revivals at random: a message is in flight once, and times are kept for all."""
    random = Random(seed)
    tables = Tables()
    handles: list[Popped] = []
    for step in range(120):
        change: StateChange
        draw = random.random()
        begin = tables.offset if random.random() < 0.9 else random.randrange(40)
        if draw < 0.4 or not handles:
            next_offset = max(begin, 0) + random.randrange(1, 6)
            is_order = random.random() < 0.2
            bits = random.getrandbits(next_offset - max(begin, 0))
            change = pop(begin, next_offset, step, bits, is_order=is_order)
            start = max(begin, 0)
            handles += [
                Popped(*KEY, offset if is_order else start, step, 1 if is_order else 1 << offset - start)
                for offset in range(start, next_offset)
            ]
        elif draw < 0.7:
            change = AckMessages(tuple(random.sample(handles, min(len(handles), 3))))
        elif draw < 0.8:
            old = random.choice(handles)
            change = ChangeInvisible(old, step, 50, suspend=random.random() < 0.5)
            handles.append(Popped(*KEY, old.start + old.bits.bit_length() - 1, step, 1))
        elif draw < 0.9:
            change = revival(1000 * step, *random.sample(handles, min(len(handles), 2)))
        else:
            change = CommitOffset("g", "T", 0, random.randrange(30))
        tables.take(change)
        copy = Tables()
        copy.unpack(msgpack.unpackb(msgpack.packb(tables.pack()), strict_map_key=False))
        for each in (tables, copy):
            each.settle(Index(1000 * step + random.randrange(2)))
            each.settle(Index(1000 * step + 2))
        assert copy.pop_table.rows() == tables.pop_table.rows()
        assert copy.in_flight == tables.in_flight
        times = {(due.start, due.pop_time) for due in copy.pop_table.take_due(10**9)}
        assert {(due.start, due.pop_time) for due in tables.pop_table._due} >= times


def test_times_of_what_is_gone_are_forgotten(tables: Tables) -> None:
    tables.take(pop(NO_OFFSET, 1, 0))
    for number in range(1, 5000):
        tables.take(pop(number, number + 1, number), ack(number - 1, number - 1, number - 1))
    assert len(tables.pop_table._due) < 2000
