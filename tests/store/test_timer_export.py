"""What RocketMQ finds of timer messages after a clean stop: all that wait, once, and none that was delivered."""

import tarfile
from pathlib import Path

from golden_store import DLEDGER_STORE, GOLDEN, NODES, unpack_store
from java_timer_files import TimerFiles, read_timer_files
from store_group import StoreGroup, StoreMember
from test_timer_messages import DAY_MS, HOUR_MS, is_idle, recall, timer

from message.decoder import decode_message
from message.names import TIMER_TOPIC
from store.layout.config_json import parse_config
from store.services.timer_message import slot_of


def stop(group: StoreGroup) -> None:
    for member in list(group.members.values()):
        member.stop()


def handed_over(group: StoreGroup, peer: str = "n0") -> TimerFiles:
    return read_timer_files(group.root(peer))


def names_of(member: StoreMember) -> dict[int, str]:
    """Bodies of the timer topic's records by physical offset; of recalls the key behind a minus."""
    reads, found = member.store.reads, {}
    queue = member.store.queues.find(TIMER_TOPIC.encode(), 0)
    assert queue is not None
    for offset in range(queue.max_offset):
        unit = queue.unit(offset)
        assert unit is not None
        record = decode_message(reads.get_message(TIMER_TOPIC, 0, offset, 1, 1 << 20).buffers[0])
        key = record.properties.get("TIMER_DEL_UNIQKEY")
        found[unit[0]] = f"-{key}" if key else record.body.decode()
    return found


