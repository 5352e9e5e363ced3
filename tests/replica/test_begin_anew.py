"""Old data files are deleted, and a member that is too far behind begins where its leader does, over real files."""

from pathlib import Path
from random import Random

import pytest
from virtual_group import VirtualGroup, VirtualMember

from dledger.config import FlushMode
from dledger.entry import Index
from dledger.replica_status import replica_status


def grow(group: VirtualGroup, leader: VirtualMember, count: int = 60) -> None:
    random = Random(count)
    for _ in range(count):
        group.append(leader, [random.randbytes(9000)])
        group.run_for(5)
    group.run_until(group.converged)


def same_files(group: VirtualGroup) -> bool:
    """What more than one member holds is the same, byte for byte."""
    files = [group.data_files(member.id) for member in group.running()]
    return all(
        one[name] == other[name] for one in files for other in files for name in one.keys() & other.keys()
    )


@pytest.mark.slow
@pytest.mark.parametrize("flush_mode", FlushMode)
def test_a_member_that_was_away_for_longer_than_the_log_reaches_back_begins_where_it_does(
    tmp_path: Path, flush_mode: FlushMode
) -> None:
    group = VirtualGroup(tmp_path, flush_mode=flush_mode)
    group.start()
    leader = group.elect()
    grow(group, leader)
    away = next(member.id for member in group.running() if member is not leader)
    group.crash(away)
    grow(group, leader)
    group.delete_files(leader, 12)
    begin = leader.replica.log.ledger_begin_index
    group.start(away)
    group.run_until(group.converged)  # although nobody appends anything
    member = group.members[away]
    assert member.journal.begun_behind == [begin - 1]
    assert member.replica.log.ledger_begin_index == begin
    assert replica_status(member.replica)["chain_crc"] == replica_status(leader.replica)["chain_crc"]
    assert same_files(group)
    grow(group, leader, 10)
    group.crash(away)
    group.start(away)
    group.run_until(group.converged)
    assert group.members[away].replica.log.ledger_begin_index == begin
    assert not group.members[away].replica.member.doubted


@pytest.mark.slow
def test_a_wiped_member_comes_back_and_its_doubt_ends(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    leader = group.elect()
    grow(group, leader, 80)
    wiped = next(member.id for member in group.running() if member is not leader)
    group.crash(wiped)
    (tmp_path / f"dledger-{wiped}").rename(tmp_path / "lost")
    group.delete_files(leader, 3)
    group.start(wiped)
    group.run_until(lambda: group.converged() and not group.members[wiped].replica.member.doubted)
    assert group.members[wiped].replica.log.ledger_begin_index == leader.replica.log.ledger_begin_index


@pytest.mark.slow
def test_members_with_different_begins_elect_each_other(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    grow(group, group.elect(), 80)
    for files, member in enumerate(group.running()):
        group.delete_files(member, 2 * files)
    for _ in range(3):
        leader = group.elect()
        group.crash(leader.id)
        grow(group, group.elect(), 5)
        group.start(leader.id)
        group.run_until(group.converged)
    assert len({member.replica.log.ledger_begin_index for member in group.running()}) == 3
    assert same_files(group)


def test_nothing_that_is_not_below_the_mark_is_deleted(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path, 1)
    group.start()
    leader = group.elect()
    assert not leader.replica.delete_first_file(group.now_ms)
    assert leader.replica.log.ledger_begin_index == Index(0)
