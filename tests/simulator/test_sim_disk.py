"""The simulated disk keeps to the order of a job's steps, whatever the member's own thread syncs meanwhile."""

from random import Random

import pytest

from simulator.disk import SimDisk
from simulator.disk_nodes import DeferredRun

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
