"""Ticks come often while anything moves or an election may be won, and seldom while nothing does."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_group import VirtualGroup

from dledger.tick_pace import LEADERLESS_TICKS, QUIET_TICKS, TickPace

INTERVAL_MS = 10
QUIET_MS = QUIET_TICKS * INTERVAL_MS
NOW_MS = 1_000


@pytest.fixture
def replica() -> Any:
    """A follower that holds all there is."""
    member = SimpleNamespace(
        curr_term=3, role="FOLLOWER", leader_id="n1", committed_index=7, transfer_target=None
    )
    config = SimpleNamespace(
        tick_interval_ms=INTERVAL_MS, member_config=SimpleNamespace(heart_beat_interval_ms=150)
    )
    return SimpleNamespace(
        config=config,
        member=member,
        log=SimpleNamespace(ledger_end_index=7),
        idle=True,
        scrubber=SimpleNamespace(due_ms=None),
    )


def test_a_group_at_rest_ticks_seldom_from_the_second_tick_on(replica: Any) -> None:
    pace = TickPace(replica)
    assert [pace.delay_ms(NOW_MS) for _ in range(3)] == [INTERVAL_MS, QUIET_MS, QUIET_MS]


@pytest.mark.parametrize(
    "change",
    [
        lambda replica: setattr(replica.log, "ledger_end_index", 8),
        lambda replica: setattr(replica.member, "transfer_target", "n2"),
        lambda replica: setattr(replica.member, "curr_term", 4),
        lambda replica: setattr(replica, "idle", False),
    ],
    ids=["an entry", "a hand-over", "a term", "a job"],
)
def test_whatever_moves_brings_the_ticks_back_at_once(replica: Any, change: Any) -> None:
    pace = TickPace(replica)
    for _ in range(2):
        pace.delay_ms(NOW_MS)
    change(replica)
    assert pace.delay_ms(NOW_MS) == INTERVAL_MS


def test_without_a_leader_ticks_stay_close_for_as_long_as_an_election_takes(replica: Any) -> None:
    pace = TickPace(replica)
    for _ in range(2):
        pace.delay_ms(NOW_MS)
    replica.member.leader_id = None
    delays = [pace.delay_ms(NOW_MS) for _ in range(LEADERLESS_TICKS + 2)]
    assert delays == [INTERVAL_MS] * LEADERLESS_TICKS + [QUIET_MS] * 2
    replica.member.leader_id = "n2"
    assert pace.delay_ms(NOW_MS) == INTERVAL_MS


@pytest.mark.parametrize(
    ("due_ms", "delay_ms"),
    [(NOW_MS - 1, QUIET_MS), (NOW_MS + 1, INTERVAL_MS), (NOW_MS + 25, 25), (NOW_MS + 900, QUIET_MS)],
    ids=["waits for something else", "at once", "soon", "later"],
)
def test_a_scrub_at_rest_goes_on_when_its_rate_says_so(replica: Any, due_ms: int, delay_ms: int) -> None:
    pace = TickPace(replica)
    pace.delay_ms(NOW_MS)
    replica.scrubber.due_ms = due_ms
    assert pace.delay_ms(NOW_MS) == delay_ms


HEART_BEATS_MS = pytest.mark.parametrize("heart_beat_interval_ms", [10, 40, 50, 150])


@HEART_BEATS_MS
def test_a_group_that_has_heard_nothing_for_long_finds_a_leader(
    tmp_path: Path, heart_beat_interval_ms: int
) -> None:
    """Ticks further apart than the heart beat would put each campaign off, as after a standstill."""
    group = VirtualGroup(tmp_path, heart_beat_interval_ms=heart_beat_interval_ms, paces_ticks=True)
    group.loses = lambda message: True
    group.start()
    group.run_for(8_000)
    group.loses = lambda message: False
    group.elect()


@HEART_BEATS_MS
def test_a_leader_that_falls_silent_at_rest_is_followed_by_another(
    tmp_path: Path, heart_beat_interval_ms: int
) -> None:
    group = VirtualGroup(tmp_path, heart_beat_interval_ms=heart_beat_interval_ms, paces_ticks=True)
    group.start()
    silent = group.elect().id
    group.run_until(group.converged)
    group.run_for(2_000)
    group.loses = lambda message: getattr(message, "leader_id", None) == silent
    group.run_until(lambda: (leader := group.leader()) is not None and leader.id != silent)
