"""Reads that must not miss what anybody acknowledged before: at leaders, at followers, and where they cannot be had."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_group import StoreGroup, StoreMember, message

from store import read_index_waits
from store.put_message import PutStatus
from store.read_index_waits import WAIT_MS_MAX


@pytest.fixture
def group(tmp_path: Path) -> Iterator[StoreGroup]:
    made = StoreGroup(tmp_path, 3)
    made.start()
    yield made
    for member in list(made.members.values()):
        member.crash()


class Read:
    """Of one member, and what it found each time that it was told something."""

    def __init__(self, member: StoreMember) -> None:
        self.told: list[str | None] = []
        self.max_offset = -1
        self._member = member
        member.store.read_index_waits.ask(self._on_done, member.group.now_ms)

    def _on_done(self, refusal: str | None) -> None:
        self.told.append(refusal)
        self.max_offset = self._member.store.reads.max_offset("T", 0)


def put(member: StoreMember) -> None:
    made = member.put(message())
    member.group.run_until(lambda: bool(made.statuses))
    assert made.statuses == [PutStatus.PUT_OK]


def followers(group: StoreGroup, leader: StoreMember) -> list[StoreMember]:
    return [member for member in group.members.values() if member is not leader]


def test_every_member_shows_what_was_acknowledged_before_it_was_asked(group: StoreGroup) -> None:
    leader = group.lead()
    for count in range(1, 4):
        put(leader)
        reads = [Read(member) for member in group.members.values()]
        group.run_until(lambda reads=reads: all(read.told for read in reads))
        assert [(read.told, read.max_offset >= count) for read in reads] == [([None], True)] * 3


def test_a_member_waits_until_it_has_applied_what_was_committed(group: StoreGroup) -> None:
    leader = group.lead()
    group.settle()
    follower = followers(group, leader)[0]
    follower.reput_held = True
    put(leader)
    read = Read(follower)
    group.run_for(200)
    assert read.told == []
    follower.reput_held = False
    follower.reput()
    group.run_until(lambda: bool(read.told))
    assert (read.told, read.max_offset) == ([None], 1)


def test_a_member_that_does_not_get_on_says_so_and_how_far_it_is(group: StoreGroup) -> None:
    leader = group.lead()
    group.settle()
    follower = followers(group, leader)[0]
    follower.reput_held = True
    applied_index = follower.store.reads.applied_index
    put(leader)
    read = Read(follower)
    group.run_for(WAIT_MS_MAX + 50)
    assert read.told == [
        f"not applied within {WAIT_MS_MAX} ms: wanted is entry {applied_index + 1}, applied is {applied_index}"
    ]
    follower.reput_held = False
    follower.reput()
    group.run_for(100)
    assert len(read.told) == 1


def test_a_leader_that_was_cut_off_does_not_answer_from_what_it_knows(group: StoreGroup) -> None:
    old = group.lead()
    put(old)
    group.settle()
    group.cut_off.add(old.id)
    for member in followers(group, old):
        member.replica.peer_disconnected(old.id, group.now_ms)
    group.run_until(lambda: any(member.store.serving for member in followers(group, old)))
    new = next(member for member in followers(group, old) if member.store.serving)
    put(new)
    assert old.store.serving, "it does not know yet"
    assert old.store.reads.max_offset("T", 0) == 1
    stale, fresh = Read(old), Read(new)
    group.run_until(lambda: bool(stale.told and fresh.told))
    assert (fresh.told, fresh.max_offset) == ([None], 2)
    (refusal,) = stale.told
    assert refusal is not None


def test_a_group_of_one_answers_at_once(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    put(leader)
    group.settle()
    assert Read(leader).told == [None]
    leader.crash()


def test_more_reads_than_can_be_answered_in_one_go_are_refused(
    group: StoreGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_index_waits, "WAITING_MAX", 3)
    leader = group.lead()
    group.settle()
    reads = [Read(leader) for _ in range(4)]
    assert reads[3].told == ["3 look-ups wait for the group's commit, 3 are allowed: ask again later"]
    group.run_until(lambda: all(read.told for read in reads))
    assert [read.told for read in reads[:3]] == [[None]] * 3
    again = Read(leader)
    group.run_until(lambda: bool(again.told))
    assert again.told == [None]


def test_what_waits_when_a_member_stops_is_told_so(group: StoreGroup) -> None:
    leader = group.lead()
    group.settle()
    follower = followers(group, leader)[0]
    follower.reput_held = True
    put(leader)
    waiting = Read(follower)
    group.run_for(50)
    follower.replica.stop(group.now_ms)
    late = Read(follower)
    assert late.told == ["this member has stopped"]
    group.run_until(lambda: follower.replica.idle and not follower.store.is_busy)
    follower.store.stop()
    # The last that is applied may be what it waits for.
    assert len(waiting.told) == 1
    group.run_for(50)
    assert len(waiting.told) == 1
