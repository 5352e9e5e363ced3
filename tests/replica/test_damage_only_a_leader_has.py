"""Damage at a leader in entries that nobody else has: it commits nothing behind it, and leads on while that helps."""

from pathlib import Path

import pytest
from test_repair import append_to_one, faulty, find, flip, flip_bodies, is_level
from virtual_group import VirtualGroup, VirtualMember, level_group

from dledger.core.messages import PeerId
from dledger.core.output import Role
from dledger.entry import Index


@pytest.mark.parametrize("others", [2, 1])
@pytest.mark.parametrize(
    ("committed", "own"), [(0, 1), (0, 3), (2, 1)], ids=["the first", "all of them", "across the commit"]
)
def test_a_leader_lets_go_of_what_only_it_had_and_cannot_read_any_more(
    tmp_path: Path, others: int, committed: int, own: int
) -> None:
    """Else the group would stand still: nothing behind the damage can be pushed, and no bit of it be repaired."""
    group, leader = level_group(tmp_path, [b"of all"] * 4)
    if others == 1:
        group.stop(next(peer for peer in group.peers if peer != leader.id))
    log, member = leader.replica.log, leader.replica.member
    last = log.ledger_end_index
    append_to_one(group, leader, [b"of one"] * 3)
    first, end = Index(last + 1 - committed), Index(last + own)
    flip_bodies(group, leader, first, end)
    find(leader, first, end)
    assert member.role is Role.LEADER
    group.loses = lambda message: False
    group.run_until(lambda: group.leader() not in (None, leader))
    other_leader = group.elect()
    group.append(other_leader, [b"of the others"] * 2)
    if others == 1:
        group.run_until(lambda: other_leader.replica.member.committed_index > last + 2)
        group.start(next(peer for peer in group.peers if peer not in group.members))
    group.run_until(lambda: is_level(group))
    assert not faulty(leader)
    group.run_until(lambda: not member.doubted)


def elected_with_damage_only_it_has(tmp_path: Path) -> tuple[VirtualGroup, VirtualMember, PeerId]:
    """It has committed nothing of its term. And who of the three is stopped."""
    group, leader = level_group(tmp_path, [b"of all"] * 4)
    second, third = (peer for peer in group.peers if peer != leader.id)
    group.stop(third)
    first = leader.replica.log.ledger_end_index + 1
    for _ in range(5):
        append_to_one(group, leader, [b"of one"])
    flip_bodies(group, leader, first + 2, first + 4)
    for peer in (leader.id, second):
        group.stop(peer)
    group.loses = lambda message: False
    group.start(leader.id, second)
    damaged = group.members[leader.id]
    member = damaged.replica.member
    group.run_until(lambda: member.role is Role.LEADER)
    term = member.curr_term
    group.run_for(15_000)
    assert (member.role, member.curr_term) == (Role.LEADER, term), "nobody else could be elected"
    assert faulty(damaged) == 1
    return group, damaged, third


def test_one_that_is_elected_with_damage_only_it_has_gives_way_once_the_others_can_elect(
    tmp_path: Path,
) -> None:
    """It may not let go of anything: others may have had it."""
    group, damaged, third = elected_with_damage_only_it_has(tmp_path)
    group.start(third)
    group.run_until(lambda: group.leader() not in (None, damaged))
    group.run_until(lambda: is_level(group) and not faulty(damaged))


def test_it_gives_way_seldom_where_the_others_cannot_elect(tmp_path: Path) -> None:
    group, damaged, third = elected_with_damage_only_it_has(tmp_path)
    member = damaged.replica.member
    term = member.curr_term
    group.start(third)
    group.members[third].replica.member._state.begin_doubt()
    for _ in range(24):
        group.run_for(10_000)
    assert member.role is Role.LEADER
    assert term < member.curr_term <= term + 6


def test_a_leader_leads_on_while_what_it_cannot_read_is_on_its_way_from_memory(tmp_path: Path) -> None:
    group, leader = level_group(tmp_path, [b"of all"] * 4)
    log = leader.replica.log
    group.append(leader, [b"on its way"])
    end = log.ledger_end_index
    flip(group, leader.id, log.pos_at(end) + 50)
    log.fault_found(end, end)
    group.run_until(lambda: is_level(group))
    assert group.leader() is leader
    assert leader.replica.member.committed_index == end
