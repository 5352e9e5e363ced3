"""Java's group may go on with the stores where ours was stopped, and ours after it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from golden_store import NODES
from store_group import DATA_FILE_SIZE, StoreGroup, message
from test_java_import import (
    FILE_SIZE,
    LATER_MS,
    check_queues,
    config_of,
    data_files,
    group_on,
    restart,
    units_by_queue,
    unpack,
)

from disk.real_disk import RealDisk
from dledger.entry import EntryKind, Term, walk
from dledger.errors import HandshakeRefusedError
from dledger.log.config import LogConfig
from dledger.log.log_store import LogStore
from message.encoder import encode_record
from store.errors import StoreDamagedError
from store.java.exports import APPLIED_INDEX
from store.layout.config_json import parse_config, render_config
from store.state.tables.consumer_offset_table import CommitOffset

pytestmark = pytest.mark.slow


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
