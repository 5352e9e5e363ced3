"""Timer messages in a store that RocketMQ ran on last."""

import struct
from pathlib import Path

import pytest
from store_group import StoreGroup, StoreMember
from test_delayed_messages import (
    bodies_of,
    entries_of,
)
from test_timer_messages import DAY_MS, HOUR_MS, is_idle, recall, timer

from disk.real_disk import RealDisk
from dledger.entry import EntryKind, parse_header
from store.put_message import PutMessage
from store.state.config_files import read_config_files
from store.state.state_tables import StateTables


def start_after_rocketmq(
    group: StoreGroup, messages: list[PutMessage], read_ms: int, offset: int
) -> StoreMember:
    """Returns the leader over a store that has `messages`. RocketMQ's wheel was read up to a time, and has what is
    before `offset`.
    """
    group.start()
    leader = group.lead()
    for waiting in messages:
        leader.put(waiting)
    group.settle()
    for member in list(group.members.values()):
        member.stop()
    group.start()
    check_point = struct.pack(">7q", read_ms, 0, offset, offset, 0, 0, 0)
    for member in group.members.values():
        member.store.tables.timer_table.read_check_point(check_point)
    return group.lead()


class TestAfterRocketmq:
    """A store that RocketMQ's broker had: config/timercheck says how far its wheel was."""

    def test_what_it_has_delivered_or_rolled_does_not_come_again(self, tmp_path: Path) -> None:
        group = StoreGroup(tmp_path)
        now_ms = group.now_ms
        messages = [
            timer(now_ms + HOUR_MS, b"delivered"),
            timer(now_ms + 50 * HOUR_MS, b"rolled"),  # after a day
            recall(now_ms + HOUR_MS, "delivered"),
            timer(now_ms + 40 * HOUR_MS, b"waits"),
            timer(now_ms + 5 * DAY_MS, b"rolled later"),
            timer(now_ms + 50 * HOUR_MS, b"rolled", TIMER_ROLL_TIMES="1"),
        ]
        leader = start_after_rocketmq(group, messages, now_ms + 30 * HOUR_MS, 5)
        group.run_until(lambda: leader.store.tables.timer_table.first_waiting == 3)
        group.run_for(20)
        assert leader.store.services.timer_message_service.index.counts == {"T": 3}
        group.skip(6 * DAY_MS)
        group.run_for(5_000)
        assert bodies_of(leader) == [b"waits", b"rolled", b"rolled later"]
        assert is_idle(leader)

    def test_what_was_not_stored_anew_waits_though_the_time_to_roll_it_has_come(self, tmp_path: Path) -> None:
        """RocketMQ's broker ended in that second. Some were sent twice, and were stored anew once."""
        group = StoreGroup(tmp_path)
        now_ms = group.now_ms
        due_ms = now_ms + 50 * HOUR_MS
        messages = [
            timer(due_ms, b"ended there"),
            timer(due_ms, b"recalled"),
            recall(due_ms, "recalled"),
            timer(due_ms, b"twice"),
            timer(due_ms, b"twice"),
            timer(due_ms, b"rolled"),
            timer(due_ms, b"again", TIMER_ROLL_TIMES="1"),
            timer(due_ms, b"rolled", TIMER_ROLL_TIMES="1"),
            timer(due_ms, b"twice", TIMER_ROLL_TIMES="1"),
            timer(due_ms, b"again", TIMER_ROLL_TIMES="2"),
        ]
        leader = start_after_rocketmq(group, messages, now_ms + 24 * HOUR_MS + 1_000, 7)
        group.skip(51 * HOUR_MS)
        group.run_until(lambda: is_idle(leader))
        assert bodies_of(leader) == [b"ended there", b"twice", b"rolled", b"twice", b"again"]

    @pytest.mark.slow
    def test_the_end_of_many_is_a_few_records_and_one_leader_ends_what_another_began(
        self, tmp_path: Path
    ) -> None:
        group = StoreGroup(tmp_path, 3)
        now_ms, count = group.now_ms, 1_000
        messages = []
        for number in range(count):
            messages += [timer(now_ms + 600_000, b"gone"), timer(now_ms + 2 * HOUR_MS, b"%d" % number)]
        leader = start_after_rocketmq(group, messages, now_ms + HOUR_MS, len(messages))
        table = leader.store.tables.timer_table
        group.run_until(lambda: table.ended_count > 0)
        assert table.awaits_take_over
        leader.crash()
        leader = group.lead()
        table = leader.store.tables.timer_table
        assert table.awaits_take_over
        group.run_until(lambda: not table.awaits_take_over)
        assert (table.first_waiting, table.ended_count) == (1, count - 1)
        states = [entry for entry in entries_of(leader) if parse_header(entry).kind == EntryKind.STATE]
        assert len(states) < 20
        group.skip(3 * HOUR_MS)
        group.run_until(lambda: is_idle(leader))
        assert bodies_of(leader) == [b"%d" % number for number in range(count)]

    def test_the_check_point_is_read_with_the_tables(self, tmp_path: Path) -> None:
        (tmp_path / "timercheck").write_bytes(struct.pack(">7q", 17, 0, 3, 3, 0, 0, 0).ljust(4096, b"\0"))
        tables = read_config_files(RealDisk(), str(tmp_path))
        assert (tables.timer_table.java_offset, tables.timer_table.java_read_ms) == (3, 17)
        copy = StateTables()
        copy.unpack(tables.pack())
        assert copy.timer_table.java_offset == 3
