"""Which outages are excused, and by what."""

import pytest
from told import acknowledged, begun, calm, drain, ended, fault, in_order, leader

from faults.history import AnyRecord, Standstill
from faults.judge import Judgement, judge
from faults.report import verdict

MS = 1_000_000


def judged(*records: AnyRecord | list[AnyRecord]) -> Judgement:
    history = in_order(*records)
    return judge(lambda: history)


def unexcused_ms(*records: AnyRecord | list[AnyRecord]) -> int:
    """Of the one gap that there is."""
    (gap,) = judged(*records).availability.gaps
    return round(gap.unexcused_ms)


def tried(first_ms: int, last_ms: int) -> list[AnyRecord]:
    """And nothing acknowledged."""
    return [begun(first_ms, 0), begun(last_ms, 1)]


@pytest.mark.parametrize(
    ("outage_ms", "end_ms", "last_ms", "expected"),
    [
        (3_000, 10_500, 8_000, 4_500),
        (3_000, 4_500, 8_000, 1_000),
        (3_000, 2_500, 8_000, 2_500),
        (None, 7_500, 8_000, 500),
        (None, 2_500, 20_000, 7_500),
    ],
)
def test_a_fault_excuses_after_its_begin_and_its_end_or_all_that_it_lasts(
    outage_ms: int | None, end_ms: int, last_ms: int, expected: int
) -> None:
    assert unexcused_ms(tried(0, last_ms), fault(500, end_ms, outage_ms=outage_ms)) == expected


@pytest.mark.parametrize("outage_ms", [5_000, None])
def test_a_fault_that_nothing_shows_excuses_nothing(outage_ms: int | None) -> None:
    unseen = fault(0, 4_000, outage_ms=outage_ms, is_seen=False)
    assert unexcused_ms(tried(0, 4_000), unseen) == 4_000


def test_a_fault_whose_end_is_not_told_excuses_until_all_is_healed() -> None:
    lasts = fault(0, None, outage_ms=None)
    assert unexcused_ms(tried(0, 30_000), lasts) == 0
    assert unexcused_ms(tried(0, 30_000), lasts, calm(5_000)) == 15_000


def cut(target: str) -> list[AnyRecord]:
    return fault(20_000, 40_000, "client_link_cut", target, outage_ms=None, while_leading=True)


@pytest.mark.parametrize(
    ("leaders", "expected"),
    [
        ([(0, 1, "n0")], 0),
        ([(0, 1, "n1")], 18_000),
        ([(0, 1, "n1"), (30_000, 2, "n0")], 7_000),  # and a little before it is seen to lead
        ([(0, 1, "n0"), (25_000, 2, "n1")], 10_000),  # and a little after another one is
        ([], 18_000),
    ],
)
def test_what_clients_of_the_leader_feel_excuses_while_its_target_leads(
    leaders: list[tuple[int, int, str]], expected: int
) -> None:
    seen: list[AnyRecord] = [leader(*one) for one in leaders]
    assert unexcused_ms(seen, tried(20_000, 38_000), cut("n0")) == expected


def test_a_standstill_of_the_machine_excuses_as_long_as_it_lasted() -> None:
    still: list[AnyRecord] = [
        Standstill(at_ns=1_300 * MS, begun_ns=900 * MS, of="disk"),
        Standstill(at_ns=1_500 * MS, begun_ns=1_200 * MS, of="processor"),
    ]
    assert not judged(tried(0, 2_400), still).violations
    assert [violation.checker for violation in judged(tried(0, 2_400)).violations] == ["availability"]
    judgement = judged(tried(0, 2_500), still)
    (gap,) = judgement.availability.gaps
    assert (round(gap.unexcused_ms), round(gap.standstill_ms)) == (1_000, 600)
    assert "the machine stood still for 0.6 s" in judgement.violations[0].sentence


def test_a_group_that_serves_no_more_after_the_last_fault_is_told_of() -> None:
    """Also where each producer waits for its last answer until it is to end."""
    last = fault(500, 1_000, outage_ms=None)
    well = acknowledged(0, 0, 0)
    for tries in (ended(2_000, 1, "unknown", after_ms=12_500), [begun(2_000, 1)]):
        kinds = [one.checker for one in judged(well, last, tries, calm(1_000), drain(14_500)).violations]
        assert kinds == ["availability"]
    # Its answers have come by then.
    assert not judged(well, last, ended(2_000, 1, "unknown"), calm(1_000), drain(14_500)).violations


def test_a_run_without_an_acknowledgement_after_the_last_fault_proves_too_little() -> None:
    told = "nothing was acknowledged after the last fault had ended"
    well, last = acknowledged(0, 0, 0), fault(500, 1_000)
    assert told in judged(well, last).coverage.shortfalls()
    assert told not in judged(well, last, acknowledged(1_500, 1, 1)).coverage.shortfalls()


def test_a_fault_that_is_over_is_named_where_it_excuses_still() -> None:
    over, on = fault(0, 1_500), fault(5_500, 6_000, "pause", "n1")
    (gap,) = judged(tried(2_000, 4_500), over, on).availability.gaps
    assert (gap.told_faults(), round(gap.unexcused_ms)) == ("just over: kill n0", 0)
    (gap,) = judged(tried(2_000, 6_000), over, on).availability.gaps
    assert gap.told_faults() == "pause n1; just over: kill n0"
    (violation,) = judged(tried(2_000, 5_500), over).violations
    assert violation.sentence.endswith("1.0 s of them without an excuse; no fault was on; just over: kill n0")


def test_how_much_of_the_time_is_excused_is_in_the_verdict() -> None:
    judgement = judged(tried(0, 20_000), fault(1_000, 9_000), fault(1_500, 9_500, is_seen=False))
    assert round(judgement.availability.excused_share, 3) == 0.3
    assert "an outage would have been excused for 30 % of the time" in verdict(judgement)[2]
