"""A group of ours goes on, in place, where a DLedger group of Java's broker was stopped."""

import gzip
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import msgpack
import pytest
from golden_store import DLEDGER_STORE, GOLDEN, NODES, unpack_store
from store_group import DATA_FILE_SIZE, StoreGroup, StoreMember, message

from disk.real_disk import RealDisk
from dledger.entry import EntryKind, Index, Term, walk
from dledger.errors import HandshakeRefusedError
from dledger.log.config import LogConfig
from dledger.log.log_store import LogStore
from message.encoder import encode_record
from store.errors import StoreDamagedError
from store.java.exports import APPLIED_INDEX
from store.java.java_import import JavaImport
from store.layout.config_json import parse_config, render_config
from store.layout.consume_queue_unit import CQ_UNIT
from store.put_message import PutStatus
from store.state.config_files import read_config_files
from store.state.state_tables import StateTables
from store.state.tables.consumer_offset_table import CommitOffset
from store.store_config import StoreConfig

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


def java_goes_on(directory: Path, node: str, count: int) -> None:
    """As Java's broker would on a stopped member of ours: messages in its next term, and an offset committed."""
    root = directory / node
    ledger = root / f"dledger-{node}"
    term = int((ledger / "currterm").read_text().split("currTerm=")[1].split()[0])
    log = LogStore.open(RealDisk(), LogConfig(directory=str(ledger), data_file_size=FILE_SIZE))
    first_index = log.ledger_end_index + 1
    first_offset = len(units_by_queue()["StoreB", 1])
    for number in range(count):
        put = message("StoreB", 1, b"from Java")
        size = len(record(put, 0, 0))
        positions = log.reserve([size])
        body = record(put, first_offset + number, positions[0] + 48)
        log.append([body], positions, Term(term), EntryKind.MESSAGE)
    log.close(clean=True)
    for path in (ledger / "data").iterdir():
        content = bytearray(path.read_bytes())
        for header, _ in walk(bytes(content), int(path.name)):
            if header.index >= first_index:
                start = header.pos - int(path.name)
                content[start + 36 : start + 44] = bytes(8)
        path.write_bytes(content)
    # What a run of Java leaves of our own files: all of them, but for the marks of LogStore above.
    (ledger / "currterm").write_text(f"voteLeader=n0\ncurrTerm={term}\n")
    offsets = root / "config/consumerOffset.json"
    exported: Any = parse_config(offsets.read_text())
    del exported[APPLIED_INDEX]
    assert exported["offsetTable"]["StoreB@sg_cons"][0] == 316
    exported["offsetTable"]["StoreB@sg_cons"][0] = 317
    offsets.write_text(render_config(exported))


def record(put: Any, queue_offset: int, phy_offset: int) -> bytes:
    return encode_record(
        put.topic, put.queue_id, put.flag, queue_offset, phy_offset, put.sys_flag, put.born_timestamp,
        put.born_host, LATER_MS, put.born_host, 0, 0, put.body, put.properties,
    )  # fmt: skip


def stopped_group(directory: Path) -> StoreGroup:
    """Has taken over those stores, each with the tables of the first, and is stopped."""
    for node in ("n1", "n2"):
        shutil.rmtree(directory / node / "config")
        shutil.copytree(directory / "n0/config", directory / node / "config")
    group = group_on(directory)
    group.start()
    group.lead()
    restart(group)
    for member in list(group.members.values()):
        member.stop()
    return group


@pytest.mark.parametrize("has_deleted", [False, True])
def test_java_may_go_on_after_us_and_we_after_java(tmp_path: Path, has_deleted: bool) -> None:
    directory = unpack(tmp_path)
    group = stopped_group(directory)
    for node in NODES:
        own = directory / node / f"dledger-{node}" / "pydledger"
        shutil.copytree(own, tmp_path / "own" / node)
        java_goes_on(directory, node, 20)
        shutil.rmtree(own)
        shutil.copytree(tmp_path / "own" / node, own)
        if has_deleted:  # by Java's retention
            (directory / node / f"dledger-{node}/data/00000000000000000000").unlink()
            for path in own.glob("applied-state-*"):
                path.unlink()
    group.start()
    leader = group.lead()
    group.settle()
    if not has_deleted:
        check_queues(leader)
    for member in group.members.values():
        assert member.store.reads.max_offset("StoreB", 1) == len(units_by_queue()["StoreB", 1]) + 20
        assert member.store.reads.query_offset("sg_cons", "StoreB", 0) == 317
        assert not member.replica.member.doubted
    leader = restart(group)
    assert leader.store.reads.query_offset("sg_cons", "StoreB", 0) == 317


