"""Deletions of topics are entries of the log: what they hide is the same on all members, and after a replay."""

from __future__ import annotations

import shutil
from pathlib import Path
from zlib import crc32

import msgpack
import pytest
from store_group import StoreGroup, StoreMember, message

from dledger.entry import Index
from message.decoder import decode_messages
from store.derived.checkpoint_file import _HEAD, _MAGIC, unpack_checkpoint
from store.state.state_machine import StateMachine
from store.state.state_record import pack_change, pack_changes
from store.state.table import StateChange
from store.state.table_configs import TopicConfig
from store.state.tables.topic_config_table import DeleteTopic, PutTopicConfig
from verify.runner import LocalRunner
from verify.validation import validate


def change(group: StoreGroup, member: StoreMember, *changes: StateChange) -> None:
    statuses: list[object] = []
    for one in changes:
        member.store.propose(one, statuses.append, group.now_ms)
    group.run_until(lambda: len(statuses) == len(changes))


def remake(group: StoreGroup, member: StoreMember) -> None:
    """Ten messages of T, and three after it was deleted and made again."""
    change(group, member, PutTopicConfig(TopicConfig("T")))
    for number in range(10):
        member.put(message(body=b"old%d" % number))
    group.settle()
    change(group, member, DeleteTopic("T"), PutTopicConfig(TopicConfig("T")))
    for number in range(3):
        member.put(message(body=b"new%d" % number))
    group.settle()


def read(member: StoreMember, offset: int = 0) -> list[bytes]:
    found = member.store.reads.get_message("T", 0, offset, 32, 1 << 20)
    return [one.body for one in decode_messages(b"".join(found.buffers))]


def check(member: StoreMember) -> None:
    store = member.store
    assert (
        store.reads.min_offset("T", 0),
        store.reads.max_offset("T", 0),
        store.reads.begin_offset("T", 0),
    ) == (10, 13, 10)
    assert read(member) == read(member, 4) == [b"new0", b"new1", b"new2"]


def test_all_members_hide_the_same_messages_also_the_next_leader(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    remake(group, leader)
    for member in group.members.values():
        check(member)
    leader.crash()
    check(group.lead())
    member = group.lead()
    assert member.put(message(body=b"more")).queue_offsets == [13]


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_offsets_that_rocketmq_gave_again_from_0_on_are_the_new_topics(
    tmp_path: Path, is_rebuilt: bool
) -> None:
    """It had the store in between, and found no file of the deleted topic's queues."""
    group = StoreGroup(tmp_path)
    group.start()
    member = group.lead()
    remake(group, member)
    change(group, member, DeleteTopic("T"), PutTopicConfig(TopicConfig("T")))
    group.run_until(lambda: not list(group.root().glob("consumequeue/T/0/*")))
    member.store._commit_log._topic_queue_table[b"T", 0] = 0
    for number in range(3):
        assert member.put(message(body=b"again%d" % number)).queue_offsets == [number]
    group.settle()
    member.stop()
    report = validate([group.root()], runner=LocalRunner())
    assert report.is_clean, report.findings.shown
    if is_rebuilt:
        shutil.rmtree(group.root() / "consumequeue")
    group.start()
    member = group.lead()
    group.settle()
    assert read(member) == [b"again0", b"again1", b"again2"]
    assert member.put(message()).queue_offsets == [3]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_checkpoint_of_an_earlier_version_is_not_believed_about_deleted_topics(
    tmp_path: Path, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """That version gave the old messages to whoever asked."""
    group = StoreGroup(tmp_path, thorough_interval_ms=200)
    group.start()
    member = group.lead()
    remake(group, member)
    group.run_for(1000)
    if is_clean:
        member.stop()
    else:
        member.crash()
    for path in (group.root() / "dledger-n0" / "pydledger").glob("applied-state-*"):
        content = path.read_bytes()
        values = msgpack.unpackb(content[_HEAD.size :], strict_map_key=False)
        payload = msgpack.packb([1, *values[1:-1]])
        path.write_bytes(_HEAD.pack(_MAGIC, crc32(payload), len(payload)) + payload)
        checkpoint = unpack_checkpoint(path.read_bytes())
        assert checkpoint is not None
        assert checkpoint.deleted_topics is None
    group.start()
    assert "checkpoint of an earlier version" in caplog.text
    group.lead()
    group.settle()
    check(group.members["n0"])


def test_a_member_that_does_not_know_all_topics_yet_heeds_deletions(tmp_path: Path) -> None:
    """Its log begins later: a full state tells it of the topics, and may come after the deletion."""
    told: list[str] = []
    machine = StateMachine(is_whole=False, before_begin_index=Index(5), topic_deleted=told.append)
    machine.apply(pack_changes([pack_change(DeleteTopic("T"))]), Index(7), 700, 1000)
    assert told == ["T"]
    assert machine.deleted_topics.begin_of("T") == 700
    machine.deleted_topics.forget_before(700)
    assert "T" in machine.deleted_topics
    machine.deleted_topics.forget_before(701)
    assert "T" not in machine.deleted_topics


def test_a_deletion_is_remembered_as_long_as_a_power_loss_may_bring_back_what_it_hides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data file that retention has deleted is gone for good only once that is durable."""
    group = StoreGroup(tmp_path)
    group.start()
    member = group.lead()
    remake(group, member)
    pos = member.store._state.deleted_topics.begin_of("T")
    for durable_begin_pos, remembered in ((pos, [("T", pos)]), (pos + 1, [])):
        begin = property(lambda log, value=durable_begin_pos: value)
        monkeypatch.setattr(type(member.replica.log), "durable_begin_pos", begin)
        checkpoint = member.store._derived._checkpoints.capture()
        assert checkpoint is not None
        assert checkpoint.deleted_topics == remembered
