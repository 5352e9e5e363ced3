"""Timer messages that are due in hours or days: their files, and what is rolled."""

from pathlib import Path

import pytest
from store_group import StoreGroup
from test_delayed_messages import (
    bodies_of,
    messages_of,
)
from test_timer_messages import DAY_MS, HOUR_MS, is_idle, recall, timer

from message.names import TIMER_TOPIC
from store.queues.unit_queue import UnitQueue
from store.services import timer_message_service


class TestFarTimers:
    def test_they_leave_memory_and_come_back_in_time(self, tmp_path: Path) -> None:
        group = StoreGroup(tmp_path, data_file_size=1 << 20)
        group.start()
        leader = group.lead()
        deliver_ms = group.now_ms + 5 * HOUR_MS
        bodies = [b"%d" % number for number in range(600)]
        for body in bodies:
            leader.put(timer(deliver_ms + int(body), body))
        group.settle()
        group.run_for(20)
        directory = group.root() / "dledger-n0" / "pydledger" / "timers"
        (bucket,) = directory.iterdir()
        assert bucket.stat().st_size == 512 * 20
        assert leader.store.services.timer_message_service.index.first is None
        assert leader.store.services.timer_message_service.index.counts == {"T": 600}
        group.skip(deliver_ms - 1_000 - group.now_ms)
        group.run_for(900)
        assert not list(directory.iterdir())
        assert leader.store.reads.max_offset("T", 0) == 0
        group.run_for(2_000)
        assert bodies_of(leader) == bodies
        assert leader.store.services.timer_message_service.index.counts == {}

    def test_a_changed_file_of_them_is_made_anew_from_the_log(self, tmp_path: Path) -> None:
        group = StoreGroup(tmp_path, data_file_size=1 << 20)
        group.start()
        leader = group.lead()
        deliver_ms = group.now_ms + 5 * HOUR_MS
        for number in range(300):
            leader.put(timer(deliver_ms, b"%d" % number))
        group.settle()
        group.run_for(20)
        (bucket,) = (group.root() / "dledger-n0" / "pydledger" / "timers").iterdir()
        content = bytearray(bucket.read_bytes())
        content[100] ^= 1
        bucket.write_bytes(content)
        group.skip(deliver_ms - 1_000 - group.now_ms)
        group.run_for(3_000)
        assert bodies_of(leader) == [b"%d" % number for number in range(300)]

    def test_an_index_that_was_made_anew_is_not_ready_without_what_is_due(self, tmp_path: Path) -> None:
        """A recall would end while what it recalls is still to come to memory, and be delivered."""
        group = StoreGroup(tmp_path, data_file_size=1 << 20)
        group.start()
        leader = group.lead()
        deliver_ms = group.now_ms + 5 * HOUR_MS
        for number in range(256):  # that a step reads
            leader.put(timer(deliver_ms, b"%d" % number))
        group.settle()
        group.run_for(20)
        (bucket,) = (group.root() / "dledger-n0" / "pydledger" / "timers").iterdir()
        bucket.write_bytes(bytes(bucket.stat().st_size))
        group.skip(5 * HOUR_MS)
        service = leader.store.services.timer_message_service
        service.catch_up(group.now_ms)
        assert not bucket.exists()
        assert service.index.is_ready(group.now_ms)
        assert service.index.first is not None

    def test_what_was_taken_before_the_index_was_made_anew_is_not_in_it_twice(self, tmp_path: Path) -> None:
        """Two of one message would be delivered together."""
        group = StoreGroup(tmp_path, data_file_size=1 << 20)
        group.start()
        leader = group.lead()
        deliver_ms = group.now_ms + 5 * HOUR_MS
        leader.put(timer(group.now_ms + 500, b"first"))
        for number in range(300):
            leader.put(timer(deliver_ms, b"%d" % number))
        group.settle()
        group.run_for(20)
        service = leader.store.services.timer_message_service
        service.stops_dequeue = True
        taken = service.index.take()
        (bucket,) = (group.root() / "dledger-n0" / "pydledger" / "timers").iterdir()
        bucket.write_bytes(bytes(bucket.stat().st_size))
        group.skip(5 * HOUR_MS)
        group.run_for(100)
        service.index.give_back(taken)
        assert service.index.counts == {"T": 301}
        service.stops_dequeue = False
        group.run_for(3_000)
        assert bodies_of(leader) == [b"first", *(b"%d" % number for number in range(300))]
        assert service.index.counts == {}

    def test_what_waits_for_days_is_rolled_and_arrives_once_at_its_time(self, tmp_path: Path) -> None:
        group = StoreGroup(tmp_path)
        group.start()
        leader = group.lead()
        deliver_ms = group.now_ms + 5 * DAY_MS + 123
        leader.put(
            timer(deliver_ms, b"far", TIMER_DELAY_MS=str(5 * DAY_MS + 123)), timer(deliver_ms, b"gone")
        )
        leader.put(recall(deliver_ms, "gone"))
        group.settle()
        group.skip(2 * DAY_MS)
        group.run_for(100)
        assert leader.store.reads.max_offset(TIMER_TOPIC, 0) == 6
        assert leader.store.tables.timer_table.first_waiting == 3
        group.skip(2 * DAY_MS)
        group.run_for(100)
        waiting = messages_of(leader, TIMER_TOPIC)[6]
        assert waiting.properties["TIMER_ROLL_TIMES"] == "2"
        assert leader.store.services.timer_message_service.index.counts == {"T": 2}
        group.skip(deliver_ms - group.now_ms - 2_000)
        group.run_for(1_999)
        assert leader.store.reads.max_offset("T", 0) == 0
        group.run_for(20)
        (arrived,) = messages_of(leader, "T")
        assert arrived.body == b"far"
        group.run_for(3_000)
        assert is_idle(leader)
        assert leader.store.services.timer_message_service.index.counts == {}

    def test_a_tick_looks_at_few_of_those_that_are_old_and_due_too_soon_to_be_rolled(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(timer_message_service, "ROLL_LOOKS_MAX", 5)
        group = StoreGroup(tmp_path)
        group.start()
        leader = group.lead()
        for number in range(18):
            leader.put(timer(group.now_ms + 50 * HOUR_MS, b"%d" % number))
        leader.put(timer(group.now_ms + 5 * DAY_MS, b"far"))
        group.settle()
        group.run_for(20)
        group.skip(2 * DAY_MS)
        service, looks = leader.store.services.timer_message_service, list[int]()
        old = service._record_at

        def record_at(queue: UnitQueue, offset: int) -> object:
            looks.append(offset)
            return old(queue, offset)

        monkeypatch.setattr(service, "_record_at", record_at)
        for tick in range(1, 4):
            service.tick(group.now_ms)
            assert looks == list(range(5 * tick))
        service.tick(group.now_ms)
        assert looks == list(range(19))
        group.settle()
        assert messages_of(leader, TIMER_TOPIC)[19].properties["TIMER_ROLL_TIMES"] == "1"

    def test_first_waiting_pos_is_that_of_the_first_message_that_waits(self, tmp_path: Path) -> None:
        group = StoreGroup(tmp_path)
        group.start()
        leader = group.lead()
        assert leader.store.services.timer_message_service.first_waiting_pos() is None
        puts = [leader.put(timer(group.now_ms + delay_ms)) for delay_ms in (HOUR_MS, 1_000, 2 * HOUR_MS)]
        group.run_for(3_000)
        assert leader.store.services.timer_message_service.first_waiting_pos() == puts[0].phy_offsets[0]
