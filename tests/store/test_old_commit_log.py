"""A group of ours goes on where a DLedger group of Java's stopped whose members had been plain brokers before."""

import shutil
from pathlib import Path

import pytest
from golden_store import NODES, expected
from mixed_store import BEGIN_POS, FILE_SIZE, PLAIN_STORE, make_mixed_stores, units_before, units_of_both
from store_group import StoreGroup, StoreMember, message, scrub

from message.decoder import decode_message
from store.errors import StoreDamagedError
from store.get_message import GetMessageStatus
from verify.runner import LocalRunner
from verify.validation import validate

# Three hours after the recording, so that every delayed message is due.
LATER_MS = 1_795_168_820_363 + 3 * 3_600_000
HOUR_MS = 3_600_000
QUEUE = ("StoreA", 1)

pytestmark = pytest.mark.slow


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_mixed_stores(tmp_path)


def group_on(directory: Path, size: int = 3, reserved_hours: int = 72) -> StoreGroup:
    group = StoreGroup(
        directory,
        size,
        cq_file_units=500,
        data_file_size=FILE_SIZE,
        delete_when=frozenset(),
        file_reserved_time_ms=reserved_hours * HOUR_MS,
    )
    group.now_ms = LATER_MS
    return group


def lead(group: StoreGroup) -> StoreMember:
    group.start()
    leader = group.lead()
    group.settle()
    return leader


def stop(group: StoreGroup) -> None:
    for member in list(group.members.values()):
        member.stop()


def check_queues(member: StoreMember) -> None:
    """Each message is where Java says it is, before the log and in it."""
    for (topic, queue_id), units in units_of_both().items():
        queue = member.store.queues.find(topic.encode(), queue_id)
        assert queue is not None, topic
        assert [queue.unit(offset) for offset in range(len(units))] == units, topic


def check_reads(member: StoreMember) -> None:
    """Across the end of the old log, by offset, by id and by time."""
    store, units = member.store, units_of_both()[QUEUE]
    offset = len(units_before()[QUEUE]) - 2
    found = store.reads.get_message(*QUEUE, offset, 4, 1 << 20)
    assert (found.status, found.next_begin_offset) == (GetMessageStatus.FOUND, offset + 4)
    records = [decode_message(buffer) for buffer in found.buffers]
    assert [record.queue_offset for record in records] == list(range(offset, offset + 4))
    assert [record.phy_offset for record in records] == [unit[0] for unit in units[offset : offset + 4]]
    for phy_offset, _, _ in units[offset : offset + 4]:
        record = store.reads.look_message_by_offset(phy_offset)
        assert record is not None
        assert decode_message(record).phy_offset == phy_offset
        assert store.reads.look_message_by_offset(phy_offset + 1) is None
    assert store.reads.min_phy_offset == 0
    first = decode_message(store.reads.get_message(*QUEUE, 0, 1, 1 << 20).buffers[0])
    assert store.reads.offset_by_time(*QUEUE, first.store_timestamp) == 0
    assert store.reads.offset_by_time(*QUEUE, records[2].store_timestamp) <= offset + 2
    assert store.reads.earliest_store_timestamp() == store.reads.store_timestamp("StoreA", 0, 0)


def check_keys(group: StoreGroup, member: StoreMember) -> None:
    for line in expected(PLAIN_STORE)["query_key"]:
        query = member.store.reads.query_message(line["topic"], line["key"], 1000, 0, 1 << 62)
        group.run_until(lambda query=query: not query.is_waiting)  # type: ignore[misc]
        while not query.is_done:
            query.look()
        found = [decode_message(record).phy_offset for record in query.records]
        before = [phy_offset for phy_offset in found if phy_offset < BEGIN_POS]
        assert before[-line["maxNum"] :] == line["commitLogOffsets"], line["key"]


def test_three_members_serve_what_lies_before_the_log_and_in_it(directory: Path) -> None:
    group = group_on(directory)
    leader = lead(group)
    for member in group.members.values():
        check_queues(member)
        check_reads(member)
        assert not member.replica.member.doubted
    check_keys(group, leader)
    count = len(units_of_both()[QUEUE])
    assert leader.put(message(*QUEUE)).queue_offsets == [count]
    group.settle()
    stop(group)
    report = validate([directory / node for node in NODES], runner=LocalRunner())
    assert report.is_clean, report.findings.shown
    assert report.notes[0] == "n0: a plain commitlog came before position 3,145,728"
    # From a checkpoint, and all anew.
    shutil.rmtree(directory / "n1/consumequeue")
    leader = lead(group)
    for member in group.members.values():
        check_queues(member)
        check_reads(member)
        assert member.store.reads.max_offset(*QUEUE) == count + 1


