"""What is old goes, and nothing that is still needed: data files, ConsumeQueue files, and members that were away."""

from pathlib import Path

import pytest
from store_group import CQ_FILE_UNITS, DATA_FILE_SIZE, START_MS, StoreGroup, StoreMember, message

from dledger.entry import Index
from dledger.log.jobs import MoveBeginJob
from store.get_message import GetMessageStatus
from store.put_message import PutStatus
from store.queues.consume_queue import ConsumeQueue
from store.retention import has_expired
from store.state.table_configs import TopicConfig
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.topic_config_table import PutTopicConfig


def expiring(tmp_path: Path, size: int = 3) -> StoreGroup:
    """Data files go when they are 20 s old; checkpoints come when they are needed."""
    return StoreGroup(
        tmp_path,
        size,
        checkpoint_entries_max=40,
        file_reserved_time_ms=20_000,
        delete_when=frozenset(range(24)),
        clean_resource_interval_ms=1000,
    )


def fill(group: StoreGroup, member: StoreMember, count: int, topic: str = "T", size: int = 3000) -> None:
    for _ in range(count):
        put = member.put(message(topic, body=bytes(size)))
        group.run_until(lambda: put.statuses == [PutStatus.PUT_OK])  # noqa: B023
    group.settle()


def begin_of(member: StoreMember) -> Index:
    return member.replica.log.ledger_begin_index


def data_files(group: StoreGroup, peer: str) -> list[int]:
    return sorted(int(path.name) for path in group.root(peer).glob(f"dledger-{peer}/data/*"))


