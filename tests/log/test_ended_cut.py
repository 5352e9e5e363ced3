"""A cut, ended anywhere: the next start must not take for durable that it is done."""

from random import Random

import pytest
from crash_disk import CrashDisk
from log_steps import config, cut, fill, run, sync
from test_log_recovery import mark

from disk.slots import SLOT_SIZE
from dledger.log.log_store import LogStore
from simulator.world.sim_disk import CrashPointReached, SimDisk


def open_log(disk: SimDisk) -> LogStore:
    return LogStore.open(disk, config(directory="/var/store/dledger-n0"))


def cut_in_a_log(disk: SimDisk, crash_after: int) -> None:
    """`crash_after`: so many operations of the cut the process ends."""
    log = open_log(disk)
    fill(log, 8)
    sync(log)
    run(log.mark_job(0), log.mark_done)
    disk.crash_after = crash_after
    cut(log, 3)


def operations_of_a_cut() -> int:
    disk = SimDisk(Random(0), lambda: 0, lambda: 0)
    before = 10_000
    cut_in_a_log(disk, before)
    assert disk.crash_after is not None
    return before - disk.crash_after


@pytest.mark.parametrize("crash_after", range(operations_of_a_cut()))
def test_what_is_synced_after_a_cut_was_ended_anywhere_outlives_the_power(crash_after: int) -> None:
    for chance in range(12):  # of how a power loss treats what was not synced
        disk = SimDisk(Random(chance), lambda: 0, lambda: 0)
        with pytest.raises(CrashPointReached):
            cut_in_a_log(disk, crash_after)
        disk.process_crash()
        log = open_log(disk)
        fill(log, 5, first=log.ledger_end_index + 1, term=2)
        sync(log)
        disk.power_loss()
        again = open_log(disk)
        assert again.ledger_end_index == log.ledger_end_index
        assert again.ledger_end_term == 2


@pytest.mark.parametrize("is_opened_between", [False, True])
@pytest.mark.parametrize("damaged_slot", [0, 1])
def test_a_power_loss_and_damage_to_one_slot_of_the_mark_bring_no_cut_back(
    damaged_slot: int, is_opened_between: bool
) -> None:
    """What was acknowledged since would be cut with it."""
    for seed in range(30):
        disk = CrashDisk()
        log = LogStore.open(disk, config())
        fill(log, 40)
        sync(log)
        mark(log)
        cut(log, 20)
        if is_opened_between:
            log = LogStore.open(disk, config())
        fill(log, 10, first=20, term=2)
        sync(log)
        disk = disk.crash(Random(seed))
        disk.content("store/dledger-n0/pydledger/synced-mark")[damaged_slot * SLOT_SIZE + 40] ^= 1
        again = LogStore.open(disk, config())
        assert again.ledger_end_index == log.ledger_end_index
