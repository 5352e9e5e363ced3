"""A schedule is a function of its seed, keeps a quarter of the time quiet, and never takes more than it may."""

import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.nemesis import Firing, NemesisSpec, TargetKind
from faults.schedule import (
    Schedule,
    ScheduleError,
    majority_is_whole,
    make_schedule,
    overlapping_pairs,
    pairs_possible,
    quiet_share,
)

MEMBERS = ("n0", "n1", "n2")
MEMBER, LEADER, LINK, GROUP, OUTSIDE = TargetKind
SEEDS = st.integers(0, 2**32)


def slow_link(name: str, weight: float = 1.0) -> NemesisSpec:
    """A link that is bad, and carries what it is given."""
    return NemesisSpec(
        name=name, targets=(LINK,), duration_ms=(3_000, 15_000), impairs=False, recovery_ms=0, weight=weight
    )


SPECS = (
    *map(slow_link, ("latency", "bandwidth", "slicer", "slow_close", "disorder")),
    NemesisSpec(name="cut", targets=(LINK,), duration_ms=(3_000, 8_000)),
    NemesisSpec(name="kill", targets=(MEMBER, LEADER), duration_ms=(2_000, 6_000), recovery_ms=3_000),
    NemesisSpec(name="pause", targets=(MEMBER, LEADER), duration_ms=(2_000, 6_000)),
    NemesisSpec(name="full_disk", targets=(MEMBER,), duration_ms=(3_000, 6_000)),
    NemesisSpec(
        name="power_loss",
        targets=(GROUP,),
        duration_ms=(1_000, 3_000),
        spares_majority=False,
        excludes=frozenset({"full_disk"}),
        outage_ms=None,
    ),
    NemesisSpec(
        name="name_server", targets=(OUTSIDE,), duration_ms=(5_000, 20_000), impairs=False, recovery_ms=0
    ),
)


def made(seed: int = 1, minutes: float = 60, specs: tuple[NemesisSpec, ...] = SPECS) -> Schedule:
    return make_schedule(specs, MEMBERS, seed=seed, minutes=minutes)


@pytest.fixture(scope="module")
def hour() -> Schedule:
    return made()


def test_each_nemesis_comes_twenty_times_an_hour_and_in_each_part_of_it(hour: Schedule) -> None:
    for spec in SPECS:
        begins = [firing.begin_ms for firing in hour.firings if firing.spec is spec]
        assert len(begins) >= 20
        longest = max(after - before for before, after in itertools.pairwise([0, *begins, hour.run_ms]))
        assert longest < hour.run_ms / 4, spec.name


def test_several_pairs_are_on_at_once(hour: Schedule) -> None:
    assert len(overlapping_pairs(hour)) >= 3


@given(SEEDS, st.sampled_from([1.0, 2.5, 5.0]))
@settings(max_examples=10)
def test_a_quarter_of_the_time_is_quiet(seed: int, minutes: float) -> None:
    schedule = made(seed, minutes)
    assert 0.25 <= quiet_share(schedule) <= 0.33
    for storm, after in itertools.pairwise(schedule.storms):
        assert not [one for one in schedule.firings if one.end_ms > storm[1] and one.begin_ms < after[0]]


def test_one_nemesis_alone_storms_as_much() -> None:
    for spec in SPECS:
        alone = make_schedule([replace(spec, recovery_ms=0)], MEMBERS, seed=3, minutes=4)
        assert 0.25 <= quiet_share(alone) <= 0.33, spec.name


@given(SEEDS)
@settings(max_examples=10)
def test_what_spares_a_majority_leaves_one_whatever_else_is_on(seed: int) -> None:
    schedule = made(seed, minutes=3)
    for at in {one.begin_ms for one in schedule.firings}:
        on = [one for one in schedule.firings if one.begin_ms <= at < one.clear_ms]
        if any(one.spec.spares_majority and one.spec.impairs for one in on):
            assert majority_is_whole(on, MEMBERS)


@given(SEEDS)
@settings(max_examples=10)
def test_what_excludes_each_other_is_never_on_at_once(seed: int) -> None:
    schedule = made(seed, minutes=3)
    pairs = overlapping_pairs(schedule)
    assert pairs["full_disk", "power_loss"] == 0
    assert all(first != second for first, second in pairs)


