"""While a log may name voters that nobody saw, nothing else is lost that a majority of voters may have to make good."""

from dataclasses import replace

import pytest

from dledger.config import FlushMode
from simulator.harness.options import draw_options
from simulator.harness.sim_cluster import Cluster
from simulator.world.sim_disk import CrashPointReached
from simulator.world.sim_member import SimMember


class Watched(Cluster):
    """Remembers whether a member could have lost its power where it fell."""

    may_lose_power = False

    def crashed_at_point(self, member: SimMember, *, in_recovery: bool) -> None:
        self.may_lose_power = self.faults.may_lose(member)
        super().crashed_at_point(member, in_recovery=in_recovery)


def _fall() -> None:
    raise CrashPointReached


@pytest.fixture
def cluster() -> Watched:
    cluster = Watched(1, replace(draw_options(1, 3), flush_mode=FlushMode.ASYNC_FLUSH))
    for member in cluster.members:
        member.start()
    cluster.loop.run_until(1_000)
    return cluster


def test_a_member_that_falls_amid_a_step_may_lose_its_own_power_there(cluster: Watched):
    cluster.members[0].call(_fall)
    assert cluster.may_lose_power


def test_until_it_lives_again_nobody_else_is_damaged_or_loses_power(cluster: Watched):
    fallen, other, _ = cluster.members
    assert cluster.faults.may_damage(other)
    assert cluster.faults.may_lose(other)
    fallen.call(_fall)
    fallen.has_lost = False  # where its power went with it, that alone would bar all this
    assert not cluster.faults.may_damage(other)
    assert not cluster.faults.may_lose(other)
    assert cluster.loop.run_until(60_000_000, lambda: fallen.process is not None)
    cluster.loop.run_until(cluster.loop.now_us + 1_000)
    assert cluster.faults.may_damage(other)
    assert cluster.faults.may_lose(other)


def test_a_disk_that_fails_its_member_bars_the_same(cluster: Watched):
    failed, other, _ = cluster.members
    failed.may_fail = True
    failed.process_failed("sync: EIO")
    assert not cluster.faults.may_damage(other)
    assert not cluster.faults.may_lose(other)
