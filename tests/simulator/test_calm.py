"""In a calm life nothing that is drawn for seconds goes on at its pace for most of an hour."""

from dataclasses import fields

from simulator.faults.calm import BEGIN_ACCIDENTS_MAX, calm
from simulator.harness.options import Options, draw_options

SEEDS = range(1, 301)
APART_MS_MIN = 10_000
# What the group itself does, and no accident.
OF_THE_GROUP = {"tick_interval_ms", "heart_beat_interval_ms"}


def test_each_trouble_that_comes_again_and_again_comes_far_apart():
    names = {item.name for item in fields(Options) if item.name.endswith("_interval_ms")} - OF_THE_GROUP
    seen = set()
    for seed in SEEDS:
        usual = draw_options(seed)
        drawn_out = calm(usual, seed)
        for name in names:
            interval_ms = getattr(drawn_out, name)
            assert interval_ms == 0 or interval_ms >= APART_MS_MIN, f"seed {seed}: {name}={interval_ms}"
            seen |= {name} if interval_ms else set()
    assert seen == names


def test_power_losses_that_come_with_each_deletion_come_with_few():
    drawn_out = [calm(draw_options(seed), seed).begin_accidents for seed in SEEDS]
    assert set(drawn_out) == {0.0, BEGIN_ACCIDENTS_MAX}
