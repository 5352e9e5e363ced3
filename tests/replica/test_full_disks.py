"""Disks without space: who leads, what is refused, and what comes when there is space again."""

from contextlib import suppress

import pytest
from test_replica_faults import SimGroup
from virtual_group import VirtualMember

from disk.disk import NoSpaceError
from dledger.core.output import AppendStatus
from dledger.core.refusal import RefusalReason
from dledger.entry import Index
from dledger.errors import FaultyEntryError


def append_until_full(group: SimGroup, leader: VirtualMember) -> None:
    while leader.replica.member.check_append(9048, 1) is None:
        with suppress(NoSpaceError):
            group.append(leader, [bytes(9000)])
        group.run_for(20)


def full_everywhere() -> tuple[SimGroup, VirtualMember]:
    """A group on whose disks there is no space left, and its leader."""
    group = SimGroup()
    group.start()
    leader = group.elect()
    group.run_for(200)
    for disk in group.disks.values():
        disk.is_full = True
    append_until_full(group, leader)
    return group, leader


def free_everywhere(group: SimGroup) -> None:
    for disk in group.disks.values():
        disk.is_full = False


def test_a_leader_without_space_refuses_appends_and_leads_on_when_there_is_space_again() -> None:
    group = SimGroup(1)
    group.start()
    leader = group.elect()
    group.disks["n0"].is_full = True
    end = leader.replica.log.ledger_end_index
    with pytest.raises(NoSpaceError):
        group.append(leader, [bytes(9000)])
    assert leader.replica.log.ledger_end_index == end
    group.run_for(10)
    refusal = leader.replica.member.check_append(100, 1)
    assert refusal is not None
    assert refusal.reason is RefusalReason.DISK_FULL
    group.disks["n0"].is_full = False
    group.run_until(lambda: leader.replica.member.check_append(100, 1) is None, limit_ms=1200)
    ends: list[AppendStatus] = []
    batch = group.append(leader, [bytes(9000)], ends.append)
    group.run_for(100)
    assert batch.first_index == end + 1
    assert ends == [AppendStatus.SUCCESS]


def test_changes_that_find_no_space_do_not_put_the_probe_for_it_off() -> None:
    group = SimGroup(1)
    group.start()
    leader = group.elect()
    disk, log = group.disks["n0"], leader.replica.log
    disk.is_full = True
    with pytest.raises(NoSpaceError):
        group.append(leader, [b"its entry finds space, and its unit does not"])
    disk.is_full = False
    end, refusals = log.ledger_end_index, 0
    for _ in range(15):
        group.run_for(100)
        refusals += leader.replica.add_member("n1", "", lambda *_: None, group.now_ms) is not None
    assert refusals > 5, "there was something to clear"
    assert log.ledger_end_index > end
    assert leader.replica.member.check_append(100, 1) is None


def damaged_without_space() -> tuple[SimGroup, VirtualMember]:
    """A group, and a follower that knows entry 3 to be damaged and has no space to note it."""
    group = SimGroup()
    group.start()
    leader = group.elect()
    group.append(leader, [bytes(100)] * 5)
    group.run_until(group.converged)
    follower = group.followers(leader)[0]
    log, disk = follower.replica.log, group.disks[follower.id]
    group.run_until(lambda: log.durable_index == log.ledger_end_index)
    disk.is_full = True
    path = f"{follower.replica.config.directory}/data/{0:020d}"
    assert disk.damage(path, log.pos_at(Index(3)) + 60, b"\xff")
    log.fault_found(0, log.ledger_end_index)
    assert log.has_faults
    return group, follower


def test_a_follower_without_space_to_note_damage_serves_on_and_repairs_when_there_is_space_again() -> None:
    group, follower = damaged_without_space()
    log, disk = follower.replica.log, group.disks[follower.id]
    group.run_for(3000)
    assert follower.failure is None
    assert disk.refused_for_space > 1, "it is tried again"
    disk.is_full = False
    group.run_until(lambda: not log.has_faults)
    assert follower.replica.repairer.repaired_count == 1


def test_a_member_without_space_to_note_damage_stops_cleanly_and_finds_it_again() -> None:
    group, follower = damaged_without_space()
    group.stop(follower.id)
    group.disks[follower.id].is_full = False
    group.start(follower.id)
    again = group.members[follower.id].replica
    with suppress(FaultyEntryError):
        again.log.body_at(Index(3))
    group.run_until(lambda: again.repairer.repaired_count == 1 and not again.log.has_faults)
    assert again.log.body_at(Index(3)) == bytes(100)