def java_stores_nothing(directory: Path, node: str, offsets: dict[int, int]) -> None:
    """As Java's broker would on a stopped member of ours, if consumers of StoreB committed these offsets."""
    ledger = directory / node / f"dledger-{node}"
    term = int((ledger / "currterm").read_text().split("currTerm=")[1].split()[0])
    (ledger / "currterm").write_text(f"voteLeader=n0\ncurrTerm={term}\n")
    path = directory / node / "config/consumerOffset.json"
    exported: Any = parse_config(path.read_text())
    del exported[APPLIED_INDEX]
    exported["offsetTable"]["StoreB@sg_cons"].update(offsets)
    path.write_text(render_config(exported))


def test_offsets_committed_under_java_count_where_it_stored_nothing(tmp_path: Path) -> None:
    directory = unpack(tmp_path)
    group = stopped_group(directory)
    known = config_of(directory / "n0").consumer_offset_table.offsets["StoreB@sg_cons"]
    for node in NODES:
        java_stores_nothing(directory, node, {0: known[0] + 1, 1: known[1] - 1})
    group.start("n0")
    group.run_for(20_000)  # alone it must not write over what Java's broker has left
    group.members["n0"].stop()
    group.start()
    leader = group.lead()
    assert leader.store.reads.query_offset("sg_cons", "StoreB", 0) == known[0] + 1, (
        "also before it is committed"
    )
    leader.store.propose(CommitOffset("sg_cons", "StoreB", 1, known[1] + 5), None, group.now_ms)
    group.run_for(100)
    group.settle()
    leader = restart(group)
    for member in group.members.values():
        offsets = member.store.tables.consumer_offset_table.offsets["StoreB@sg_cons"]
        assert offsets == {0: known[0] + 1, 1: known[1] + 5}


def test_a_member_that_was_behind_under_java_comes_to_level(tmp_path: Path) -> None:
    directory = unpack(tmp_path)
    ledger = directory / "n1/dledger-n1"
    (ledger / "data/00000000000002097152").write_bytes(bytes(FILE_SIZE))
    (ledger / "checkpoint").write_text("committedIndex=1500\nendIndex=1500\n")
    group = group_on(directory)
    group.start()
    leader = group.lead()
    assert leader.id != "n1"
    group.settle()
    check_queues(group.members["n1"])
    files = data_files(directory)
    assert files[0] == files[1] == files[2]


def test_members_whose_logs_begin_apart_form_no_group_until_one_of_them_begins_anew(tmp_path: Path) -> None:
    directory = unpack(tmp_path)
    ledger = directory / "n1/dledger-n1"
    (ledger / "data/00000000000000000000").unlink()
    group = group_on(directory)
    with pytest.raises(
        HandshakeRefusedError, match=r"'n1' with 00000000000001048576: .* Stop 'n1', remove its dledger-n1"
    ):
        group.start()
    shutil.rmtree(ledger)
    group = group_on(directory)
    group.start()
    leader = group.lead()
    group.settle()
    assert leader.id != "n1"
    check_queues(group.members["n1"])
    files = data_files(directory)
    assert files[0] == files[1] == files[2]


