"""Ticks come often while anything moves or an election may be won; while nothing does, when something is due."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_group import VirtualGroup

from dledger.core.messages import HeartBeatRequest, ReadIndexRequest
from dledger.core.output import Role
from dledger.entry import Index, Term
from dledger.tick_pace import LEADERLESS_TICKS, TickPace

INTERVAL_MS = 10
NOW_MS = 1_000
DUE_MS = 1_225  # of the member
HEART_BEAT = HeartBeatRequest(Term(3), "n1", Index(7), 1)


@pytest.fixture
def replica() -> Any:
    """A follower that holds all there is."""
    member = SimpleNamespace(
        curr_term=3, role="FOLLOWER", leader_id="n1", committed_index=7, transfer_target=None, due_ms=DUE_MS
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


class Shell:
    """Ticks at NOW_MS, and writes down for when the next one was asked."""

    def __init__(self, replica: Any) -> None:
        self.delays: list[int] = []
        self.pace = TickPace(replica, self.delays.append)

    def tick(self, due_ms: int | None = None) -> int:
        self.pace.ticked(NOW_MS, due_ms)
        return self.delays[-1]

    def rest(self) -> None:
        for _ in range(2):
            self.tick()
        assert self.pace.rests
        self.delays.clear()


def test_a_group_at_rest_ticks_when_its_member_says_so_from_the_second_tick_on(replica: Any) -> None:
    shell = Shell(replica)
    assert [shell.tick() for _ in range(3)] == [INTERVAL_MS, DUE_MS - NOW_MS, DUE_MS - NOW_MS]


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
def test_whatever_moves_brings_the_ticks_back(replica: Any, change: Any) -> None:
    shell = Shell(replica)
    shell.rest()
    change(replica)
    assert shell.tick() == INTERVAL_MS


def test_without_a_leader_ticks_stay_close_for_as_long_as_an_election_takes(replica: Any) -> None:
    shell = Shell(replica)
    shell.rest()
    replica.member.leader_id = None
    delays = [shell.tick() for _ in range(LEADERLESS_TICKS + 2)]
    assert delays == [INTERVAL_MS] * LEADERLESS_TICKS + [DUE_MS - NOW_MS] * 2
    replica.member.leader_id = "n2"
    assert shell.tick() == INTERVAL_MS


@pytest.mark.parametrize(
    ("due_ms", "delay_ms"),
    [(NOW_MS - 1, 225), (NOW_MS + 1, INTERVAL_MS), (NOW_MS + 25, 25), (NOW_MS + 900, 225)],
    ids=["waits for something else", "at once", "soon", "later"],
)
def test_a_scrub_at_rest_goes_on_when_its_rate_says_so(replica: Any, due_ms: int, delay_ms: int) -> None:
    shell = Shell(replica)
    shell.tick()
    replica.scrubber.due_ms = due_ms
    assert shell.tick() == delay_ms


@pytest.mark.parametrize(
    ("due_ms", "delay_ms"), [(NOW_MS, INTERVAL_MS), (NOW_MS + 25, 25), (NOW_MS + 900, 225)]
)
def test_an_embedder_that_has_something_to_do_at_rest_is_not_kept_waiting(
    replica: Any, due_ms: int, delay_ms: int
) -> None:
    shell = Shell(replica)
    shell.tick()
    assert shell.tick(due_ms) == delay_ms


def test_what_is_sent_ends_the_rest_once_but_for_heartbeats(replica: Any) -> None:
    shell = Shell(replica)
    shell.rest()
    shell.pace.sent(HEART_BEAT)
    assert shell.delays == []
    for _ in range(2):
        shell.pace.sent(ReadIndexRequest(Term(3), "n0", 1))
    assert shell.delays == [INTERVAL_MS]


def test_a_member_at_rest_ticks_as_it_hears_a_heartbeat_but_not_again_for_the_next_message(
    replica: Any,
) -> None:
    shell = Shell(replica)
    assert not shell.pace.is_occasion(NOW_MS + 150), "the next tick comes soon"
    shell.rest()
    assert not shell.pace.is_occasion(NOW_MS + 1)
    assert shell.pace.is_occasion(NOW_MS + 150)


HEART_BEATS_MS = pytest.mark.parametrize("heart_beat_interval_ms", [10, 40, 50, 150])


def test_a_group_at_rest_ticks_once_for_each_heartbeat(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path, paces_ticks=True)
    group.start()
    group.elect()
    group.run_until(group.converged)
    group.run_for(5_000)
    for member in group.running():
        member.ticks = 0
    group.run_for(15_000)
    assert [member.ticks for member in group.running()] == [pytest.approx(100, abs=1)] * 3
    assert len({member.replica.member.curr_term for member in group.running()}) == 1


def test_an_entry_after_a_rest_is_committed_everywhere_without_a_heartbeat(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path, heart_beat_interval_ms=500, paces_ticks=True)
    group.start()
    leader = group.elect()
    group.run_until(group.converged)
    group.run_for(5_000)
    group.loses = lambda message: isinstance(message, HeartBeatRequest)
    group.append(leader, [b"x"])
    group.run_until(group.converged, limit_ms=100)


def test_a_leader_of_which_a_majority_is_silent_at_rest_steps_down_in_time(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path, paces_ticks=True)
    group.start()
    leader = group.elect()
    group.run_until(group.converged)
    group.run_for(5_000)
    group.loses = lambda message: True
    limit_ms = leader.replica.config.member_config.check_quorum_ms + 2 * 150
    group.run_until(lambda: leader.replica.member.role is not Role.LEADER, limit_ms=limit_ms)


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
