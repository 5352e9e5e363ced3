"""Each invariant is silent on a sound state and fires on a made-up bad one: one that never fires proves nothing."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dledger.core.membership import Seat
from dledger.core.output import Role
from dledger.entry import Index, Pos, Term
from dledger.log.faulty_ranges import FaultyRange
from simulator.harness.oracle import Acknowledged, CommittedMessage, Oracle, ReadIndexRead
from simulator.invariants.acknowledged_is_kept import AcknowledgedIsKept
from simulator.invariants.begin_is_committed import BeginIsCommitted
from simulator.invariants.commit_within_end import CommitWithinEnd
from simulator.invariants.damaged_wait import DamagedWait
from simulator.invariants.durable_is_kept import DurableIsKept
from simulator.invariants.durable_is_on_disk import DurableIsOnDisk
from simulator.invariants.election_safety import ElectionSafety
from simulator.invariants.hand_over_is_whole import HandOverIsWhole
from simulator.invariants.kinds.delayed_once import DelayedOnce
from simulator.invariants.kinds.no_timer_early import NoTimerEarly
from simulator.invariants.kinds.timer_once import TimerOnce
from simulator.invariants.kinds.transaction_once import TransactionOnce
from simulator.invariants.leader_completeness import LeaderCompleteness
from simulator.invariants.log_matching import LogMatching
from simulator.invariants.members_by_log import MembersByLog
from simulator.invariants.one_change_at_a_time import OneChangeAtATime
from simulator.invariants.queue_offsets_dense import QueueOffsetsDense
from simulator.invariants.read_is_fresh import ReadIsFresh
from simulator.invariants.scrub_finds_damage import ScrubFindsDamage
from simulator.invariants.state_machine_safety import StateMachineSafety
from simulator.invariants.visible_is_committed import VisibleIsCommitted
from tests.simulator.member_view import FAULTY, THREE, View

KEY = (b"T", 0)


def _oracle() -> Oracle:
    """Three committed entries of term 1, each a message of one queue."""
    oracle = Oracle()
    for index in range(3):
        oracle.chains.append(10 + index)
        oracle.terms.append(Term(1))
        oracle.first_message_at.append(index)
        message = CommittedMessage(Index(index), *KEY, index, 100 * index + 48, 50, 7, 1000 + index)
        oracle.messages.append(message)
        oracle.queues.setdefault(KEY, []).append(message)
        oracle.index_of_uid[message.uid] = Index(index)
    oracle.committed_in_term = {Term(1): Index(2)}
    return oracle


def _units() -> dict[int, tuple[int, int, int]]:
    return {offset: (100 * offset + 48, 50, 7) for offset in range(3)}


def test_election_safety_fires_on_two_leaders_of_a_term_and_on_two_lives_of_one():
    invariant = ElectionSafety()
    assert invariant.check(View(role=Role.LEADER), _oracle()) is None
    assert invariant.check(View(role=Role.LEADER), _oracle()) is None
    assert "both lead term 1" in str(invariant.check(View("n1", role=Role.LEADER), _oracle()))
    assert "both lead term 1" in str(invariant.check(View(life=2, role=Role.LEADER), _oracle()))


def test_log_matching_fires_on_one_term_and_index_with_two_chains():
    invariant = LogMatching()
    assert invariant.check(View(), _oracle()) is None
    assert invariant.check(View("n1"), _oracle()) is None
    assert "has chain" in str(invariant.check(View("n2", log=[(1, 10), (1, 11), (1, 99)]), _oracle()))


def test_leader_completeness_fires_on_a_later_leader_without_a_committed_entry():
    invariant = LeaderCompleteness()
    leader = View(role=Role.LEADER, curr_term=Term(2))
    assert invariant.check(leader, _oracle()) is None
    short = View("n1", role=Role.LEADER, curr_term=Term(3), log=[(1, 10), (1, 11)])
    assert "does not hold the committed entry 2" in str(invariant.check(short, _oracle()))


def test_state_machine_safety_fires_on_another_entry_and_on_a_commit_taken_back():
    invariant = StateMachineSafety()
    assert invariant.check(View(), _oracle()) is None
    assert "takes back" in str(invariant.check(View(committed_index=Index(1)), _oracle()))
    other = View("n1", log=[(1, 10), (1, 11), (1, 99)])
    assert "another entry 2" in str(invariant.check(other, _oracle()))


@pytest.mark.parametrize("invariant", [StateMachineSafety, BeginIsCommitted])
@pytest.mark.parametrize("has_forgotten", [False, True])
def test_what_lies_in_front_of_a_log_may_be_unknown_only_after_a_fault_that_took_it(invariant, has_forgotten):
    unknown = View(
        has_forgotten_begin=has_forgotten,
        ledger_begin_index=2,
        committed_index=1,
        log=[(-1, 0), (-1, 0), (1, 12)],
    )
    assert (invariant().check(unknown, _oracle()) is None) == has_forgotten
    other = View(
        has_forgotten_begin=True, ledger_begin_index=2, committed_index=1, log=[(1, 10), (1, 99), (1, 12)]
    )
    assert invariant().check(other, _oracle()) is not None
    of_another_term = replace(unknown, log=[(-1, 0), (7, 0), (1, 12)])
    assert invariant().check(of_another_term, _oracle()) is not None


def test_commit_within_end_fires_on_a_commit_and_on_a_durable_index_beyond_the_log():
    invariant = CommitWithinEnd()
    assert invariant.check(View(), _oracle()) is None
    assert "has committed 3" in str(invariant.check(View(committed_index=Index(3)), _oracle()))
    assert "calls 3 durable" in str(invariant.check(View(durable_index=Index(3)), _oracle()))


def test_acknowledged_is_kept_fires_on_a_lost_a_moved_and_a_refused_message():
    place = (KEY, 1, 148)
    oracle = _oracle()
    oracle.acknowledged.append(Acknowledged(Index(1), [1001], [place]))
    assert AcknowledgedIsKept().check(View(), oracle) is None
    lost = _oracle()
    lost.acknowledged.append(Acknowledged(Index(3), [1003], [(KEY, 3, 348)]))
    assert "is acknowledged, committed is 2" in str(AcknowledgedIsKept().check(View(), lost))
    moved = _oracle()
    moved.acknowledged.append(Acknowledged(Index(1), [1001], [(KEY, 0, 48)]))
    assert "message 1001 is acknowledged at" in str(AcknowledgedIsKept().check(View(), moved))
    refused = _oracle()
    refused.refused_uids.append(1002)
    assert "was refused, and is committed" in str(AcknowledgedIsKept().check(View(), refused))
    invariant, later = AcknowledgedIsKept(), _oracle()
    assert invariant.check(View(), later) is None
    later.refused_uids += [1003, 1001]
    assert "message 1001 was refused, and is committed in entry 1" in str(invariant.check(View(), later))


def test_acknowledged_is_kept_fires_on_a_serving_leader_without_it():
    oracle = _oracle()
    oracle.acknowledged.append(Acknowledged(Index(2), [1002], [(KEY, 2, 248)]))
    leader = View(
        "n1", role=Role.LEADER, curr_term=Term(2), leader_ready=True, log=[(1, 10), (1, 11), (2, 77)]
    )
    assert "without the acknowledged entry 2" in str(AcknowledgedIsKept().check(leader, oracle))


def test_queue_offsets_dense_fires_on_a_hole_and_on_a_repeated_offset():
    assert QueueOffsetsDense().check(View(), _oracle()) is None
    for offset in (0, 5):
        oracle = _oracle()
        oracle.messages[2] = CommittedMessage(Index(2), *KEY, offset, 248, 50, 7, 1002)
        assert "expected 2" in str(QueueOffsetsDense().check(View(), oracle))


def test_visible_is_committed_fires_on_uncommitted_entries_and_on_a_wrong_unit():
    def shown(view: View, oracle: Oracle) -> str | None:
        invariant = VisibleIsCommitted()
        before = View(applied_index=Index(-1), committed_index=Index(-1))
        assert invariant.check(before, oracle) is None
        return invariant.check(view, oracle)

    assert shown(View(units=_units()), _oracle()) is None
    assert "the group's commit is 2" in str(shown(View(applied_index=Index(3)), _oracle()))
    assert "committed is 1" in str(shown(View(committed_index=Index(1), units=_units()), _oracle()))
    wrong = _units() | {1: (0, 0, 0)}
    assert "has unit (0, 0, 0)" in str(shown(View(units=wrong), _oracle()))
    assert "has unit None" in str(shown(View(units={}), _oracle()))


def test_delayed_once_fires_on_a_message_too_early_or_twice_or_left_out():
    def delivered(*order: int, store_timestamp: int = 5_000) -> str | None:
        """Three messages wait, due at 5000; then these are delivered."""
        oracle = _oracle()
        oracle.waiting = {
            uid: CommittedMessage(Index(0), b"S", 0, uid, 48, 50, 5_000, uid) for uid in range(3)
        }
        oracle.messages += [
            CommittedMessage(Index(3), *KEY, 3, 348, 50, 7, uid, store_timestamp, is_delivery=True)
            for uid in order
        ]
        return DelayedOnce().check(View(), oracle)

    assert delivered(0, 1, 2) is None
    assert "number 0 of its level, next was number 1" in str(delivered(0, 0))
    assert "number 2 of its level, next was number 1" in str(delivered(0, 2))
    assert "1 ms before its time" in str(delivered(0, store_timestamp=4_999))
    assert "which nobody delayed" in str(delivered(7))


def test_transaction_once_fires_on_an_end_that_nobody_asked_for_or_one_too_many():
    def ended(*ends: tuple[int, bool], told: Sequence[int] = ()) -> str | None:
        """Messages 0 to 2 are prepared; the producers of 0 and 1 said commit; then these are committed or given up."""
        oracle = _oracle()
        oracle.halves = {uid: CommittedMessage(Index(0), b"H", 0, uid, 48, 50, 0, uid) for uid in range(3)}
        oracle.said_commit = {0, 1}
        oracle.told_ended = set(told)
        oracle.messages += [
            CommittedMessage(
                Index(3), *KEY, 3, 348, 50, 7, uid, is_commit=is_commit, is_given_up=not is_commit
            )
            for uid, is_commit in ends
        ]
        return TransactionOnce().check(View(), oracle)

    assert ended((0, True), (1, True), (2, False)) is None
    assert "has ended in entry 3" in str(ended((0, True), (0, True)))
    assert "has ended in entry 3" in str(ended((0, False), (0, True)))
    assert "has not said so" in str(ended((2, True)))
    assert "which nobody prepared" in str(ended((7, True)))
    assert "was told that the transaction has ended" in str(ended((2, False), told=[2]))


def test_timer_once_fires_on_a_message_too_early_or_twice_or_recalled() -> None:
    def fired(*uids: int, store_timestamp: int = 5_000, recall: Index | None = None) -> str | None:
        """One message waits until 5000; then these are delivered."""
        oracle = _oracle()
        oracle.timers = {0: CommittedMessage(Index(1), b"W", 0, 0, 48, 50, 0, 0, deliver_ms=5_000)}
        if recall is not None:
            oracle.recalls = {0: recall}
        oracle.messages += [
            CommittedMessage(Index(3), *KEY, 3, 348, 50, 7, uid, store_timestamp, is_fired=True)
            for uid in uids
        ]
        return TimerOnce().check(View(), oracle)

    assert fired(0) is None
    assert "which entry 3 has delivered before" in str(fired(0, 0))
    assert "1 ms before its time" in str(fired(0, store_timestamp=4_999))
    assert "for which nobody asked a time" in str(fired(7))
    assert "which entry 2 has recalled" in str(fired(0, recall=Index(2)))
    assert fired(0, recall=Index(4)) is None
    assert fired(0, recall=Index(0)) is None


def test_begin_is_committed_fires_on_another_an_uncommitted_and_a_falling_begin():
    invariant = BeginIsCommitted()
    assert invariant.check(View(), _oracle()) is None
    assert invariant.check(View(ledger_begin_index=Index(2)), _oracle()) is None
    assert "began with 2, now with 1" in str(invariant.check(View(ledger_begin_index=Index(1)), _oracle()))
    other = View("n1", ledger_begin_index=Index(2), log=[(1, 10), (1, 99), (1, 12)])
    assert "is not the committed entry 1" in str(invariant.check(other, _oracle()))
    early = View("n2", ledger_begin_index=Index(4), log=[(1, 10)] * 4)
    assert "committed is 2" in str(invariant.check(early, _oracle()))


def test_what_retention_took_is_neither_lost_nor_missing():
    oracle = _oracle()
    oracle.acknowledged.append(Acknowledged(Index(0), [1000], [(KEY, 0, 48)]))
    leader = View(
        "n1",
        role=Role.LEADER,
        curr_term=Term(2),
        leader_ready=True,
        ledger_begin_index=Index(2),
        units=_units(),
    )
    for invariant in (AcknowledgedIsKept(), LeaderCompleteness(), VisibleIsCommitted()):
        assert invariant.check(leader, oracle) is None
    kept = _units()
    del kept[0], kept[1]
    visible = VisibleIsCommitted()
    visible.check(View(applied_index=Index(-1), committed_index=Index(-1)), oracle)
    assert visible.check(View(ledger_begin_index=Index(2), units=kept), oracle) is None


def test_no_timer_early_fires_on_a_campaign_before_its_leader_was_silent_for_long_enough():
    def campaigns(heard_us: int | None) -> str | None:
        invariant = NoTimerEarly(1_000, 0)
        assert invariant.check(View(), _oracle()) is None
        return invariant.check(
            View(role=Role.CANDIDATE, now_us=5_000_000, leader_heard_us=heard_us), _oracle()
        )

    assert campaigns(None) is None
    assert campaigns(4_000_000) is None
    assert "campaigns 990000 us after it heard the leader" in str(campaigns(4_010_000))


def test_no_timer_early_fires_on_a_delivery_before_its_delay_is_over_but_for_what_clocks_differ_by():
    def delivers(waited_us: int, clock_difference_ms: int | None) -> str | None:
        oracle = _oracle()
        uid, level = 77, 2  # 400 ms
        waiting = CommittedMessage(Index(1), b"SCHEDULE", level - 1, 0, 148, 50, 1_400, uid, 1_000)
        oracle.waiting[uid] = waiting
        oracle.put_us[uid] = 1_000_000
        oracle.messages.append(
            CommittedMessage(Index(2), *KEY, 3, 348, 50, 7, uid, store_timestamp=1_400, is_delivery=True)
        )
        return NoTimerEarly(1_000, clock_difference_ms).check(View(now_us=1_000_000 + waited_us), oracle)

    assert delivers(400_000, 0) is None
    assert "delayed by 400 ms and delivered after 390000 us" in str(delivers(390_000, 0))
    assert delivers(390_000, 10) is None
    assert delivers(390_000, None) is None


def test_one_change_at_a_time_fires_on_a_second_change_before_the_first_is_committed():
    invariant = OneChangeAtATime()
    with_learner = THREE.with_learner("n3", Seat(b"n3"))
    four = with_learner.with_voter("n3", b"n3")
    for index, value in ((-1, THREE), (2, with_learner), (4, four)):
        view = View(role=Role.LEADER, logged_membership=value, membership_index=index)
        assert invariant.check(view, _oracle()) is None
    next_one = View(role=Role.LEADER, logged_membership=THREE, membership_index=5)
    assert "entry 4, which does so too, is not committed" in str(invariant.check(next_one, _oracle()))


def test_one_change_at_a_time_fires_on_two_voters_that_move_at_once():
    invariant = OneChangeAtATime()
    assert invariant.check(View(role=Role.LEADER), _oracle()) is None
    one = View(role=Role.LEADER, logged_membership=THREE.without("n1").without("n2"), membership_index=2)
    assert "moves n1, n2" in str(invariant.check(one, _oracle()))


def test_members_by_log_fires_on_a_leader_that_counts_others_than_its_log_says():
    invariant = MembersByLog()
    leader = View(role=Role.LEADER)
    assert invariant.check(leader, _oracle()) is None
    for role in (Role.LEADER, Role.CANDIDATE):
        one = View(role=role, logged_membership=THREE.without("n2"))
        assert "n0 takes" in str(invariant.check(one, _oracle()))


def test_a_leader_that_appends_while_it_hands_over_is_found():
    invariant = HandOverIsWhole()
    leader = View(role=Role.LEADER, transfer_target="n1")
    assert invariant.check(leader, _oracle()) is None
    leader.log.append((1, 13))
    fault = invariant.check(leader, _oracle())
    assert fault is not None
    assert "has appended 3 to 3 meanwhile" in fault


def test_what_a_leader_appends_before_and_after_a_transfer_is_no_fault():
    invariant = HandOverIsWhole()
    leader = View(role=Role.LEADER)
    for target in (None, "n1", None, "n1"):
        leader.transfer_target = target
        if target is None:
            leader.log.append((1, 13))
        assert invariant.check(leader, _oracle()) is None


def test_a_successor_that_is_told_before_all_is_committed_is_found():
    leader = View(role=Role.LEADER, transfer_target="n1", told_at=(1, 2))
    fault = HandOverIsWhole().check(leader, _oracle())
    assert fault is not None
    assert "with 1 committed of 2" in fault
    assert HandOverIsWhole().check(View(told_at=(2, 2)), _oracle()) is None


def test_durable_is_on_disk():
    invariant = DurableIsOnDisk()
    assert invariant.check(View(), _oracle()) is None
    assert invariant.check(View(unwritten_pos=300), _oracle()) is None
    assert "byte 299 was never written back" in invariant.check(View(unwritten_pos=299), _oracle())


def test_damaged_wait_fires_on_a_campaign_with_damage_before_others_had_their_time():
    def campaign(*, has_faults: bool, at_us: int) -> str | None:
        invariant = DamagedWait(10_000)
        assert invariant.check(View(has_faults=has_faults), _oracle()) is None
        assert invariant.check(View(has_faults=has_faults, now_us=5, leader_heard_us=5), _oracle()) is None
        candidate = View(has_faults=has_faults, now_us=at_us, role=Role.CANDIDATE)
        return invariant.check(candidate, _oracle())

    assert "campaigns with damaged entries" in str(campaign(has_faults=True, at_us=9_000_000))
    assert campaign(has_faults=True, at_us=10_000_005) is None
    assert campaign(has_faults=False, at_us=9_000_000) is None


def test_durable_is_kept_fires_when_a_later_life_on_the_disk_has_less():
    invariant = DurableIsKept()
    assert invariant.check(View(durable_index=1), _oracle()) is None
    assert invariant.check(View(life=2, log=[(1, 10), (1, 11)], durable_index=1), _oracle()) is None
    assert "held entry 1 durably" in invariant.check(View(life=3, log=[(1, 10)], durable_index=0), _oracle())


def test_durable_is_kept_says_nothing_of_what_was_not_durable_or_not_committed():
    invariant = DurableIsKept()
    assert invariant.check(View(durable_index=2, committed_index=0), _oracle()) is None
    assert invariant.check(View(durable_index=2, is_cutting=True), _oracle()) is None
    assert invariant.check(View(life=2, log=[(1, 10)], durable_index=0), _oracle()) is None


def test_durable_is_kept_lets_a_doubted_member_be_without_what_lay_behind_its_mark_in_a_lost_file():
    def lost(*, doubted: bool, marked: int) -> str | None:
        invariant = DurableIsKept()
        assert invariant.check(View(), _oracle()) is None
        less = View(life=2, log=[(1, 10), (1, 11)], durable_index=1, doubted=doubted, tail_lost_behind=marked)
        return invariant.check(less, _oracle())

    assert lost(doubted=True, marked=1) is None
    assert lost(doubted=False, marked=1)
    assert lost(doubted=True, marked=2)


def test_durable_is_kept_lets_a_doubted_member_let_go_of_what_was_damaged_and_of_nothing_else():
    cut = View(log=[(1, 10)], durable_index=0, doubted=True)
    for faulty, doubted, is_allowed in (
        ((FAULTY,), True, True),
        ((FAULTY,), False, False),
        ((), True, False),
    ):
        invariant = DurableIsKept()
        assert invariant.check(View(durable_index=2, faulty_ranges=faulty), _oracle()) is None
        told = invariant.check(replace(cut, doubted=doubted), _oracle())
        assert (told is None) is is_allowed
        if is_allowed:
            assert invariant.check(cut, _oracle()) is None, "nor does it hold it afterwards"


def test_durable_is_kept_lets_a_doubted_member_lose_what_has_gone_with_the_last_entry_that_it_knows():
    short = View(life=2, log=[(1, 10), (1, 11)], durable_index=1, doubted=True)
    for faulty, doubted, is_allowed in (
        (FaultyRange(Index(0), Index(1), Pos(0), Pos(102)), True, True),
        (FaultyRange(Index(0), Index(1), Pos(0), Pos(102)), False, False),
        (FaultyRange(Index(0), Index(0), Pos(0), Pos(51)), True, False),
    ):
        invariant = DurableIsKept()
        assert invariant.check(View(durable_index=2), _oracle()) is None
        told = invariant.check(replace(short, doubted=doubted, faulty_ranges=(faulty,)), _oracle())
        assert (told is None) is is_allowed


def test_scrub_finds_damage_fires_after_a_whole_round_that_passed_it():
    invariant = ScrubFindsDamage()
    assert invariant.check(View(scrub_rounds=1, damage=("a",)), _oracle()) is None
    assert "does not know that a is damaged" in invariant.check(
        View(scrub_rounds=2, damage=("a",)), _oracle()
    )


def test_scrub_finds_damage_waits_for_a_whole_round_without_a_cut_in_it():
    invariant = ScrubFindsDamage()
    assert invariant.check(View(scrub_rounds=1, damage=("a",)), _oracle()) is None
    assert invariant.check(View(scrub_rounds=1, damage=("a", "b")), _oracle()) is None
    assert invariant.check(View(scrub_rounds=2, damage=("b",)), _oracle()) is None
    assert invariant.check(View(scrub_rounds=3, log_generation=1, damage=("b",)), _oracle()) is None
    assert "b is damaged" in invariant.check(View(scrub_rounds=4, log_generation=1, damage=("b",)), _oracle())


def test_read_is_fresh_fires_on_an_answer_that_misses_an_acknowledged_entry_or_the_end_of_its_queue():
    def read(applied_index: int, max_offset: int) -> str | None:
        oracle = _oracle()
        oracle.read_index_reads.append(ReadIndexRead("n1", 2, KEY, 3, True, applied_index, max_offset))
        return ReadIsFresh().check(View(), oracle)

    assert read(2, 3) is None
    assert "n1 answers with entries up to 1; when it was asked, entry 2 was acknowledged" in str(read(1, 3))
    assert "ends at 2; when it was asked, 3 messages of it were acknowledged" in str(read(2, 2))
