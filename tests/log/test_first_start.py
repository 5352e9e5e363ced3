"""The first start of a member, ended anywhere: the next one must not take for durable what that one only made."""

from random import Random

import pytest
from log_steps import config, fill, sync

from dledger.core.output import HardState
from dledger.entry import Term
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from simulator.world.sim_disk import CrashPointReached, SimDisk

FIRST_HARD_STATE = HardState(sequence=1, curr_term=Term(2), curr_vote_for="n2", doubted=False)
HARD_STATE = HardState(sequence=2, curr_term=Term(3), curr_vote_for="n1", doubted=False)


def open_all(disk: SimDisk) -> tuple[QuorumState, LogStore]:
    """As a replica does."""
    settings = config(directory="/var/store/dledger-n0")
    return QuorumState.load(disk, settings.directory), LogStore.open(disk, settings)


def first_start(disk: SimDisk) -> None:
    """Up to the first vote, and the first entry."""
    quorum_state, log = open_all(disk)
    quorum_state.store_job(FIRST_HARD_STATE).run()
    fill(log, 1)


def operations_of_a_first_start() -> int:
    disk = SimDisk(Random(0), lambda: 0, lambda: 0)
    disk.crash_after = before = 10_000
    first_start(disk)
    return before - disk.crash_after


def after_an_ended_start(crash_after: int, chance: int) -> SimDisk:
    """`chance`: of how a power loss treats what was not synced."""
    disk = SimDisk(Random(chance), lambda: 0, lambda: 0)
    disk.crash_after = crash_after
    with pytest.raises(CrashPointReached):
        first_start(disk)
    disk.process_crash()
    return disk


@pytest.mark.parametrize("crash_after", range(operations_of_a_first_start()))
def test_what_is_synced_after_a_first_start_was_ended_anywhere_outlives_the_power(crash_after: int) -> None:
    for chance in range(6):
        disk = after_an_ended_start(crash_after, chance)
        quorum_state, log = open_all(disk)
        quorum_state.store_job(HARD_STATE).run()
        fill(log, 5)
        sync(log)
        disk.power_loss()
        quorum_state, again = open_all(disk)
        assert quorum_state.hard_state == HARD_STATE
        assert again.ledger_end_index == log.ledger_end_index


@pytest.mark.parametrize("crash_after", range(operations_of_a_first_start()))
def test_what_is_written_after_a_first_start_was_ended_anywhere_may_go_with_the_power_and_keeps_no_start(
    crash_after: int,
) -> None:
    for chance in range(12):
        disk = after_an_ended_start(crash_after, chance)
        _, log = open_all(disk)
        fill(log, 5)
        disk.power_loss()
        open_all(disk)
