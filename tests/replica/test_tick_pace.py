"""Ticks come often while anything moves or an election may be won, and seldom while nothing does."""

from types import SimpleNamespace
from typing import Any

import pytest

from dledger.tick_pace import LEADERLESS_TICKS, QUIET_TICKS, TickPace

INTERVAL_MS = 10
QUIET_MS = QUIET_TICKS * INTERVAL_MS


@pytest.fixture
def replica() -> Any:
    """A follower that holds all there is."""
    member = SimpleNamespace(
        curr_term=3, role="FOLLOWER", leader_id="n1", committed_index=7, transfer_target=None
    )
    config = SimpleNamespace(tick_interval_ms=INTERVAL_MS)
    return SimpleNamespace(config=config, member=member, log=SimpleNamespace(ledger_end_index=7), idle=True)


def test_a_group_at_rest_ticks_seldom_from_the_second_tick_on(replica: Any) -> None:
    pace = TickPace(replica)
    assert [pace.delay_ms() for _ in range(3)] == [INTERVAL_MS, QUIET_MS, QUIET_MS]


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
        pace.delay_ms()
    change(replica)
    assert pace.delay_ms() == INTERVAL_MS


def test_without_a_leader_ticks_stay_close_for_as_long_as_an_election_takes(replica: Any) -> None:
    pace = TickPace(replica)
    for _ in range(2):
        pace.delay_ms()
    replica.member.leader_id = None
    delays = [pace.delay_ms() for _ in range(LEADERLESS_TICKS + 2)]
    assert delays == [INTERVAL_MS] * LEADERLESS_TICKS + [QUIET_MS] * 2
    replica.member.leader_id = "n2"
    assert pace.delay_ms() == INTERVAL_MS
