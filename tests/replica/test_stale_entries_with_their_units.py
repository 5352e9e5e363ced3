"""Entries that were never committed have come back with their units, and the committed ones had other sizes."""

from pathlib import Path

import pytest
from test_stale_entries_repair import FIRST, ParkedGroup, all_bodies, scrub
from virtual_group import VirtualGroup, VirtualMember

from dledger.entry import ENTRY_HEADER_SIZE, Index
from dledger.errors import FaultyEntryError


def is_served(member: VirtualMember, bodies: list[bytes]) -> bool:
    """Whether any entry that counts as committed there is another one."""
    log = member.replica.log
    for index in range(FIRST, min(member.replica.member.committed_index, len(bodies) - 1) + 1):
        try:
            if log.body_at(Index(index)) != bodies[index]:
                return True
        except FaultyEntryError:
            pass
    return False


def run_and_watch(group: VirtualGroup, member: VirtualMember, bodies: list[bytes]) -> None:
    for _ in range(300):
        group.run_for(20)
        assert member.replica.failure is None
        assert not is_served(member, bodies)


def test_what_is_remembered_does_not_make_a_repair_of_the_last_one_alone(tmp_path: Path) -> None:
    """The last of the true ones lies elsewhere, and is still whole."""
    parked = ParkedGroup(tmp_path, is_stopped=False, sizes=[70, 70, 2000, 70, 70])
    parked.lose_writes("data", "index")
    scrub(parked.group, parked.group.members[parked.peer])
    parked.run_until_mended()
    parked.log.recent.cut_from(Index(0))
    assert all_bodies(parked.log)[: len(parked.bodies)] == parked.bodies


def test_a_read_that_begins_in_front_of_what_is_remembered_refuses_them(tmp_path: Path) -> None:
    parked = ParkedGroup(tmp_path, is_stopped=False, sizes=[70, 70, 2000, 70, 70])
    group, log = parked.group, parked.log
    group.append(group.elect(), [b"remembered"])
    group.run_until(group.converged)
    parked.lose_writes("data", "index")
    assert log.recent.find(log.ledger_end_index) is not None
    assert log.recent.find(Index(40)) is None
    with pytest.raises(FaultyEntryError, match=r"entries 51\.\.55 "):
        log.range_from(Index(40), 1 << 20)
    entries = log.range_from(Index(40), 1 << 20)
    assert entries is not None
    assert entries.last_index == FIRST - 1


@pytest.mark.parametrize("restarts", [True, False])
def test_a_leader_sends_none_of_them_in_the_place_of_those_whose_term_it_remembers(
    tmp_path: Path, restarts: bool
) -> None:
    """Where it compares logs with a follower, and where it sends what that has not got."""
    parked = ParkedGroup(tmp_path, is_stopped=False, sizes=[70, 70, 300])
    group = parked.group
    group.elect().replica.transfer_leadership(parked.peer, "x", group.now_ms)
    leader = group.members[parked.peer]
    group.run_until(lambda: group.leader() is leader and group.converged())
    group.run_for(3000)
    other = next(member for member in group.running() if member is not leader)
    if restarts:
        group.crash(other.id)
    group.append(leader, [b"one more"])
    group.run_for(2000 if restarts else 30)
    bodies = all_bodies(parked.log)
    parked.lose_writes("data", "index")
    parked.log.recent.cut_from(Index(0))
    if restarts:
        group.start(other.id)
    else:
        leader.replica.peer_disconnected(other.id, group.now_ms)
        leader.replica.peer_connected(other.id, group.now_ms)
    run_and_watch(group, group.members[other.id], bodies)
    assert {member.replica.log.ledger_end_index for member in group.running()} == {len(bodies) - 1}
    scrub(group, leader)
    group.run_until(lambda: not parked.log.has_faults)
    assert all_bodies(parked.log) == bodies


def run_until_mended(parked: ParkedGroup) -> None:
    group = parked.group
    group.run_until(lambda: not parked.log.has_faults)
    scrub(group, group.members[parked.peer])
    group.run_until(lambda: not parked.log.has_faults)
    parked.log.recent.cut_from(Index(0))
    assert all_bodies(parked.log)[: len(parked.bodies)] == parked.bodies


def test_one_that_would_end_behind_the_log_is_mended(tmp_path: Path) -> None:
    """Its header alone has come back; its body is what was never written."""
    parked = ParkedGroup(tmp_path, sizes=[85, 85])
    group = parked.group
    end = next(member.replica.log.ledger_end_pos for member in group.running())
    assert parked.begin + 2 * 128 + ENTRY_HEADER_SIZE < end < parked.begin + 3 * 128
    parked.lose_writes("data", "index")
    path = min((parked.directory / "data").iterdir())
    with path.open("r+b") as file:
        file.seek(end)
        file.write(bytes(parked.end - end))
    group.start(parked.peer)
    group.append(group.elect(), [b"on"])
    run_until_mended(parked)


def test_they_are_mended_where_the_last_of_them_is_the_last_that_the_mark_tells_of(tmp_path: Path) -> None:
    parked = ParkedGroup(tmp_path, is_stopped=False, sizes=[70, 70, 70, 300])
    group = parked.group
    parked.lose_writes("data", "index")
    parked.log.recent.cut_from(Index(0))
    group.append(group.elect(), [b"on"])
    group.run_for(10)
    scrub(group, group.members[parked.peer])
    assert parked.log.has_faults
    run_until_mended(parked)
