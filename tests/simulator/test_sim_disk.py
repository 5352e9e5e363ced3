"""The simulated disk keeps to the order of a job's steps, whatever the member's own thread syncs meanwhile."""

from random import Random

import pytest

from disk.disk import DiskError
from simulator.world.disk_nodes import DeferredRun
from simulator.world.sim_disk import SimDisk

SYNC_US = 1_000


class Clock:
    now_us = 0

    def __call__(self) -> int:
        return self.now_us


@pytest.mark.parametrize("chance", range(8))
def test_a_file_is_not_gone_before_the_sync_that_comes_first_although_its_directory_is_synced(
    chance: int,
) -> None:
    clock = Clock()
    disk = SimDisk(Random(chance), clock, lambda: SYNC_US)
    disk.make_directory("/data")
    for name in ("old", "mark"):
        disk.open(f"/data/{name}", create=True).truncate(4)
    disk.sync_directory("/data")

    def job() -> None:
        mark = disk.open("/data/mark")
        mark.pwrite(b"gone", 0)
        mark.fdatasync()
        disk.unlink("/data/old")

    run: DeferredRun = disk.run_deferred(job)
    clock.now_us = SYNC_US // 2
    disk.open("/data/made", create=True)
    disk.sync_directory("/data")
    disk.power_loss()
    assert disk.exists("/data/made")
    assert disk.exists("/data/old")
    assert run.end_us == SYNC_US


def test_a_file_is_gone_once_its_time_has_come_and_its_directory_is_synced() -> None:
    clock = Clock()
    disk = SimDisk(Random(1), clock, lambda: SYNC_US)
    disk.make_directory("/data")
    disk.open("/data/old", create=True)
    disk.sync_directory("/data")
    run = disk.run_deferred(lambda: disk.unlink("/data/old"))
    clock.now_us = run.end_us
    disk.sync_directory("/data")
    disk.power_loss()
    assert not disk.exists("/data/old")


def test_a_sync_that_fails_takes_nothing_from_those_that_began_before_it() -> None:
    clock = Clock()
    disk = SimDisk(Random(1), clock, lambda: SYNC_US)
    disk.make_directory("/log")
    file = disk.open("/log/0", create=True)
    file.pwrite(b"first", 0)
    first = disk.run_deferred(file.fdatasync)
    file.pwrite(b"later", 8)
    disk.failing_syncs = 1
    later = disk.run_deferred(file.fdatasync)
    disk.complete(first)
    disk.complete(later)
    assert first.error is None
    assert later.error is not None
    assert sorted(disk.unwritten_positions("/log")) == list(range(8, 13))
    with pytest.raises(DiskError):
        file.fdatasync()
