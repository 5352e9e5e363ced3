"""Replicas compared as they commit: nothing is said of a sound group, and each fault is named once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from derived_store import StoreGroup, message
from made_store import FILE_SIZE, Entry, changed, three_terms, write_log

from verify import replica as replica_module
from verify.findings import Kind
from verify.group.follow import ComparedRange, GroupFollower
from verify.replica import ReplicaError

COUNT = 120
LOG = three_terms(COUNT)
NAMES = ("n0", "n1", "n2")


def commit(root: Path, index: int) -> None:
    """As Java's DLedger says it."""
    (root / f"dledger-{root.name}" / "checkpoint").write_text(f"committedIndex={index}\nendIndex={index}\n")


def write_replicas(directory: Path, *logs: Sequence[Entry], committed: int = COUNT - 1) -> list[Path]:
    roots = [write_log(directory / name, log) for name, log in zip(NAMES, logs, strict=False)]
    for root in roots:
        commit(root, committed)
    return roots


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    return write_replicas(tmp_path, LOG, LOG, LOG)


def looks(follower: GroupFollower) -> list[ComparedRange]:
    """Until there is nothing more to compare."""
    found = []
    while (compared := follower.look()) is not None:
        found.append(compared)
    return found


def found(follower: GroupFollower) -> list[tuple[Kind, str, int | None]]:
    return [(finding.kind, finding.replica, finding.first_index) for finding in follower.findings]


def data_file(root: Path, number: int) -> Path:
    return root / f"dledger-{root.name}" / "data" / f"{number * FILE_SIZE:020d}"


def flip(root: Path, index: int) -> None:
    """A bit in the body of an entry."""
    for path in sorted(data_file(root, 0).parent.iterdir()):
        content = bytearray(path.read_bytes())
        at = content.find(f"a {index} a {index} ".encode())
        if at >= 0:
            content[at] ^= 1
            path.write_bytes(content)


@pytest.mark.parametrize("range_entries_max", [1, 7, 1000])
def test_what_is_committed_is_proved_equal_range_by_range(roots: list[Path], range_entries_max: int) -> None:
    for root in roots:
        commit(root, 49)
    follower = GroupFollower(roots, range_entries_max=range_entries_max)
    ranges = looks(follower)
    assert [compared.first_index for compared in ranges] == list(range(0, 50, range_entries_max))
    assert {compared.replicas for compared in ranges} == {NAMES}
    assert (follower.begin_index, follower.proved_index, follower.held_up) == (0, 49, "")
    for root in roots:
        commit(root, 60)
    assert looks(follower)[-1].last_index == follower.proved_index == 60
    assert follower.findings == []


def test_the_slowest_replica_says_how_far_is_compared(roots: list[Path]) -> None:
    commit(roots[1], 30)
    follower = GroupFollower(roots)
    assert looks(follower)[-1].last_index == 30
    assert follower.held_up == "n1 knows no commit behind entry 30, and does not run"


@pytest.mark.parametrize("index", [0, 30, 119])
def test_a_flipped_bit_is_named_and_the_rest_goes_on(roots: list[Path], index: int) -> None:
    flip(roots[1], index)
    follower = GroupFollower(roots, range_entries_max=20)
    ranges = looks(follower)
    assert found(follower) == [(Kind.BODY_CRC, "n1", index)]
    assert follower.findings[0].file.startswith("dledger-n1/data/")
    assert follower.compared_index == COUNT - 1
    assert follower.proved_index == index - 1
    behind = [compared for compared in ranges if compared.first_index > index]
    assert all(compared.replicas == NAMES and not compared.findings for compared in behind)


def test_damage_at_one_place_of_all_replicas_is_named_once_and_waited_for(roots: list[Path]) -> None:
    shutil.copytree(roots[0], roots[0].parent / "sound" / "n0")
    for root in roots:
        flip(root, 30)
    follower = GroupFollower(roots)
    looks(follower)
    assert found(follower) == [(Kind.BODY_CRC, name, 30) for name in NAMES]
    assert follower.compared_index == 29
    assert follower.look() is None
    assert follower.held_up == "entry 30 can be read in no replica"
    shutil.rmtree(roots[0])
    shutil.copytree(roots[0].parent / "sound" / "n0", roots[0])
    assert looks(follower)[-1].last_index == COUNT - 1, "one was repaired"
    assert len(follower.findings) == 3


def test_a_replica_with_another_log_is_named_and_set_apart(tmp_path: Path) -> None:
    """Sealed anew behind the change, so that each log is sound in itself."""
    roots = write_replicas(tmp_path, LOG, LOG, changed(LOG, 60, 60, text="b"))
    follower = GroupFollower(roots, range_entries_max=20)
    ranges = looks(follower)
    assert found(follower) == [(Kind.COMMITTED_DIVERGENCE, "n2", 60)]
    assert "n0 and n1 against n2. n2: compared no more" in follower.findings[0].sentence
    assert ranges[-1] == ComparedRange(100, 119, ("n0", "n1"))
    assert follower.proved_index == 59


