"""A group that nothing happens to: what its simulation costs is what every run pays beside its faults and its load."""

from dataclasses import replace

from simulator.harness.options import Options, draw_options
from simulator.harness.sim_cluster import Cluster
from simulator.harness.trace import without_logging

_NEVER_US = 1 << 50
_SETTLING_US = 5_000_000


def quiet_options(member_count: int = 3) -> Options:
    """No faults, no losses and no clients; members tick as servers do."""
    return replace(
        draw_options(1, member_count),
        paces_ticks=True,
        heart_beat_interval_ms=150,
        election_timeout_ms_min=1_000,
        delay_us_min=50,
        delay_us_max=200,
        packet_loss=0.0,
        duplication=0.0,
        reorders=False,
        straggling=0.0,
        put_interval_us=_NEVER_US,
        read_interval_us=0,
        leader_cut_interval_ms=0,
        leader_falls=0.0,
        voter_falls=0.0,
        repeats_answers=False,
        long_absence_ms_max=0,
        clock_jump_interval_ms=0,
        stand_still_interval_ms=0,
        recovery_crashes=0.0,
        scrub_bytes_per_second=0,
        faults={},
    )


class QuietGroup:
    """Has its leader, and rests."""

    def __init__(self, member_count: int = 3) -> None:
        self._cluster = Cluster(1, quiet_options(member_count))
        for member in self._cluster.members:
            self._cluster.loop.call_later(0, member.start)
        self._run_until(_SETTLING_US)

    def run(self, seconds: float) -> None:
        self._run_until(self._cluster.loop.now_us + int(seconds * 1_000_000))

    def _run_until(self, at_us: int) -> None:
        with without_logging():
            self._cluster.loop.run_until(at_us)

    @property
    def elections(self) -> int:
        return self._cluster.counts.elections
