"""How long jobs took."""

import pytest

from dledger.job_times import NEWEST, JobTimes

MS = 1_000_000


def test_without_a_job_there_are_no_quantiles() -> None:
    assert JobTimes().figures() == {"sum": 0, "count": 0}


def test_one_in_a_hundred_decides_the_99th_percentile() -> None:
    times = JobTimes()
    for number in range(100):
        times.add(250 * MS if number == 50 else 2 * MS)
    assert times.figures() == pytest.approx({"0.5": 0.002, "0.99": 0.25, "sum": 0.448, "count": 100})


def test_what_is_long_ago_counts_in_the_sum_alone() -> None:
    times = JobTimes()
    for _ in range(NEWEST):
        times.add(9000 * MS)
    for _ in range(NEWEST):
        times.add(1 * MS)
    figures = times.figures()
    assert (figures["0.5"], figures["0.99"], figures["count"]) == (0.001, 0.001, 2 * NEWEST)
    assert figures["sum"] == pytest.approx(9.001 * NEWEST)