def age(group: StoreGroup, member: StoreMember) -> None:
    """Lets all of it expire, and the leader begin another file."""
    group.run_for(25_000)
    fill(group, member, DATA_FILE_SIZE // 3000 + 2, "Fresh")
    group.run_for(5_000)


@pytest.mark.slow
def test_expired_files_go_on_each_member_and_pulls_below_are_told_where_to_go_on(tmp_path: Path) -> None:
    group = expiring(tmp_path)
    group.start()
    leader = group.lead()
    fill(group, leader, 4 * CQ_FILE_UNITS + 10)
    age(group, leader)
    for peer, member in group.members.items():
        assert begin_of(member) > 100
        assert data_files(group, peer)[0] == member.replica.log.ledger_begin_pos
        low = member.store.reads.min_offset("T", 0)
        assert low > 3 * CQ_FILE_UNITS
        assert member.store.reads.max_offset("T", 0) == 4 * CQ_FILE_UNITS + 10
        below = member.store.reads.get_message("T", 0, low - 1, 32, 1 << 20)
        assert (below.status, below.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, low)
        queue_files = sorted(group.root(peer).glob("consumequeue/T/0/*"))
        assert int(queue_files[0].name) // 20 <= low < int(queue_files[0].name) // 20 + CQ_FILE_UNITS + 1
        assert len(queue_files) <= 2
    fresh = leader.store.reads.get_message("Fresh", 0, leader.store.reads.min_offset("Fresh", 0), 32, 1 << 20)
    assert fresh.status is GetMessageStatus.FOUND


@pytest.mark.slow
def test_a_queue_of_which_nothing_is_left_goes_on_where_it_was(tmp_path: Path) -> None:
    group = expiring(tmp_path)
    group.start()
    leader = group.lead()
    fill(group, leader, 30, "Gone")
    for _ in range(3):
        age(group, leader)
    for member in group.members.values():
        assert (member.store.reads.min_offset("Gone", 0), member.store.reads.max_offset("Gone", 0)) == (
            30,
            30,
        )
    for peer in list(group.members):
        group.members[peer].crash() if peer == leader.id else group.members[peer].stop()
    for path in group.root("n1").glob("dledger-n1/pydledger/applied-state-*"):
        path.unlink()  # this one rebuilds its queues from what the log still has
    group.start()
    leader = group.lead()
    group.settle()
    assert {member.store.reads.max_offset("Gone", 0) for member in group.members.values()} == {30}
    put = leader.put(message("Gone"))
    assert put.queue_offsets == [30]
    group.settle()
    for member in group.members.values():
        found = member.store.reads.get_message("Gone", 0, 30, 32, 1 << 20)
        assert found.status is GetMessageStatus.FOUND
        assert member.store.reads.min_offset("Gone", 0) == 30


@pytest.mark.slow
@pytest.mark.parametrize("is_wiped", [False, True], ids=["long away", "wiped"])
def test_a_member_below_the_leaders_begin_gets_log_tables_and_offsets(tmp_path: Path, is_wiped: bool) -> None:
    group = expiring(tmp_path)
    group.start()
    leader = group.lead()
    leader.store.propose(PutTopicConfig(TopicConfig("T", read_queue_nums=3)), None, group.now_ms)
    leader.store.propose(CommitOffset("g", "T", 0, 7), None, group.now_ms)
    fill(group, leader, 20, "Gone")
    away = next(peer for peer in group.members if peer != leader.id)
    group.members[away].crash()
    if is_wiped:
        group.root(away).rename(tmp_path / "lost")
    fill(group, leader, 60)
    age(group, leader)
    age(group, leader)
    leader.store.propose(CommitOffset("g", "T", 1, 9), None, group.now_ms)
    assert begin_of(leader) > 80
    group.start(away)
    group.run_until(lambda: group.members[away].replica.log.ledger_end_index >= 0)
    group.settle()  # although nothing is appended
    member = group.members[away]
    assert begin_of(member) == begin_of(leader)
    assert member.store._state.tables.pack() == leader.store._state.tables.pack()
    for topic, count in (("Gone", 20), ("T", 60)):
        assert member.store.reads.max_offset(topic, 0) == leader.store.reads.max_offset(topic, 0) == count
    low, high = leader.store.reads.min_offset("Fresh", 0), leader.store.reads.max_offset("Fresh", 0)
    assert (
        low <= member.store.reads.min_offset("Fresh", 0) < high == member.store.reads.max_offset("Fresh", 0)
    )
    group.run_for(2_000)
    member.stop()
    group.start(away)
    member = group.members[away]
    group.settle()
    assert member.store.reads.max_offset("Gone", 0) == 20
    leader.crash()
    leader = group.lead()
    assert leader.put(message("Gone")).queue_offsets == [20]


def test_times_are_found_while_units_still_point_into_a_file_that_is_gone(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    fill(group, group.lead(), DATA_FILE_SIZE // 3000 + 5)
    group.lead().stop()
    group.start()  # with nothing of the log in memory
    leader = group.lead()
    assert leader.replica.delete_first_file(group.now_ms)
    store = leader.store
    assert store.reads.min_offset("T", 0) == 0, "the queue has not heard of it yet"
    first = store.reads.offset_by_time("T", 0, START_MS)
    assert store.reads.store_timestamp("T", 0, first - 1) == -1
    assert store.reads.store_timestamp("T", 0, first) == store.reads.earliest_store_timestamp()
    group.run_for(50)
    assert store.reads.min_offset("T", 0) == first


def test_queues_begin_no_later_than_the_log_does_after_a_power_loss(tmp_path: Path) -> None:
    """Else a checkpoint could leave out messages that the log's begin, which was not durable yet, brings back."""
    group = StoreGroup(tmp_path, checkpoint_entries_max=40)
    group.start()
    leader = group.lead()
    fill(group, leader, DATA_FILE_SIZE // 3000 + 5)
    run = leader._run
    leader._run = lambda job: None if isinstance(job, MoveBeginJob) else run(job)  # the disk hangs
    assert leader.replica.delete_first_file(group.now_ms)
    fill(group, leader, 100, "Others", size=10)
    group.run_for(5_000)
    assert begin_of(leader) > 0
    kept = leader.store.reads.get_message("T", 0, 0, 32, 1 << 20)
    assert (kept.status, kept.next_begin_offset) == (
        GetMessageStatus.FOUND,
        leader.store.reads.max_offset("T", 0),
    )
    assert 0 < kept.count < leader.store.reads.max_offset("T", 0)
    leader.crash()
    group.start()
    leader = group.lead()
    assert begin_of(leader) == 0
    assert leader.store.reads.min_offset("T", 0) == 0
    assert leader.store.reads.get_message("T", 0, 0, 32, 1 << 20).status is GetMessageStatus.FOUND


@pytest.mark.slow
def test_a_member_whose_damage_all_others_have_deleted_gets_tables_and_offsets(tmp_path: Path) -> None:
    """It has lost its checkpoint as well, so it cannot apply what lies behind the damage."""
    group = expiring(tmp_path)
    group.start()
    leader = group.lead()
    leader.store.propose(CommitOffset("g", "T", 0, 7), None, group.now_ms)
    damaged = next(peer for peer in group.members if peer != leader.id)
    group.members[damaged].store.retention.log.tick = lambda *arguments: None  # type: ignore[method-assign]
    fill(group, leader, 20, "Gone")
    fill(group, leader, 60)
    age(group, leader)
    assert begin_of(leader) > 20
    assert begin_of(group.members[damaged]) == 0
    group.members[damaged].crash()
    for path in group.root(damaged).glob(f"dledger-{damaged}/pydledger/applied-state-*"):
        path.unlink()
    overwrite(group.root(damaged) / f"dledger-{damaged}" / "data" / f"{0:020d}", 4000)
    group.start(damaged)
    member = group.members[damaged]
    assert begin_of(member) == 0
    end = member.replica.log.ledger_end_index
    group.run_until(lambda: member.replica.log.ledger_begin_index > 0)
    assert begin_of(member) == begin_of(leader)
    assert member.replica.log.ledger_end_index >= end
    group.settle()
    assert not member.replica.log.has_faults
    assert member.store._state.tables.pack() == leader.store._state.tables.pack()
    for topic, count in (("Gone", 20), ("T", 60)):
        assert member.store.reads.max_offset(topic, 0) == leader.store.reads.max_offset(topic, 0) == count
    low, high = leader.store.reads.min_offset("Fresh", 0), leader.store.reads.max_offset("Fresh", 0)
    assert (
        low <= member.store.reads.min_offset("Fresh", 0) < high == member.store.reads.max_offset("Fresh", 0)
    )
    leader.crash()
    leader = group.lead()
    assert leader.put(message("Gone")).queue_offsets == [20]


def test_a_file_that_begins_with_damage_is_named_and_keeps_those_before_it(tmp_path: Path) -> None:
    """When its first entry came is not known, and so whether the file before it has been kept for long enough."""
    group = expiring(tmp_path, 1)
    group.start()
    leader = group.lead()
    fill(group, leader, DATA_FILE_SIZE // 3000 + 5)
    overwrite(group.root() / "dledger-n0" / "data" / f"{DATA_FILE_SIZE:020d}", 8)
    group.run_for(30_000)
    assert leader.failure is None
    assert leader.replica.log.has_faults
    assert leader.replica.log.ledger_begin_index == 0
    put = leader.put(message())
    group.run_until(lambda: put.statuses == [PutStatus.PUT_OK])


def test_a_damaged_index_file_is_built_anew_from_the_entries(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    fill(group, group.lead(), 10, size=10)
    index_file = group.root() / "dledger-n0" / "index" / f"{0:020d}"
    sound = index_file.read_bytes()
    group.members["n0"].crash()
    group.start()
    overwrite(index_file, 5 * 32)
    leader = group.lead()
    group.run_until(lambda: leader.replica.idle)
    assert index_file.read_bytes()[: 10 * 32] == sound[: 10 * 32]
    assert not leader.replica.log.has_faults


def overwrite(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"damaged!")


@pytest.mark.parametrize("deleted", [3, 5, 6, 8])
def test_the_start_after_a_deletion_on_an_idle_member_finds_its_queues_whole(
    tmp_path: Path, deleted: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint that lets a queue's files go speaks of the same entry as the one before it."""
    group = StoreGroup(tmp_path, checkpoint_entries_max=40, thorough_interval_ms=2_000)
    group.start()
    leader = group.lead()
    fill(group, leader, 4 * CQ_FILE_UNITS)
    group.run_for(5_000)
    leader = group.lead()
    for _ in range(deleted):
        group.run_until(lambda: leader.replica.delete_first_file(group.now_ms))
        group.run_until(lambda: leader.replica.idle)
        group.run_for(3_000)
    low = leader.store.reads.min_offset("T", 0)
    assert low > CQ_FILE_UNITS
    leader.crash()
    group.start()
    assert "damaged" not in caplog.text
    group.run_for(100)
    assert group.members["n0"].store.reads.min_offset("T", 0) == low


def test_sends_are_refused_on_a_nearly_full_disk_with_cause_value_and_limit(tmp_path: Path) -> None:
    class FullDisk(type(StoreGroup(tmp_path).disk_of("n0"))):  # type: ignore[misc]
        def free_space(self, path: str) -> tuple[int, int]:
            return 9, 100

    group = StoreGroup(tmp_path, disk_of=lambda peer: FullDisk())
    group.start()
    leader = group.lead()
    group.run_for(50)
    put = leader.put(message())
    assert put.refusal is PutStatus.SERVICE_NOT_AVAILABLE
    assert "91.0 % full, the limit is 90 %" in put.result.text  # type: ignore[union-attr]


def cq_files(group: StoreGroup, topic: str) -> list[str]:
    return sorted(path.name for path in (group.root() / "consumequeue" / topic / "0").glob("*"))


def is_of_t(queue: ConsumeQueue) -> bool:
    return queue.topic == b"T"


@pytest.mark.parametrize("flushed", [True, False])
def test_a_queue_that_is_let_go_loses_its_files_and_keeps_its_next_offset(
    tmp_path: Path, flushed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    group = StoreGroup(tmp_path, thorough_interval_ms=2_000)
    group.start()
    leader = group.lead()
    fill(group, leader, CQ_FILE_UNITS + 3, size=10)
    leader.put(message("Other"))
    group.run_for(3_000 if flushed else 1)
    leader.store.retention.queues.let_go(is_of_t)
    group.run_until(lambda: cq_files(group, "Other") and not cq_files(group, "T"))
    assert cq_files(group, "Other")
    end = leader.store.reads.max_offset("T", 0)
    assert leader.store.reads.min_offset("T", 0) == end > CQ_FILE_UNITS
    leader.crash()
    group.start()
    leader = group.lead()
    assert leader.store.reads.min_offset("T", 0) == leader.store.reads.max_offset("T", 0) == end
    assert leader.put(message()).queue_offsets == [end]
    group.run_for(5_000)
    assert cq_files(group, "T") == [f"{end // CQ_FILE_UNITS * CQ_FILE_UNITS * 20:020d}"]
    leader.stop()
    group.start()
    found = group.lead().store.reads.get_message("T", 0, end, 1, 1000)
    assert found.status is GetMessageStatus.FOUND
    assert "damaged" not in caplog.text


def test_messages_that_come_while_a_queue_is_let_go_stay(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, thorough_interval_ms=2_000)
    group.start()
    leader = group.lead()
    fill(group, leader, 5, size=10)
    group.run_for(3_000)
    leader.store.retention.queues.let_go(is_of_t)
    group.run_until(lambda: leader.store.reads.min_offset("T", 0) == 5)
    assert leader.put(message()).queue_offsets == [5]
    group.run_for(10_000)
    assert len(cq_files(group, "T")) == 1
    assert leader.store.reads.get_message("T", 0, 5, 1, 1000).status is GetMessageStatus.FOUND
    leader.crash()
    group.start()
    assert group.lead().store.reads.get_message("T", 0, 5, 1, 1000).status is GetMessageStatus.FOUND


def test_a_queue_without_messages_is_let_go_when_asked_and_not_before(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, thorough_interval_ms=2_000)
    group.start()
    leader = group.lead()
    leader.put(message("Old"))
    fill(group, leader, 2 * DATA_FILE_SIZE // 3000 + 5)
    group.run_for(5_000)
    group.run_until(lambda: leader.replica.delete_first_file(group.now_ms))
    group.run_until(lambda: leader.replica.idle)
    group.run_for(5_000)
    assert leader.store.reads.min_offset("Old", 0) == leader.store.reads.max_offset("Old", 0) == 1
    assert cq_files(group, "Old")
    leader.store.retention.queues.let_go(has_expired)
    group.run_until(lambda: not cq_files(group, "Old"))
    assert cq_files(group, "T")
    assert leader.store.reads.max_offset("Old", 0) == 1