def test_a_member_that_java_did_not_run_on_does_not_bring_its_tables_of_before(tmp_path: Path) -> None:
    directory = unpack(tmp_path)
    group = stopped_group(directory)
    for node in ("n0", "n1"):
        own = directory / node / f"dledger-{node}" / "pydledger"
        shutil.copytree(own, tmp_path / "own" / node)
        java_goes_on(directory, node, 20)
        shutil.rmtree(own)
        shutil.copytree(tmp_path / "own" / node, own)
    group.start("n0", "n2")
    group.run_until(lambda: any(member.store._leading.is_importing for member in group.members.values()))
    assert group.members["n0"].store._leading.is_importing
    group.members["n0"].crash()
    group.start("n1")
    with pytest.raises(StoreDamagedError, match="Copy config/ of a member"):
        group.lead()
    shutil.copytree(directory / "n1/config", directory / "n2/config", dirs_exist_ok=True)
    for member in list(group.members.values()):
        member.crash()
    group.start("n1", "n2")
    assert group.lead().store.reads.query_offset("sg_cons", "StoreB", 0) == 317


def test_a_member_that_java_has_left_without_a_full_state_does_not_serve_with_empty_tables(
    tmp_path: Path,
) -> None:
    group = StoreGroup(tmp_path, 1)
    group.start()
    leader = group.lead()
    leader.store.propose(CommitOffset("g", "T", 0, 7), None, group.now_ms)
    group.run_for(1000)
    body = bytes(DATA_FILE_SIZE // 8)
    while leader.replica.log.ledger_end_pos < DATA_FILE_SIZE - 1.5 * len(body):
        leader.put(message(body=body))
    leader.put(message(body=bytes(DATA_FILE_SIZE - leader.replica.log.ledger_end_pos - 250)))
    leader.stop()
    group.start()
    leader = group.lead()
    assert leader.replica.log.pos_at(leader.store.reads.applied_index) == DATA_FILE_SIZE, "the no-op alone"
    leader.crash()
    # Java runs, stores nothing and deletes what has expired; what we knew besides is lost.
    ledger = group.root() / "dledger-n0"
    (ledger / "currterm").write_text("voteLeader=n0\ncurrTerm=4\n")
    (ledger / f"data/{0:020}").unlink()
    for path in ledger.glob("pydledger/applied-state-*"):
        path.unlink()
    group.start()
    with pytest.raises(StoreDamagedError, match="let it store a message, stop it"):
        group.lead()
    assert group.serving() is None


KEPT = (3, [(b"Expired", 3, 0, 623), (b"T", 0, 0, 9)])


def kept_by(tmp_path: Path) -> tuple[JavaImport, Path]:
    directory = tmp_path / "dledger-n0" / "pydledger"
    directory.mkdir(parents=True)
    config = StoreConfig(
        store_path_root_dir=str(tmp_path), ledger_directory=str(directory.parent), store_host=bytes(8)
    )
    return JavaImport(RealDisk(), config), directory / "java-queues"


def test_what_is_kept_of_javas_queues_is_never_read_otherwise(tmp_path: Path) -> None:
    queues = tmp_path / "consumequeue/Expired/3"
    queues.mkdir(parents=True)
    (queues / f"{10_000:020}").write_bytes((CQ_UNIT.pack(48, 200, 0) * 123).ljust(10_000, b"\0"))
    java_import, path = kept_by(tmp_path)
    (tmp_path / "dledger-n0" / "currterm").write_text("voteLeader=n0\ncurrTerm=3\n")
    java_import.look()
    assert java_import._kept() == (3, [(b"Expired", 3, 0, 623)])
    sound = path.read_bytes()
    for at in range(len(sound)):
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(StoreDamagedError, match="java-queues"):
                java_import._kept()


def test_what_an_earlier_release_kept_of_javas_queues_is_read(tmp_path: Path) -> None:
    java_import, path = kept_by(tmp_path)
    path.write_bytes(msgpack.packb(KEPT))
    assert java_import._kept() == KEPT


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1junk",
        b"PyDJ\0\0\0\0junk",
        msgpack.packb([3]),
        msgpack.packb(["x", []]),
        msgpack.packb([True, 5]),
    ],
)
def test_a_member_leads_long_after_the_import_with_a_damaged_file_of_javas_queues(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    member = group.lead()
    member.put(message())
    group.settle()
    member.stop()
    (group.root() / "dledger-n0/pydledger/java-queues").write_bytes(content)
    group.start()
    assert group.lead().put(message()).queue_offsets == [1]
    assert "nothing is known of offsets committed under Java" in caplog.text
