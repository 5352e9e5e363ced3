"""A group of ours goes on, in place, where a DLedger group of Java's broker was stopped."""

import gzip
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from golden_store import DLEDGER_STORE, GOLDEN, NODES, unpack_store
from store_group import StoreGroup, StoreMember, message

from disk.real_disk import RealDisk
from dledger.entry import Index
from store.errors import StoreDamagedError
from store.layout.consume_queue_unit import CQ_UNIT
from store.put_message import PutStatus
from store.state.config_files import read_config_files
from store.state.state_tables import StateTables
from store.state.tables.consumer_offset_table import CommitOffset

FILE_SIZE = 1 << 20
LAST_INDEX = 2110
# Three hours after the recording, so that every delayed message is due.
LATER_MS = 1_795_168_820_363 + 3 * 3_600_000

pytestmark = pytest.mark.slow


def unpack(tmp_path: Path) -> Path:
    """The stores of the three members, without their index files: those are large, and made anew."""
    left_out = [f"/dledger-{node}/index/" for node in NODES]
    return unpack_store(DLEDGER_STORE, tmp_path, lambda path: not any(part in path for part in left_out))


def group_on(directory: Path, size: int = 3) -> StoreGroup:
    group = StoreGroup(directory, size, cq_file_units=500, data_file_size=FILE_SIZE)
    group.now_ms = LATER_MS
    return group


@cache
def units_by_queue() -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    """Of every queue, as the real broker says."""
    with gzip.open(
        GOLDEN / "store" / f"{DLEDGER_STORE}.broker-view.expected.jsonl.gz", "rt", encoding="utf-8"
    ) as lines:
        found = [line for line in map(json.loads, lines) if line["type"] == "consumequeue"]
    return {(line["topic"], line["queueId"]): [tuple(unit[1:]) for unit in line["units"]] for line in found}


def check_queues(member: StoreMember) -> None:
    """Each message is where Java says it is."""
    for (topic, queue_id), units in units_by_queue().items():
        queue = member.store.queues.find(topic.encode(), queue_id)
        assert queue is not None, topic
        assert [queue.unit(offset) for offset in range(len(units))] == units, topic


def config_of(directory: Path) -> StateTables:
    return read_config_files(RealDisk(), str(directory / "config"))


def tables_of(member: StoreMember) -> tuple[Any, ...]:
    store = member.store
    return (
        store.tables.topic_config_table.configs,
        store.tables.subscription_group_table.configs,
        store.tables.consumer_offset_table.offsets,
    )


def tables_in(tables: StateTables) -> tuple[Any, ...]:
    return (
        tables.topic_config_table.configs,
        tables.subscription_group_table.configs,
        tables.consumer_offset_table.offsets,
    )


def data_files(directory: Path) -> list[list[tuple[str, bytes]]]:
    return [
        [(path.name, path.read_bytes()) for path in sorted((directory / node).glob("dledger-*/data/*"))]
        for node in NODES
    ]


def restart(group: StoreGroup) -> StoreMember:
    for member in list(group.members.values()):
        member.stop()
    group.start()
    leader = group.lead()
    group.settle()
    return leader


def test_three_members_form_a_group_on_their_stores_and_serve_what_java_stored(tmp_path: Path) -> None:
    directory = unpack(tmp_path)
    found = {node: config_of(directory / node) for node in NODES}
    group = group_on(directory)
    group.start()
    leader = group.lead()
    group.settle()
    assert leader.replica.member.curr_term > 4, "3 was Java's, 4 is everybody's first"
    for member in group.members.values():
        check_queues(member)
        assert tables_of(member) == tables_in(found[leader.id])
        assert not member.replica.member.doubted
        assert member.replica.log.term_at(Index(LAST_INDEX)) == 3
    put = leader.put(message("StoreA", 1))
    assert put.queue_offsets == [len(units_by_queue()["StoreA", 1])]
    group.settle()
    files = data_files(directory)
    assert files[0] == files[1] == files[2]
    leader = restart(group)
    check_queues(leader)
    assert leader.store.reads.max_offset("StoreA", 1) == len(units_by_queue()["StoreA", 1]) + 1