def test_a_member_that_lost_its_disk_is_filled_and_begins_later_until_it_gets_the_old_log_again(
    directory: Path,
) -> None:
    shutil.rmtree(directory / "n2")
    group = group_on(directory)
    lead(group)
    wiped = group.members["n2"]
    assert wiped.replica.log.ledger_begin_pos == BEGIN_POS
    before = len(units_before()[QUEUE])
    assert wiped.store.reads.min_offset(*QUEUE) == before
    assert wiped.store.reads.max_offset(*QUEUE) == len(units_of_both()[QUEUE])
    assert wiped.store.reads.get_message(*QUEUE, 0, 1, 1 << 20).status is GetMessageStatus.OFFSET_TOO_SMALL
    assert wiped.store.reads.look_message_by_offset(0) is None
    files = [
        [path.read_bytes() for path in sorted(directory.glob(f"{node}/dledger-*/data/*"))] for node in NODES
    ]
    assert files[0] == files[1] == files[2]
    wiped.stop()
    report = validate([directory / "n2"], runner=LocalRunner())
    assert report.is_clean, report.findings.shown
    shutil.copytree(directory / "n0/commitlog", directory / "n2/commitlog")
    shutil.rmtree(directory / "n2/consumequeue")
    group.start("n2")
    group.settle()
    check_queues(group.members["n2"])
    check_reads(group.members["n2"])


def test_files_before_the_log_go_first_and_each_at_its_time(directory: Path) -> None:
    group = group_on(directory, 1)
    leader = lead(group)
    before = len(units_before()[QUEUE])
    group.run_until(lambda: leader.store.reads.full_state_index >= 0)
    leader.store.retention.log.delete_expired()
    group.run_for(30_000)
    assert leader.store.reads.min_phy_offset == 0, "none of it has expired"
    stop(group)
    group = group_on(directory, 1, reserved_hours=1)
    leader = lead(group)
    services = leader.store.services
    group.skip(7 * 24 * 3_600_000)
    # What waits there for its time or its end keeps it: that has come for all of it.
    group.run_until(lambda: not services.timer_message_service.index.counts)
    group.run_until(lambda: services.transaction_service.pending_count == 0)
    leader.store.retention.log.delete_expired()
    group.run_for(30_000)
    assert leader.store.reads.min_phy_offset > BEGIN_POS
    assert list((directory / "n0/commitlog").iterdir()) == []
    assert leader.store.reads.min_offset(*QUEUE) >= before
    assert leader.store.reads.get_message(*QUEUE, 0, 1, 1 << 20).status is GetMessageStatus.OFFSET_TOO_SMALL


def test_damage_before_the_log_is_told_and_nothing_is_lost_by_it(directory: Path) -> None:
    damaged = directory / "n0/commitlog/00000000000001048576"
    content = bytearray(damaged.read_bytes())
    content[5000:9000] = bytes(4000)
    damaged.write_bytes(content)
    group = group_on(directory, 1)
    with pytest.raises(
        StoreDamagedError, match=r"readable up to .* Copy .*commitlog from another member, or move"
    ):
        group.start()
    assert damaged.read_bytes() == content
    shutil.move(directory / "n0/commitlog", directory / "aside")
    leader = lead(group_on(directory, 1))
    assert leader.store.reads.min_offset(*QUEUE) == len(units_before()[QUEUE])


def test_a_plain_log_that_does_not_end_where_the_log_begins_is_left_alone(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "n0/commitlog/00000000000002097152").unlink()
    leader = lead(group_on(directory, 1))
    assert "messages in the former are not read" in caplog.text
    assert leader.store.reads.min_offset(*QUEUE) == len(units_before()[QUEUE])
    assert len(list((directory / "n0/commitlog").iterdir())) == 2


def test_units_of_messages_before_the_log_are_mended_too(directory: Path) -> None:
    group = group_on(directory)
    leader = lead(group)
    stop(group)
    leader = lead(group)
    assert scrub(leader).faults == 0
    topic, queue_id = QUEUE
    path = min((group.root(leader.id) / "consumequeue" / topic / str(queue_id)).iterdir())
    sound = path.read_bytes()
    with path.open("r+b") as file:
        file.write(bytes(20 * (len(units_before()[QUEUE]) + 2)))
    assert scrub(leader).mended > 0
    assert path.read_bytes() == sound
    check_queues(leader)
