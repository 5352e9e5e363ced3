"""A leader that cannot serve yet, for what it has to dispatch, lets others try."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from one_broker import OneBroker
from store_group import StoreGroup, StoreMember, message

from broker.leadership.backlog_hand_over import (
    ASK_AGAIN_MS,
    REST_MS_MAX,
    UNSERVING_MS_MAX,
    BacklogHandOver,
)
from dledger.core.membership import Membership, Seat
from dledger.core.output import Role
from dledger.core.refusal import Refusal, RefusalReason

TICK_MS = 10
VOTERS = ("n0", "n1", "n2")


@dataclass
class BehindStore:
    """What a store and its replica say of the group."""

    role: Role = Role.LEADER
    serving: bool = False
    reput_behind: int = 1_000_000
    is_state_whole: bool = True
    transfer_target: str | None = None
    voters: tuple[str, ...] = VOTERS
    away: frozenset[str] = frozenset()
    asked: list[tuple[int, str]] = field(default_factory=list)

    @property
    def reads(self) -> BehindStore:
        return self

    @property
    def replica(self) -> BehindStore:
        return self

    @property
    def member(self) -> BehindStore:
        return self

    @property
    def membership(self) -> Membership:
        return Membership({voter: Seat() for voter in self.voters}, {"n8": Seat()})

    def transfer_leadership(self, target: str | None, reason: str, now_ms: int) -> Refusal | None:
        assert target is not None
        assert f"{self.reput_behind} entries to dispatch" in reason
        if target in self.away:
            return Refusal(RefusalReason.NOT_CAUGHT_UP, f"{target} has not answered")
        self.asked.append((now_ms, target))
        self.transfer_target = target
        return None


def run(hand_over: BacklogHandOver, begin_ms: int, end_ms: int) -> None:
    for now_ms in range(begin_ms, end_ms, TICK_MS):
        hand_over.tick(now_ms)


def of(store: BehindStore, self_id: str = "n1") -> BacklogHandOver:
    return BacklogHandOver(store, self_id)  # type: ignore[arg-type]


def test_a_leader_that_is_behind_for_long_hands_on_to_the_next_voter():
    store = BehindStore()
    run(of(store), 0, UNSERVING_MS_MAX + 5 * TICK_MS)
    assert store.asked == [(UNSERVING_MS_MAX, "n2")]


def test_one_that_was_given_up_is_followed_by_another_one_and_asked_again_later():
    store = BehindStore()
    hand_over = of(store)
    for now_ms in range(0, 10 * ASK_AGAIN_MS, TICK_MS):
        hand_over.tick(now_ms)
        store.transfer_target = None  # given up at once: this one leads on
    assert [target for _now_ms, target in store.asked[:4]] == ["n2", "n0", "n2", "n0"]
    for voter in ("n0", "n2"):
        asked_ms = [now_ms for now_ms, target in store.asked if target == voter]
        assert all(later - earlier >= ASK_AGAIN_MS for earlier, later in itertools.pairwise(asked_ms))
        assert len(asked_ms) >= 8


@pytest.mark.parametrize(("ms_of_work", "hands_over"), [(REST_MS_MAX, False), (5 * REST_MS_MAX, True)])
def test_a_leader_that_is_nearly_done_leads_on(ms_of_work, hands_over):
    store = BehindStore()
    hand_over = of(store)
    for now_ms in range(0, ms_of_work, TICK_MS):
        store.reads.reput_behind = 1_000 * (ms_of_work - now_ms)
        hand_over.tick(now_ms)
    assert bool(store.asked) == hands_over


def test_it_waits_anew_in_each_term_that_it_leads():
    store = BehindStore()
    hand_over = of(store)
    run(hand_over, 0, UNSERVING_MS_MAX)
    store.role = Role.FOLLOWER
    run(hand_over, UNSERVING_MS_MAX, 2 * UNSERVING_MS_MAX)
    store.role = Role.LEADER
    run(hand_over, 2 * UNSERVING_MS_MAX, 3 * UNSERVING_MS_MAX)
    assert store.asked == []
    hand_over.tick(3 * UNSERVING_MS_MAX)
    assert store.asked == [(3 * UNSERVING_MS_MAX, "n2")]


def test_one_that_cannot_lead_is_passed_over():
    store = BehindStore(away=frozenset({"n2"}))
    hand_over = of(store)
    run(hand_over, 0, UNSERVING_MS_MAX + TICK_MS)
    assert [target for _now_ms, target in store.asked] == ["n0"]
    store.away, store.transfer_target = frozenset(), None
    run(hand_over, UNSERVING_MS_MAX + TICK_MS, 2 * UNSERVING_MS_MAX + 2 * TICK_MS)
    assert [target for _now_ms, target in store.asked] == ["n0", "n2"]  # it was not asked yet


def test_three_that_are_all_behind_have_each_asked_another_one():
    first_asked = []
    for self_id in VOTERS:
        store = BehindStore()
        run(of(store, self_id), 0, UNSERVING_MS_MAX + TICK_MS)
        first_asked += [target for _now_ms, target in store.asked]
    assert first_asked == ["n1", "n2", "n0"]


def test_a_leader_that_would_win_nothing_by_it_stays():
    for store in (
        BehindStore(serving=True),
        BehindStore(reput_behind=0),
        BehindStore(role=Role.FOLLOWER),
        BehindStore(transfer_target="n0"),
        BehindStore(is_state_whole=False),  # what Java left is brought into the log first
        BehindStore(voters=("n1",)),
    ):
        run(of(store), 0, 3 * UNSERVING_MS_MAX)
        assert store.asked == []


def test_a_member_of_a_real_group_that_is_elected_while_it_dispatches_gives_way(tmp_path: Path):
    group = StoreGroup(tmp_path, 3)
    group.start()
    level = group.lead()
    level.put(message())
    group.settle()
    behind = next(member for member in group.members.values() if member is not level)
    behind.reput_held = True
    level.put(message())
    group.run_until(lambda: behind.store.reads.reput_behind > 0)
    hand_overs = [BacklogHandOver(member.store, member.id) for member in group.members.values()]

    def tick() -> None:
        for hand_over in hand_overs:
            hand_over.tick(group.now_ms)
        group.at(TICK_MS, tick)

    def served_by_another() -> bool:
        return group.serving() not in (None, behind)

    assert level.replica.transfer_leadership(behind.id, "to see what it does", group.now_ms) is None
    group.run_until(lambda: leads(behind))
    tick()
    group.run_until(served_by_another, limit_ms=2 * UNSERVING_MS_MAX)


def leads(member: StoreMember) -> bool:
    return member.store.role is Role.LEADER


def test_a_broker_of_a_group_has_it_ticked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broker = OneBroker(tmp_path)
    ticks: list[int] = []
    monkeypatch.setattr(BacklogHandOver, "tick", lambda _self, now_ms: ticks.append(now_ms))
    broker.controller.tick(broker.now_ms)
    assert ticks == [broker.now_ms]
