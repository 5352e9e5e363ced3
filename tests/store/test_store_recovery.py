"""Whatever is lost of the derived files, and whenever the process dies: what a start makes of the log is the same."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from store_group import CQ_FILE_UNITS, StoreGroup, StoreMember, consume_queue_units, message

from dledger.core.output import Role
from dledger.entry import EntryKind, walk
from message.decoder import decode_message
from store.derived.checkpoint_file import unpack_checkpoint
from store.layout.checkpoint import parse_checkpoint
from store.layout.config_json import parse_config
from store.state.table_configs import SubscriptionGroupConfig, TopicConfig
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.subscription_group_table import PutSubscriptionGroup
from store.state.tables.topic_config_table import PutTopicConfig

Units = dict[tuple[str, int], list[tuple[int, int, int]]]
K256 = 256 * 1024


def units_by_the_log(member: StoreMember) -> Units:
    """The units that the log calls for, found by reading it entry by entry."""
    queues: Units = {}
    log = member.replica.log
    for batch in log.batches_from(log.ledger_begin_index, member.store.reads.applied_index, 1 << 20):
        for header, body in walk(batch.buffer, batch.pos):
            if header.kind == EntryKind.MESSAGE:
                found = decode_message(body)
                units = queues.setdefault((found.topic, found.queue_id), [])
                assert found.queue_offset == len(units)
                units.append((found.phy_offset, found.store_size, len(found.properties.get("TAGS", ""))))
    return queues


def units_seen(member: StoreMember) -> Units:
    """What pulls would find, tags codes replaced by their being there or not (one-letter tags)."""
    queues: Units = {}
    for queue in member.store.queues:
        units = [queue.unit(offset) for offset in range(queue.min_offset, queue.max_offset)]
        queues[queue.topic.decode(), queue.queue_id] = [
            (unit[0], unit[1], int(unit[2] != 0)) for unit in units if unit is not None
        ]
        assert len(units) == len(queues[queue.topic.decode(), queue.queue_id])
    return queues


def put_some(member: StoreMember, random: Random, batches: int) -> None:
    for _ in range(batches):
        member.put(
            *[
                message(
                    random.choice("TU"),
                    random.randrange(3),
                    random.randbytes(random.randint(1, 400)),
                    random.choice(["", "A", "B"]),
                )
                for _ in range(random.randint(1, 12))
            ]
        )


def propose_some(group: StoreGroup, member: StoreMember) -> None:
    for change in (
        PutTopicConfig(TopicConfig("T", 3, 3)),
        PutSubscriptionGroup(SubscriptionGroupConfig("g")),
        CommitOffset("g", "T", 0, 7),
    ):
        member.store.propose(change, None, group.now_ms)
    group.run_for(50)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_queues_and_tables_are_the_same_after_a_crash_at_any_moment(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    group = StoreGroup(tmp_path, thorough_interval_ms=300, checkpoint_entries_max=10**6)
    group.start()
    propose_some(group, group.lead())
    for _ in range(8):
        member = group.lead()
        put_some(member, random, random.randint(1, 12))
        group.run_for(random.choice([0, 1, 3, 50, 400, 1500]))
        if random.random() < 0.25:
            member.stop()
        else:
            member.crash()
        group.start()
        member = group.lead()
        group.settle()
        assert units_seen(member) == units_by_the_log(member)
        assert member.store.tables.topic_config_table.get("T") == TopicConfig("T", 3, 3)
        assert member.store.reads.query_offset("g", "T", 0) == 7


def test_a_start_dispatches_only_what_came_behind_the_checkpoint(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, thorough_interval_ms=500)
    group.start()
    put_some(group.lead(), Random(1), 20)
    group.run_for(2000)
    group.members["n0"].crash()
    group.start()
    member = group.members["n0"]
    log = member.replica.log
    assert member.store.reads.applied_index == log.ledger_end_index
    assert units_seen(member) == units_by_the_log(member)


def test_a_checkpoint_is_due_after_enough_entries_too(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, checkpoint_entries_max=100)
    group.start()
    put_some(group.lead(), Random(1), 60)
    group.run_for(1500)
    group.members["n0"].crash()
    group.start()
    assert group.members["n0"].store.reads.applied_index > 100


def lose_a_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "T" / "1")


def lose_a_file(root: Path) -> None:
    sorted((root / "consumequeue" / "T" / "0").iterdir())[0].unlink()


def cut_a_file_short(root: Path) -> None:
    path = sorted((root / "consumequeue" / "U" / "2").iterdir())[0]
    path.write_bytes(path.read_bytes()[:100])


def zero_a_file(root: Path) -> None:
    path = sorted((root / "consumequeue" / "U" / "0").iterdir())[0]
    path.write_bytes(bytes(path.stat().st_size))


def lengthen_a_file(root: Path) -> None:
    path = sorted((root / "consumequeue" / "U" / "0").iterdir())[-1]
    path.write_bytes(path.read_bytes() + b"x")


def lose_all_checkpoints(root: Path) -> None:
    for path in (root / "dledger-n0" / "pydledger").glob("applied-state-*"):
        path.unlink()


def damage_all_checkpoints(root: Path) -> None:
    for path in (root / "dledger-n0" / "pydledger").glob("applied-state-*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def lose_config(root: Path) -> None:
    shutil.rmtree(root / "config")


def lose_all_that_is_derived(root: Path) -> None:
    for name in ("config", "consumequeue"):
        shutil.rmtree(root / name)
    (root / "checkpoint").unlink()
    lose_all_checkpoints(root)


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize(
    "damage",
    [
        lose_a_queue,
        lose_a_file,
        cut_a_file_short,
        zero_a_file,
        lengthen_a_file,
        lose_all_checkpoints,
        damage_all_checkpoints,
        lose_config,
        lose_all_that_is_derived,
    ],
)
def test_damaged_derived_files_are_rebuilt(
    tmp_path: Path, damage: Callable[[Path], None], clean: bool
) -> None:
    group = StoreGroup(tmp_path, thorough_interval_ms=200)
    group.start()
    member = group.lead()
    propose_some(group, member)
    put_some(member, Random(3), 110)
    group.run_for(1000)
    expected = units_by_the_log(member)
    assert max(map(len, expected.values())) > 2 * CQ_FILE_UNITS, "several files"
    if clean:
        member.stop()
    else:
        member.crash()
    damage(group.root())
    group.start()
    member = group.lead()
    group.settle()
    assert units_seen(member) == expected
    assert member.put(message("T", 0)).queue_offsets == [len(expected["T", 0])]
    assert list(member.store.tables.topic_config_table.configs) == ["T"]
    assert member.store.reads.query_offset("g", "T", 0) == 7
    group.settle()
    member.stop()
    on_disk = {key: [(a, b, int(c != 0)) for a, b, c in units] for key, units in read_units(group).items()}
    assert {key: units for key, units in on_disk.items() if key != ("T", 0)} == {
        key: units for key, units in expected.items() if key != ("T", 0)
    }


def read_units(group: StoreGroup) -> Units:
    return consume_queue_units(group.root())


def test_after_a_clean_stop_the_files_hold_every_unit_and_java_is_told_so(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    member = group.lead()
    put_some(member, Random(5), 50)
    group.settle()
    expected = units_by_the_log(member)
    end_index = member.replica.log.ledger_end_index
    assert (group.root() / "abort").exists()
    member.stop()
    assert {
        key: [(a, b, int(c != 0)) for a, b, c in units] for key, units in read_units(group).items()
    } == expected
    sizes = {path.stat().st_size for path in group.root().glob("consumequeue/*/*/*")}
    assert sizes == {20 * CQ_FILE_UNITS}
    assert not (group.root() / "abort").exists()
    java = (group.root() / "dledger-n0" / "checkpoint").read_text()
    assert java == f"committedIndex={end_index}\nendIndex={end_index}\n"
    checkpoint = parse_checkpoint((group.root() / "checkpoint").read_bytes())
    assert (group.root() / "checkpoint").stat().st_size == 4096
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp > 0
    group.start()
    assert not (group.root() / "dledger-n0" / "checkpoint").exists(), "it would go stale"
    assert group.members["n0"].store.stopped_cleanly
    group.members["n0"].crash()
    group.start()
    assert not group.members["n0"].store.stopped_cleanly


def test_units_behind_the_checkpoint_are_gone_from_the_files_until_dispatched_again(tmp_path: Path) -> None:
    """An older checkpoint counts when the newest speaks of entries that the log has lost."""
    random = Random(5)
    group = StoreGroup(tmp_path, thorough_interval_ms=200)
    group.start()
    member = group.lead()
    put_some(member, random, 30)
    group.run_for(1000)
    older = member.store.reads.applied_index
    member.put(*[message(random.choice("TU"), number % 3) for number in range(40)])
    group.run_for(1000)
    newer = member.store.reads.applied_index
    member.crash()
    states = sorted((group.root() / "dledger-n0" / "pydledger").glob("applied-state-*"))
    assert len(states) == 2
    for path in states:
        # As if the log's entry with this index were another: the chain value does not fit.
        data = bytearray(path.read_bytes())
        if forge_chain(data, newer):
            path.write_bytes(data)
    group.start()
    member = group.members["n0"]
    assert member.store.reads.applied_index == older
    zeroed = read_units(group)
    assert {key: len(units) for key, units in zeroed.items()} == {
        key: len(units) for key, units in units_seen(member).items()
    }
    group.lead()
    group.settle()
    assert units_seen(member) == units_by_the_log(member)


@pytest.mark.parametrize("is_newest", [True, False])
def test_a_damaged_checkpoint_is_named_and_the_other_one_counts(
    tmp_path: Path, is_newest: bool, caplog: pytest.LogCaptureFixture
) -> None:
    group = StoreGroup(tmp_path, thorough_interval_ms=200)
    group.start()
    member = group.lead()
    for _ in range(2):
        put_some(member, Random(1), 10)
        group.run_for(1000)
    member.crash()
    states = {
        unpacked.applied_index: path
        for path in (group.root() / "dledger-n0" / "pydledger").glob("applied-state-*")
        if (unpacked := unpack_checkpoint(path.read_bytes()))
    }
    older, newest = sorted(states)
    damaged = states[newest if is_newest else older]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    group.start()
    member = group.members["n0"]
    assert "checkpoint is unreadable, the state is taken from the other one or from the log" in caplog.text
    assert f"path={damaged}" in caplog.text
    assert member.store.reads.applied_index == (older if is_newest else newest)
    member = group.lead()
    group.settle()
    assert units_seen(member) == units_by_the_log(member)
    member.stop()
    caplog.clear()
    group.start()
    assert "checkpoint" not in caplog.text


def forge_chain(data: bytearray, applied_index: int) -> bool:
    from zlib import crc32

    import msgpack

    values = msgpack.unpackb(bytes(data[16:]), strict_map_key=False)
    if values[1] != applied_index:
        return False
    values[2] ^= 1
    payload = msgpack.packb(values)
    data[:] = struct.pack(">4sIq", b"PyDC", crc32(payload), len(payload)) + payload
    return True


def test_exports_are_java_shaped_with_the_generation_before_beside_them(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    member = group.lead()
    propose_some(group, member)
    group.run_for(600)
    member.store.propose(CommitOffset("g", "T", 0, 8), None, group.now_ms)
    group.run_for(600)
    config = group.root() / "config"
    assert sorted(path.name for path in config.iterdir()) == [
        "consumerOffset.json",
        "consumerOffset.json.bak",
        "delayOffset.json",
        "messageRequestMode.json",
        "subscriptionGroup.json",
        "topics.json",
    ]
    offsets = parse_config((config / "consumerOffset.json").read_text())
    assert offsets["offsetTable"] == {"T@g": {0: 8}}
    assert offsets["pydledgerAppliedIndex"] == member.store.reads.applied_index
    assert parse_config((config / "consumerOffset.json.bak").read_text())["offsetTable"] == {"T@g": {0: 7}}
    topics = parse_config((config / "topics.json").read_text())
    assert topics["topicConfigTable"]["T"]["readQueueNums"] == 3
    assert topics["dataVersion"]["counter"] == 1
    groups = parse_config((config / "subscriptionGroup.json").read_text())
    assert groups["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 16
    assert "\t" in (config / "topics.json").read_text()


@pytest.mark.slow
def test_members_have_equal_queues_whether_they_appended_or_received(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    random = Random(9)
    for _ in range(20):
        put_some(leader, random, 3)
        group.run_for(random.randint(0, 5))
    group.settle()
    seen = [units_seen(member) for member in group.members.values()]
    assert seen[0] == seen[1] == seen[2] == units_by_the_log(leader)


def test_what_a_deposed_leader_appended_in_vain_leaves_no_trace(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    old = group.lead()
    put_some(old, Random(1), 10)
    group.settle()
    group.cut_off.add(old.id)
    committed = units_seen(old)
    in_vain = [old.put(message("T", queue_id, b"in vain")) for queue_id in range(3)]
    group.run_for(500)
    old.reput()
    assert units_seen(old) == committed
    group.run_until(lambda: old.replica.member.role is not Role.LEADER)
    group.run_until(lambda: any(m.store.serving for m in group.members.values() if m is not old))
    new = next(member for member in group.members.values() if member.store.serving)
    put_some(new, Random(2), 10)
    group.cut_off.clear()
    group.settle()
    assert [[status.value for status in put.statuses] for put in in_vain] == [["UNKNOWN"]] * 3
    assert units_seen(old) == units_seen(new) == units_by_the_log(new)
    new.crash()
    third = group.lead()
    expected = {key: len(units) for key, units in units_by_the_log(third).items()}
    assert third.put(message("T", 0)).queue_offsets == [expected["T", 0]]


@pytest.mark.slow
def test_a_leader_that_leads_again_forgets_the_offsets_of_messages_that_were_cut(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    old = group.lead()
    put_some(old, Random(1), 5)
    group.settle()
    group.cut_off.add(old.id)
    assert old.put(*[message("T", 0)] * 10).statuses == []
    group.run_until(lambda: not old.store.serving)
    while group.serving() is not old:
        # The others lead one after the other, until it is the old leader's turn again.
        group.run_until(lambda: group.serving() is not None)
        leader = group.lead()
        if leader is not old:
            group.cut_off = set()
            group.settle()
            leader.put(message("T", 0))
            group.settle()
            group.cut_off = {leader.id}
            group.run_until(lambda gone=leader: not gone.store.serving)  # type: ignore[misc]
            group.run_until(lambda: group.serving() is not None)
    group.cut_off = set()
    expected = len(units_by_the_log(old)["T", 0])
    assert old.put(message("T", 0), message("T", 0)).queue_offsets == [expected, expected + 1]
    group.settle()
    assert units_seen(old) == units_by_the_log(old)