def test_two_that_differ_end_the_comparison(tmp_path: Path) -> None:
    roots = write_replicas(tmp_path, LOG, changed(LOG, 60, 60, text="b"))
    follower = GroupFollower(roots)
    looks(follower)
    assert found(follower) == [(Kind.COMMITTED_DIVERGENCE, "", 60)]
    assert follower.is_over


def test_it_begins_where_all_logs_begin(roots: list[Path]) -> None:
    data_file(roots[1], 0).unlink()
    follower = GroupFollower(roots)
    ranges = looks(follower)
    assert 0 < ranges[0].first_index == follower.begin_index
    assert ranges[0].replicas == NAMES
    assert follower.proved_index == COUNT - 1


def test_a_replica_that_lost_what_is_next_takes_no_part(roots: list[Path]) -> None:
    """As one that was begun anew from a peer."""
    follower = GroupFollower(roots, range_entries_max=5)
    assert follower.look() is not None
    for number in range(3):
        data_file(roots[1], number).unlink()
    compared = follower.look()
    assert compared is not None
    assert compared.replicas == ("n0", "n2")
    assert compared.remarks == ("n1 takes no part: its log begins later",)
    assert looks(follower)[-1].replicas == NAMES, "once the others have come there"
    assert follower.findings == []


def test_what_one_replica_has_alone_is_not_proved_and_waited_for(roots: list[Path]) -> None:
    follower = GroupFollower(roots, range_entries_max=5)
    assert follower.look() is not None
    for root in roots[1:]:
        for number in range(3):
            data_file(root, number).unlink()
    assert follower.look() is None
    assert (follower.proved_index, follower.held_up) == (4, "entry 5 is in the log of n0 alone")
    for number in range(3):
        data_file(roots[0], number).unlink()
    assert looks(follower)[-1].replicas == NAMES, "once retention has deleted it there too"
    assert (follower.proved_index, follower.held_up) == (COUNT - 1, "")


def test_one_replica_proves_nothing(roots: list[Path]) -> None:
    follower = GroupFollower(roots[:1])
    assert follower.look() is None
    assert (follower.proved_index, follower.held_up) == (-1, "entry 0 is in the log of n0 alone")


def test_entries_that_expired_everywhere_are_passed_over_and_said(roots: list[Path]) -> None:
    follower = GroupFollower(roots, range_entries_max=5)
    assert follower.look() is not None
    for root in roots:
        for number in range(3):
            data_file(root, number).unlink()
    compared = follower.look()
    assert compared is not None
    assert compared.remarks == (
        f"entries 5 .. {compared.first_index - 1} have expired before they were compared",
    )
    assert compared.first_index > 20
    assert looks(follower)[-1].last_index == COUNT - 1


def test_a_replica_that_is_away_is_waited_for(roots: list[Path], tmp_path: Path) -> None:
    follower = GroupFollower(roots)
    shutil.move(roots[1], tmp_path / "away")
    assert follower.look() is None
    assert "is no directory" in follower.held_up
    shutil.move(tmp_path / "away", roots[1])
    assert looks(follower)[-1].last_index == COUNT - 1


def test_refuses_what_has_no_commit_and_what_is_of_two_groups(tmp_path: Path) -> None:
    (tmp_path / "plain" / "commitlog").mkdir(parents=True)
    with pytest.raises(ReplicaError, match="plain CommitLog"):
        GroupFollower([tmp_path / "plain"])
    with pytest.raises(ReplicaError, match="is no directory"):
        GroupFollower([tmp_path / "nothing"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_group_at_work_has_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """With checkpoints and full states in between, and leaders that crash with appends under way."""
    random = Random(seed)
    group = StoreGroup(tmp_path, 3, thorough_interval_ms=300, checkpoint_entries_max=40)
    group.start()
    locked: set[str] = set()
    monkeypatch.setattr(replica_module, "_is_locked", lambda path: path.parent.name in locked)
    follower: GroupFollower | None = None
    kills = 0
    for step in range(150):
        leader = group.serving()
        if leader is not None:
            leader.put(
                *(message("A", 0, bytes(random.randrange(1500))) for _ in range(random.randrange(1, 6)))
            )
            if step % 25 == 24:
                kills += 1
                leader.crash()
        elif len(group.members) < 3 and random.random() < 0.3:
            group.start(*(peer for peer in group.peers if peer not in group.members))
        group.run_for(random.randrange(1, 80))
        if random.random() < 0.3:
            locked = set(group.members)
            if follower is None:
                follower = GroupFollower([group.root(peer) for peer in group.peers])
            looks(follower)
            assert follower.findings == []
    assert kills >= 3
    assert follower is not None
    group.start(*(peer for peer in group.peers if peer not in group.members))
    group.lead()
    group.settle()
    group.run_for(2000)
    locked = set(group.members)
    looks(follower)
    assert follower.findings == []
    assert follower.proved_index > 100
    assert follower.held_up == ""
