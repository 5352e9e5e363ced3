"""A leader that cannot serve yet, for what it has to dispatch, lets others try."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.backlog_hand_over import ASK_AGAIN_MS, UNSERVING_MS_MAX, BacklogHandOver
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
    transfer_target: str | None = None
    voters: tuple[str, ...] = VOTERS
    away: frozenset[str] = frozenset()
    asked: list[tuple[int, str]] = field(default_factory=list)

    @property
    def replica(self) -> BehindStore:
        return self

    @property
    def membership(self) -> Membership:
        return Membership({voter: Seat() for voter in self.voters}, {"n8": Seat()})

    def transfer_leadership(self, target: str | None, reason: str, now_ms: int) -> Refusal | None:
        assert target is not None
        assert "1000000 entries to dispatch" in reason
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
    for now_ms in range(0, ASK_AGAIN_MS + 3 * UNSERVING_MS_MAX, TICK_MS):
        hand_over.tick(now_ms)
        store.transfer_target = None  # given up at once: this one leads on
    assert [target for _now_ms, target in store.asked] == ["n2", "n0", "n2", "n0"]
    asked_again_ms = store.asked[2][0]
    assert asked_again_ms - store.asked[0][0] >= ASK_AGAIN_MS


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
    run(of(store), 0, UNSERVING_MS_MAX + TICK_MS)
    assert [target for _now_ms, target in store.asked] == ["n0"]


def test_three_that_are_all_behind_have_each_asked_another_one():
    first_asked = []
    for self_id in VOTERS:
        store = BehindStore()
        run(of(store, self_id), 0, UNSERVING_MS_MAX + TICK_MS)
        first_asked += [target for _now_ms, target in store.asked]
    assert first_asked == ["n1", "n2", "n0"]


def test_a_leader_that_serves_or_waits_for_a_quorum_only_stays():
    for store in (
        BehindStore(serving=True),
        BehindStore(reput_behind=0),
        BehindStore(role=Role.FOLLOWER),
        BehindStore(transfer_target="n0"),
        BehindStore(voters=("n1",)),
    ):
        run(of(store), 0, 3 * UNSERVING_MS_MAX)
        assert store.asked == []
