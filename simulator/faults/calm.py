"""Calm lives: most of an hour with faults far apart, where a usual run has them all within seconds.

What takes its time comes to pass in these: marks and checkpoints by the clock, files that grow old, a log that rests
between two sends, clocks that are set by hours. The group rests as a server does, with ticks far apart (tick_pace.py).
"""

from dataclasses import replace
from random import Random

from simulator.harness.options import Options

# In a row of seeds each so-many-th is a calm one.
CALM_EVERY = 32
# A life of most of an hour deletes some hundred files.
BEGIN_ACCIDENTS_MAX = 0.01


def calm(options: Options, seed: int) -> Options:
    """The options of a seed, drawn out."""
    random = Random(f"{seed}/calm")
    retains = options.file_reserved_time_ms < 1 << 40
    return replace(
        options,
        is_calm=True,
        paces_ticks=True,
        fault_phase_ms=random.randint(20, 60) * 60_000,
        fault_interval_ms=random.choice((10_000, 30_000)),
        fault_duration_ms_max=random.choice((1_000, 10_000)),
        put_interval_us=random.choice((1_000_000, 3_000_000)),
        clock_jump_interval_ms=random.choice((0, 20_000)),
        stand_still_interval_ms=random.choice((0, 60_000)),
        # The accidents of a storm come with each election; here elections are few.
        leader_falls=min(options.leader_falls, 0.3),
        delivery_falls=min(options.delivery_falls, 0.02),
        # Old files go all the time, and the power seldom does.
        begin_accidents=min(options.begin_accidents, BEGIN_ACCIDENTS_MAX),
        file_reserved_time_ms=random.choice((3_000, 60_000, 300_000)) if retains else 1 << 40,
        clean_resource_interval_ms=10_000,
        scrub_pause_ms=random.choice((30_000, 300_000)),
        # Operators and disks keep the pace of the other faults, in the seeds that have theirs at all.
        membership_interval_ms=random.choice((30_000, 120_000)) if options.membership_interval_ms else 0,
        hand_over_interval_ms=random.choice((30_000, 120_000)) if options.hand_over_interval_ms else 0,
        disk_fault_interval_ms=random.choice((60_000, 240_000)) if options.disk_fault_interval_ms else 0,
        damage_interval_ms=random.choice((30_000, 120_000)) if options.damage_interval_ms else 0,
        quorum_state_loss_interval_ms=(
            random.choice((120_000, 480_000)) if options.quorum_state_loss_interval_ms else 0
        ),
        leader_cut_interval_ms=60_000 if options.leader_cut_interval_ms else 0,
        read_interval_us=random.choice((1_000_000, 3_000_000)) if options.read_interval_us else 0,
        lost_write_interval_ms=random.choice((30_000, 120_000)) if options.lost_write_interval_ms else 0,
        file_loss_interval_ms=random.choice((120_000, 480_000)) if options.file_loss_interval_ms else 0,
        synced_mark_loss_interval_ms=(
            random.choice((120_000, 480_000)) if options.synced_mark_loss_interval_ms else 0
        ),
        pop_interval_us=random.choice((1_000_000, 3_000_000)) if options.pop_interval_us else 0,
    )
