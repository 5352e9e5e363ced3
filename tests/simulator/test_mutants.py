"""Known bugs put back are caught: the proof that the simulator can find anything at all.

A change anywhere in the code under test changes what a seed does, so a mutant is searched for in a few seeds, and the
one that catches it must be sound without it.
"""

import pytest

from simulator.__main__ import run_with_mutant
from simulator.run import Outcome

SEEDS = range(1, 41)
# The others need more seeds than a landing has time for: scripts/simulate --seeds 1..200 --mutant NAME.
SOON_CAUGHT = (
    "ack_before_sync",
    "queue_offset_table_not_rebuilt",
    "reput_past_commit",
    "truncation_below_commit",
)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SOON_CAUGHT)
def test_a_known_bug_is_caught_and_its_seed_is_sound_without_it(mutant):
    caught_by = next(
        (
            seed
            for seed in SEEDS
            if run_with_mutant(seed, member_count=None, mutant=mutant).outcome is Outcome.SAFETY
        ),
        None,
    )
    assert caught_by is not None, f"{mutant} went through {len(SEEDS)} seeds unnoticed"
    assert run_with_mutant(caught_by, member_count=None, mutant=None).outcome is Outcome.PASSED