def test_weight_says_what_fills_the_rest() -> None:
    rare, often = slow_link("rare", weight=1), slow_link("often", weight=9)
    counts = Counter(one.spec.name for one in made(specs=(rare, often)).firings)
    assert counts["often"] > 3 * counts["rare"]


def test_the_same_seed_is_the_same_schedule_whatever_the_hashes() -> None:
    text = made(seed=5, minutes=5).describe()
    code = "import test_schedule as t; print(t.made(seed=5, minutes=5).describe())"
    for hash_seed in ("1", "2"):
        environment = os.environ | {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        }
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == text + "\n"
    assert made(seed=6, minutes=5).describe() != text
    assert text.startswith("seed 5, 5 min, ")


def test_nemeses_that_do_not_fit_are_named() -> None:
    names = frozenset(f"long {number}" for number in range(4))
    long = NemesisSpec(name="long", targets=(MEMBER,), duration_ms=(40_000, 40_000), excludes=names)
    with pytest.raises(ScheduleError, match=r"long \d: \d+ of 10 firings"):
        made(minutes=30, specs=tuple(replace(long, name=name) for name in sorted(names)))


@pytest.mark.parametrize(
    "spoiled",
    [
        {"targets": ()},
        {"duration_ms": (5, 4)},
        {"duration_ms": (0, 4)},
        {"weight": 0.0},
        {"targets": (GROUP,)},
    ],
)
def test_a_nemesis_that_cannot_be_is_refused(spoiled: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        replace(SPECS[6], **spoiled)


def test_two_nemeses_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="different names"):
        make_schedule([SPECS[0], SPECS[0]], MEMBERS, seed=1, minutes=1)


def test_pairs_that_are_possible_are_those_that_some_schedule_has() -> None:
    had = set[tuple[str, str]]()
    for seed in range(30):
        had |= overlapping_pairs(made(seed, minutes=20)).keys()
    assert pairs_possible(SPECS, MEMBERS) == len(had)


def test_what_excludes_each_other_is_no_pair() -> None:
    kill, pause = SPECS[6], replace(SPECS[7], excludes=frozenset({"kill"}))
    assert pairs_possible([kill, pause], MEMBERS) == 0
    assert pairs_possible([kill, replace(pause, excludes=frozenset())], MEMBERS) == 1


def firing(kind: TargetKind, target: str) -> Firing:
    return Firing(
        NemesisSpec(name="x", targets=(kind,), duration_ms=(1, 1), spares_majority=False), kind, target, 0, 1
    )


@pytest.mark.parametrize(
    ("firings", "is_whole"),
    [
        ([], True),
        ([(MEMBER, "n0")], True),
        ([(MEMBER, "n0"), (MEMBER, "n1")], False),
        ([(MEMBER, "n0"), (MEMBER, "n0")], True),
        ([(LEADER, "leader")], True),
        ([(LEADER, "leader"), (MEMBER, "n0")], False),
        ([(LINK, "n0->n1")], True),
        ([(LINK, "n0->n1"), (LINK, "n1->n0")], True),
        ([(LINK, "n0->n1"), (LINK, "n2->n0")], True),
        ([(LINK, "n0->n1"), (LINK, "n1->n2"), (LINK, "n2->n0")], False),
        ([(LINK, "n0->n1"), (MEMBER, "n1")], True),
        ([(LINK, "n0->n1"), (MEMBER, "n2")], False),
        ([(LINK, "n0->n1"), (LEADER, "leader")], False),
        ([(GROUP, "group")], False),
        ([(OUTSIDE, "")], True),
    ],
)
def test_a_majority_is_whole_if_it_is_up_and_hears_each_other(
    firings: list[tuple[TargetKind, str]], is_whole: bool
) -> None:
    assert majority_is_whole([firing(*one) for one in firings], MEMBERS) is is_whole


@given(st.randoms(use_true_random=False))
def test_what_is_whole_of_three_is_whole_of_five(dice: random.Random) -> None:
    kinds = [(MEMBER, "n1"), (LEADER, "leader"), (LINK, "n0->n2"), (LINK, "n2->n1"), (LINK, "n1->n0")]
    on = [firing(*one) for one in dice.sample(kinds, dice.randint(0, len(kinds)))]
    if majority_is_whole(on, MEMBERS):
        assert majority_is_whole(on, (*MEMBERS, "n3", "n4"))
