"""Seeds that failed once, under the name of what was wrong. What each found has a test of its own as well, since a
change anywhere in the code under test changes what a seed does.
"""

import pytest

from simulator.run import Outcome, run_seed

FAILED_ONCE = {
    # The simulated disk let a sync in one thread make another's unlink durable that had not happened yet.
    "unlinked_before_its_time": 1512,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILED_ONCE)
def test_a_seed_that_failed_once_passes(name):
    result = run_seed(FAILED_ONCE[name])
    assert result.outcome is Outcome.PASSED, result.report