def test_a_full_leader_gives_way_follows_and_holds_all_when_there_is_space_again() -> None:
    group = SimGroup()
    group.start()
    full = group.elect()
    group.run_for(200)
    group.disks[full.id].is_full = True
    append_until_full(group, full)
    term = full.replica.member.curr_term
    group.run_until(lambda: group.leader() not in (None, full))
    assert full.replica.member.disk_obstacle == "no space on the own disk"
    leader = group.elect()
    ends: list[AppendStatus] = []
    for _ in range(30):
        group.append(leader, [bytes(9000)], ends.append)
        group.run_for(200)
    assert ends == [AppendStatus.SUCCESS] * 30
    assert leader.replica.member.curr_term == term + 1
    assert full.replica.log.ledger_end_index < leader.replica.log.ledger_end_index
    group.disks[full.id].is_full = False
    group.run_until(group.converged, limit_ms=4000)
    assert full.replica.member.disk_obstacle is None
    assert full.failure is None


def test_a_group_that_is_full_everywhere_keeps_its_leader_and_its_term_and_takes_writes_again() -> None:
    group, leader = full_everywhere()
    end = leader.replica.log.ledger_end_index
    term = leader.replica.member.curr_term
    group.run_for(10_000)
    assert (group.leader(), leader.replica.member.curr_term) == (leader, term)
    assert leader.replica.member.committed_index == end
    free_everywhere(group)
    group.run_until(lambda: leader.replica.member.check_append(9048, 1) is None, limit_ms=1200)
    group.append(leader, [bytes(9000)])
    group.run_until(group.converged, limit_ms=4000)
    assert leader.replica.log.ledger_end_index == end + 1


def test_a_member_without_space_stops_cleanly() -> None:
    group, leader = full_everywhere()
    end = leader.replica.log.ledger_end_index
    for member in group.running():
        group.stop(member.id)
    free_everywhere(group)
    group.start()
    assert group.elect().replica.log.ledger_end_index == end + 1


@pytest.mark.parametrize("record", ["synced mark", "quorum state"])
def test_a_member_that_finds_no_space_for_what_ends_its_run_closes_its_files_and_says_so(
    record: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    group = SimGroup()
    group.start()
    group.elect()
    group.run_until(group.converged)
    log = group.members["n0"].replica.log

    def without_space(*_: object) -> None:
        raise NoSpaceError("none is left")

    if record == "synced mark":
        monkeypatch.setattr(log._mark_file.slots, "sync_copy", without_space)
    else:
        monkeypatch.setattr("dledger.replica.end_run", without_space)
    group.stop("n0")
    assert "takes this one for killed" in caplog.text
    assert "none is left" in caplog.text
    assert not log._descriptors.open_count
    group.start("n0")
    group.run_until(group.converged)


def test_a_search_for_space_leaves_nothing_on_the_disk() -> None:
    group = SimGroup(1)
    group.start()
    leader = group.elect()
    disk = group.disks["n0"]
    directory = f"{leader.replica.config.directory}/pydledger"
    group.run_until(lambda: disk.exists(f"{directory}/committed-mark"))
    before = disk.list_directory(directory)
    disk.is_full = True
    append_until_full(group, leader)
    group.run_for(1500)
    disk.is_full = False
    group.run_until(lambda: leader.replica.member.check_append(100, 1) is None, limit_ms=1200)
    assert disk.list_directory(directory) == before


def test_a_follower_without_space_catches_up_when_there_is_space_again() -> None:
    group = SimGroup()
    group.start()
    leader = group.elect()
    follower = group.followers(leader)[0]
    group.disks[follower.id].is_full = True
    ends: list[AppendStatus] = []
    for _ in range(30):
        group.append(leader, [bytes(9000)], ends.append)
        group.run_for(20)
    assert ends == [AppendStatus.SUCCESS] * 30
    assert follower.replica.log.ledger_end_index < leader.replica.log.ledger_end_index
    assert follower.failure is None
    group.disks[follower.id].is_full = False
    group.run_until(group.converged, limit_ms=4000)