def test_what_waits_is_handed_over_in_its_slots_and_what_was_delivered_is_not(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    start_ms = group.now_ms
    leader.put(
        timer(start_ms + HOUR_MS, b"b"),
        timer(start_ms + 2_000, b"delivered"),
        timer(start_ms + HOUR_MS, b"c"),
        recall(start_ms + HOUR_MS, "b"),
        timer(start_ms + 5_000, b"a"),
        timer(start_ms + 1_000, b"delivered, the newest one"),
    )
    group.settle()
    group.run_until(lambda: leader.store.tables.timer_table.ended_count == 2)
    group.settle()
    names = names_of(leader)
    stop(group)
    files = handed_over(group)
    hour_slot_ms, soon_slot_ms = slot_of(start_ms + HOUR_MS, 1000), slot_of(start_ms + 5_000, 1000)
    assert [(unit.slot_ms, names[unit.phy_offset], unit.magic) for unit in files.waiting] == [
        (soon_slot_ms, "a", 1),
        (hour_slot_ms, "b", 1),
        (hour_slot_ms, "c", 1),
        (hour_slot_ms, "-b", 5),
    ]
    assert files.counts == {soon_slot_ms: 1, hour_slot_ms: 1}
    assert files.queue_offset == len(names)
    assert names[files.last_phy_offset] == "delivered, the newest one"
    assert start_ms - 1_000 < files.read_ms <= group.now_ms
    metrics = parse_config((group.root() / "config" / "timermetrics").read_text())
    assert {topic: count["count"] for topic, count in metrics["timingCount"].items()} == {"T": 2}
    assert handed_over(group, "n1") == handed_over(group, "n2") == files


def test_rocketmq_rolls_where_its_wheel_would_and_takes_at_once_what_it_would_have_rolled(
    tmp_path: Path,
) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    start_ms = group.now_ms
    leader.put(
        timer(start_ms + 50 * HOUR_MS, b"a day"),  # the rest of the window is less than a third of it
        timer(start_ms + 5 * DAY_MS, b"two days"),
        timer(start_ms + 40 * HOUR_MS, b"not rolled"),
    )
    group.settle()
    names = names_of(leader)
    stop(group)
    slots = [
        (unit.slot_ms - start_ms // 1000 * 1000, names[unit.phy_offset], unit.magic)
        for unit in handed_over(group).waiting
    ]
    assert slots == [
        (DAY_MS, "a day", 3),
        (slot_of(start_ms + 40 * HOUR_MS, 1000) - start_ms // 1000 * 1000, "not rolled", 1),
        (2 * DAY_MS, "two days", 3),
    ]
    group.start()
    leader = group.lead()
    group.skip(30 * HOUR_MS)
    leader.put(timer(group.now_ms + HOUR_MS, b"new"))
    group.settle()
    names = names_of(leader)
    stop(group)
    files = handed_over(group)
    assert [(names[unit.phy_offset], unit.magic) for unit in files.waiting] == [
        ("a day", 3),
        ("new", 1),
        ("not rolled", 1),
        ("two days", 3),
    ]
    assert files.waiting[0].slot_ms == files.read_ms <= group.now_ms


def test_a_timerlog_of_several_files_and_wheels_of_earlier_stops_go(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, mapped_file_size_timer_log=1024)
    group.start()
    leader = group.lead()
    for number in range(50):  # 19 units a file
        leader.put(timer(group.now_ms + HOUR_MS + number % 7 * 1_000, b"%d" % number))
    group.settle()
    names = names_of(leader)
    stop(group)
    files = handed_over(group)
    assert len(list((group.root() / "timerlog").iterdir())) == 3
    waiting = [int(names[unit.phy_offset]) for unit in files.waiting]
    assert waiting == sorted(range(50), key=lambda number: (number % 7, number))
    assert names[files.last_phy_offset] == "49"
    (group.root() / "timerwheel.52").touch()
    group.start()
    leader = group.lead()
    group.skip(2 * HOUR_MS)
    group.run_until(lambda: is_idle(leader))
    stop(group)
    files = handed_over(group)
    assert (files.waiting, files.queue_offset, files.last_phy_offset) == ([], 50, -1)
    assert not (group.root() / "timerwheel.52").exists()


def test_nothing_is_written_where_no_timer_message_was_ever_sent(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    group.lead()
    group.settle()
    stop(group)
    assert not (group.root() / "timerwheel").exists()
    assert not (group.root() / "config" / "timercheck").exists()


def recorded_group(directory: Path) -> StoreGroup:
    """The recorded store of RocketMQ's group, stopped."""
    left_out = [f"/dledger-{node}/index/" for node in NODES]
    unpack_store(DLEDGER_STORE, directory, lambda path: not any(part in path for part in left_out))
    with tarfile.open(GOLDEN / "store" / f"{DLEDGER_STORE}.tar.xz") as recorded:
        recorded.extract(f"{DLEDGER_STORE}/n0/timerwheel", directory)
    return StoreGroup(
        directory / DLEDGER_STORE,
        3,
        cq_file_units=500,
        data_file_size=1 << 20,
        mapped_file_size_timer_log=52_000,
    )


def test_rocketmq_gets_back_what_it_left(tmp_path: Path) -> None:
    """Ours opens its store, stops, and leaves the same messages waiting."""
    group = recorded_group(tmp_path)
    before = handed_over(group)
    assert len(before.waiting) == 6
    group.now_ms = before.read_ms + HOUR_MS
    group.start()
    group.lead()
    group.run_for(2_000)
    group.settle()
    stop(group)
    after = handed_over(group)
    assert (after.waiting, after.counts) == (before.waiting, before.counts)
    assert (after.queue_offset, after.last_phy_offset) == (before.queue_offset, before.last_phy_offset)
    assert after == handed_over(group, "n1") == handed_over(group, "n2")


def test_what_it_left_stays_as_it_is_until_it_is_known_what_has_ended(tmp_path: Path) -> None:
    group = recorded_group(tmp_path)
    before = handed_over(group)
    group.now_ms = before.read_ms + HOUR_MS
    group.start()
    leader = group.lead()
    assert leader.store.tables.timer_table.awaits_take_over
    stop(group)
    assert handed_over(group) == before