def test_delayed_messages_that_wait_are_delivered_and_those_delivered_are_not_again(tmp_path: Path) -> None:
    directory = unpack(tmp_path)
    for node in ("n1", "n2"):
        shutil.rmtree(directory / node / "config")
        shutil.copytree(directory / "n0/config", directory / node / "config")
    group = group_on(directory)
    group.start()
    leader = group.lead()
    done = config_of(directory / "n0").delay_offset_table.offsets
    queues = {
        queue_id + 1: len(units)
        for (topic, queue_id), units in units_by_queue().items()
        if topic == "SCHEDULE_TOPIC_XXXX"
    }
    waiting = sum(count - done.get(level, 0) for level, count in queues.items())
    assert waiting > 0

    def delivered() -> int:
        return sum(
            queue.max_offset - len(units_by_queue().get((queue.topic.decode(), queue.queue_id), ()))
            for queue in leader.store.queues
        )

    group.run_until(lambda: leader.store.tables.delay_offset_table.offsets == queues)
    group.run_for(1000)
    assert delivered() == waiting


def test_offsets_that_were_committed_since_stay_when_another_member_leads(tmp_path: Path) -> None:
    directory = unpack(tmp_path)
    group = group_on(directory)
    group.start()
    leader = group.lead()
    leader.store.propose(CommitOffset("sg_cons", "StoreB", 0, 318), None, group.now_ms)
    group.run_for(100)
    group.settle()
    before = tables_of(leader)
    first = leader.id
    leader.crash()
    leader = group.lead()
    assert leader.id != first
    assert tables_of(leader) == before
    assert leader.store.reads.query_offset("sg_cons", "StoreB", 0) == 318


@pytest.mark.parametrize("wiped", NODES)
def test_a_member_that_lost_its_disk_before_is_doubted_and_comes_to_level(tmp_path: Path, wiped: str) -> None:
    directory = unpack(tmp_path)
    shutil.rmtree(directory / wiped)
    others = [node for node in NODES if node != wiped]
    group = group_on(directory)
    group.start(*others, wiped)
    assert [group.members[node].replica.member.doubted for node in NODES] == [node == wiped for node in NODES]
    leader = group.lead()
    assert leader.id != wiped
    group.settle()
    check_queues(group.members[wiped])
    assert tables_of(group.members[wiped]) == tables_of(leader)
    group.run_for(3000)
    assert not group.members[wiped].replica.member.doubted


def test_a_member_that_waits_with_an_empty_log_leaves_its_tables_for_the_import(tmp_path: Path) -> None:
    directory = unpack(tmp_path)
    for path in directory.glob("n2/*"):
        if path.name != "config" and path.is_dir():
            shutil.rmtree(path)
    found = config_of(directory / "n2")
    group = group_on(directory)
    group.start("n2")
    group.run_for(20_000)
    assert tables_in(config_of(directory / "n2")) == tables_in(found)
    group.members["n2"].stop()
    assert tables_in(config_of(directory / "n2")) == tables_in(found)


def test_a_leader_that_ends_before_its_tables_are_in_the_log_is_followed_by_one_that_puts_in_its_own(
    tmp_path: Path,
) -> None:
    directory = unpack(tmp_path)
    found = {node: config_of(directory / node) for node in NODES}
    group = group_on(directory)
    group.start()

    def importing() -> StoreMember | None:
        return next((member for member in group.members.values() if member.store._leading.is_importing), None)

    group.run_until(lambda: importing() is not None)
    first = importing()
    assert first is not None
    assert not first.store.serving
    assert first.put(message("StoreA")).refusal is PutStatus.SERVICE_NOT_AVAILABLE, "which clients retry"
    first.crash()
    leader = group.lead()
    assert leader is not first
    assert tables_of(leader) == tables_in(found[leader.id])


def test_a_member_without_tables_does_not_serve_and_says_what_to_do(tmp_path: Path) -> None:
    directory = unpack(tmp_path)
    shutil.rmtree(directory / "n0/config")
    group = group_on(directory, 1)
    group.start()
    with pytest.raises(StoreDamagedError, match="Copy config/ of a member"):
        group.lead()
    assert group.serving() is None


def test_queues_whose_messages_have_all_expired_keep_their_next_offset(tmp_path: Path) -> None:
    directory = unpack(tmp_path)
    for node in NODES:
        queue = directory / node / "consumequeue/Expired/3"
        queue.mkdir(parents=True)
        unit = CQ_UNIT.pack(48, 200, 0)
        (queue / "00000000000000010000").write_bytes((unit * 123).ljust(10_000, b"\0"))
        (queue / "00000000000000020000").write_bytes(bytes(10_000))
    group = group_on(directory)
    group.start()
    group.lead()
    leader = restart(group)
    for member in group.members.values():
        assert (
            member.store.reads.min_offset("Expired", 3) == member.store.reads.max_offset("Expired", 3) == 623
        )
    assert leader.put(message("Expired", 3)).queue_offsets == [623]
