"""What the files of running members tell of the commit: within a second all of it, at the cost of no sync."""

import pytest
from test_replica_faults import SimGroup
from virtual_group import VirtualMember

from dledger.config import FlushMode
from dledger.entry import Index
from dledger.log.committed_mark import (
    COMMITTED_MARK_INTERVAL_MS,
    CommittedMarkJob,
    pack_committed_mark,
    unpack_committed_mark,
)
from dledger.log.recovery import Recovered, Recovery

FLUSH_MODES = pytest.mark.parametrize("flush_mode", list(FlushMode))
SOON_MS = COMMITTED_MARK_INTERVAL_MS + 500  # with a heart beat, by which followers learn of the commit


def path_of(member: VirtualMember) -> str:
    return f"{member.replica.log.config.own_directory}/committed-mark"


def told(group: SimGroup) -> list[int]:
    found = []
    for member in group.running():
        disk, path = group.disks[member.id], path_of(member)
        found.append(unpack_committed_mark(disk.read_file(path) if disk.exists(path) else b""))
    return found


def loaded(
    flush_mode: FlushMode = FlushMode.SYNC_FLUSH, entry_count: int = 500
) -> tuple[SimGroup, VirtualMember]:
    group = SimGroup(flush_mode=flush_mode)
    group.start()
    leader = group.elect()
    for number in range(entry_count):
        group.append(leader, [b"%d" % number])
        group.run_for(5)
    return group, leader


@FLUSH_MODES
def test_an_idle_group_tells_of_all_that_it_has_committed(flush_mode: FlushMode) -> None:
    group, leader = loaded(flush_mode)
    group.run_for(SOON_MS)
    assert leader.replica.member.committed_index == leader.replica.log.ledger_end_index >= 500
    assert told(group) == 3 * [leader.replica.member.committed_index]


@FLUSH_MODES
def test_a_group_under_load_tells_of_what_was_committed_a_second_ago(
    flush_mode: FlushMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    really_run = CommittedMarkJob.run

    def run(job: CommittedMarkJob) -> None:
        runs.append(job.committed_index)
        really_run(job)

    monkeypatch.setattr(CommittedMarkJob, "run", run)
    group, leader = loaded(flush_mode)
    began_ms = group.now_ms
    runs.clear()
    for second in range(4):
        before = leader.replica.member.committed_index
        for _ in range(SOON_MS // 10):
            group.append(leader, [b"x"])
            group.run_for(10)
        assert min(told(group)) >= before, f"second {second}"
    seconds = (group.now_ms - began_ms) // COMMITTED_MARK_INTERVAL_MS + 1
    assert 0 < len(runs) <= 3 * seconds


def test_it_is_never_synced_and_counts_for_one_run_alone() -> None:
    group, leader = loaded()
    group.run_for(SOON_MS)
    name, path = leader.id, path_of(leader)
    assert not group.disks[name].durable(path)
    group.crash(name)
    assert group.disks[name].exists(path), "a process that ends leaves it"
    group.start(name)
    assert not group.disks[name].exists(path), "the next one knows of no commit yet"
    group.run_for(2 * SOON_MS)
    assert told(group) == 3 * [group.elect().replica.member.committed_index]


def test_a_start_forgets_it_before_it_recovers_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long recovery is that of a running member, and a power loss may have taken what was told before."""
    group, leader = loaded()
    group.run_for(SOON_MS)
    disk, path = group.disks[leader.id], path_of(leader)
    group.crash(leader.id)
    told_at_recovery: list[bool] = []
    really_run = Recovery.run

    def run(recovery: Recovery) -> Recovered:
        told_at_recovery.append(disk.exists(path))
        return really_run(recovery)

    monkeypatch.setattr(Recovery, "run", run)
    group.start(leader.id)
    assert told_at_recovery == [False]


def test_a_disk_that_is_full_keeps_it_from_nothing_else() -> None:
    group, leader = loaded(entry_count=1)
    follower = group.followers(leader)[0]
    group.disks[follower.id].is_full = True
    group.run_for(2 * SOON_MS)
    assert follower.replica.failure is None
    group.disks[follower.id].is_full = False
    group.append(leader, [b"more"])
    group.run_for(2 * SOON_MS)
    assert told(group) == 3 * [leader.replica.member.committed_index]


def test_a_mark_that_is_not_whole_tells_of_nothing() -> None:
    packed = pack_committed_mark(Index(4711))
    assert unpack_committed_mark(packed) == 4711
    assert unpack_committed_mark(packed[:-1]) == unpack_committed_mark(b"") == -1
    for at in range(len(packed)):
        assert unpack_committed_mark(packed[:at] + bytes([packed[at] ^ 4]) + packed[at + 1 :]) == -1
