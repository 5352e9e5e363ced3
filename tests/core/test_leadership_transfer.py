"""Handing over: who is told and when, what a member makes of being told, and what its voters do."""

from itertools import pairwise

import pytest
from core_group import CoreGroup

from dledger.core.messages import TimeoutNow, VoteRequest, VoteResult
from dledger.core.output import AppendStatus, Role
from dledger.core.refusal import RefusalReason
from dledger.entry import Index, Term
from dledger.errors import DLedgerConfigError


def _led_by_n0(size=3, **settings):
    group = CoreGroup([f"n{number}" for number in range(size)], **settings)
    for node_id in group.ids:
        group.start(node_id)
    group.now_ms = 40
    group.tick("n0")
    group.settle()
    group.run(50)
    assert group.leader() == "n0"
    return group, group.nodes["n0"].up


def _hand_over(group, target):
    member = group.nodes["n0"].up
    assert member.check_transfer(target) is None
    group.carry_out("n0", member.transfer_leadership(target, "asked for", group.now_ms))


def _told(group, target):
    """What the leader has told its target, taken off its way."""
    link = group.links["n0", target]
    told = [message for message in link if isinstance(message, TimeoutNow)]
    for message in told:
        link.remove(message)
    return told


def test_leadership_goes_to_the_target_within_one_exchange_and_no_timeout():
    group, _ = _led_by_n0()
    _hand_over(group, "n2")
    group.settle()
    assert group.leader() == "n2"
    assert group.nodes["n0"].up.role is Role.FOLLOWER


def test_appends_under_way_are_acknowledged_before_the_target_is_told():
    group, member = _led_by_n0()
    group.hung.add("n1")
    group.append("n0", [b"body"], "a")
    _hand_over(group, "n1")
    group.settle()
    # n2 and the leader have committed it, but n1 does not hold it durably yet.
    assert group.nodes["n0"].results == [("a", AppendStatus.SUCCESS)]
    assert member.transfer_target == "n1"
    assert group.leader() == "n0"
    group.hung.clear()
    group.settle()
    assert group.leader() == "n1"
    assert group.nodes["n0"].results == [("a", AppendStatus.SUCCESS)]


def test_the_target_is_not_told_before_all_is_committed():
    group, _ = _led_by_n0(size=5)
    group.hung |= {"n0", "n2", "n3", "n4"}
    group.append("n0", [b"body"], "a")
    _hand_over(group, "n1")
    group.settle()
    assert _told(group, "n1") == []
    group.hung.clear()
    group.settle()
    assert group.leader() == "n1"
    assert group.nodes["n0"].results == [("a", AppendStatus.SUCCESS)]


def test_a_transfer_that_is_given_up_leaves_the_leader_as_it_was():
    group, member = _led_by_n0(transfer_timeout_ms=300)
    _hand_over(group, "n1")
    for _ in range(40):
        _told(group, "n1")
        group.settle()
        group.now_ms += 10
        group.tick("n0")
    assert member.transfer_target is None
    assert (member.role, member.curr_term) == (Role.LEADER, 1)
    assert member.check_append(1, 1) is None
    assert member.check_transfer("n2") is None


def test_what_was_told_before_newer_entries_is_dropped():
    group, member = _led_by_n0(transfer_timeout_ms=300)
    _hand_over(group, "n1")
    (late,) = _told(group, "n1")
    group.now_ms += 300
    group.tick("n0")
    group.append("n0", [b"body"], "a")
    group.settle()
    group.receive("n1", late)
    group.settle()
    assert (group.leader(), member.curr_term) == ("n0", 1)


def test_what_was_told_in_an_old_term_is_dropped():
    group, _ = _led_by_n0()
    _hand_over(group, "n1")
    group.settle()
    term = group.nodes["n1"].up.curr_term
    for told in ("n1", "n2"):
        group.receive(told, TimeoutNow(Term(1), "n0", group.nodes[told].log.ledger_end_index))
    group.settle()
    assert (group.leader(), group.nodes["n1"].up.curr_term) == ("n1", term)


def test_a_stranger_tells_nobody_to_campaign():
    group, member = _led_by_n0()
    group.receive("n1", TimeoutNow(Term(1), "n7", Index(0)))
    group.receive("n1", TimeoutNow(Term(1), "n2", Index(0)))
    group.settle()
    assert (member.role, member.curr_term) == (Role.LEADER, 1)


def test_a_member_whose_disk_is_full_does_not_take_over():
    group, member = _led_by_n0(transfer_timeout_ms=300)
    group.carry_out("n1", group.nodes["n1"].up.write_failed_no_space(True, group.now_ms))
    _hand_over(group, "n1")
    group.run(400)
    assert (member.role, member.curr_term) == (Role.LEADER, 1)
    assert member.transfer_target is None


def test_voters_that_hear_their_leader_grant_only_to_whom_it_hands_over():
    group, _ = _led_by_n0()
    for leadership_transfer, result in (
        (False, VoteResult.REJECT_ALREADY_HAS_LEADER),
        (True, VoteResult.ACCEPT),
    ):
        end = Term(1), Index(0)
        group.receive("n2", VoteRequest(Term(2), "n1", *end, False, leadership_transfer))
        group.save("n2")
        assert group.links["n2", "n1"].pop().vote_result is result


def test_one_that_lacks_entries_wins_no_vote_by_a_transfer():
    group, _ = _led_by_n0()
    group.receive("n2", VoteRequest(Term(2), "n1", Term(-1), Index(-1), False, leadership_transfer=True))
    group.save("n2")
    assert group.links["n2", "n1"].pop().vote_result is VoteResult.REJECT_EXPIRED_LEDGER_TERM


def test_a_member_that_leaves_hands_over_to_whoever_lacks_least():
    group, member = _led_by_n0()
    group.hung.add("n1")
    group.append("n0", [b"body"], "a")
    group.settle()
    group.carry_out("n0", member.leave(group.now_ms))
    group.settle()
    assert group.leader() == "n2"


def test_a_member_that_leaves_is_told_in_vain_to_lead():
    group, member = _led_by_n0(transfer_timeout_ms=300)
    group.carry_out("n1", group.nodes["n1"].up.leave(group.now_ms))
    _hand_over(group, "n1")
    group.run(400)
    assert (member.role, member.curr_term) == (Role.LEADER, 1)


def test_a_leader_that_leaves_before_it_is_ready_hands_over_as_soon_as_it_is():
    group = CoreGroup(["n0", "n1", "n2"])
    for node_id in group.ids:
        group.start(node_id)
    group.now_ms = 40
    group.tick("n0")
    for _ in range(2):  # the pre-vote, and the vote
        group.deliver("n0", "n1")
        group.save("n1")
        group.deliver("n1", "n0")
        group.save("n0")
    member = group.nodes["n0"].up
    assert (member.role, member.leader_ready) == (Role.LEADER, False)
    group.carry_out("n0", member.leave(group.now_ms))
    assert member.check_transfer("n1").reason is RefusalReason.LEADER_NOT_READY
    assert member.transfer_target is None
    group.run(50)
    assert group.leader() in ("n1", "n2")


def test_a_leader_without_followers_leaves_without_handing_over():
    group, member = _led_by_n0(size=1)
    group.carry_out("n0", member.leave(group.now_ms))
    assert member.transfer_target is None
    assert member.check_append(1, 1) is None


def test_refusals_say_what_to_do():
    group, member = _led_by_n0()
    assert member.check_transfer("n0").reason is RefusalReason.NO_SUCH_MEMBER
    assert group.nodes["n1"].up.check_transfer("n0").reason is RefusalReason.NOT_LEADER
    _hand_over(group, "n1")
    assert member.check_transfer("n2").reason is RefusalReason.LEADER_TRANSFERRING
    assert member.check_append(1, 1).reason is RefusalReason.LEADER_TRANSFERRING
    group.carry_out("n0", member.stop(group.now_ms))
    assert member.check_transfer("n2").reason is RefusalReason.STOPPED


def _led_by(group, leader):
    return lambda: group.leader() == leader


def test_a_preferred_leader_that_is_level_is_handed_over_to():
    group, _ = _led_by_n0(preferred_leader_ids=("n2",))
    group.run_until(_led_by(group, "n2"), ms_max=2_000)
    term = group.nodes["n2"].up.curr_term
    group.run(30_000)
    assert (group.leader(), group.nodes["n2"].up.curr_term) == ("n2", term)


def test_of_several_preferred_leaders_the_best_that_can_leads():
    group, _ = _led_by_n0(preferred_leader_ids=("n1", "n2"))
    group.disconnect("n0", "n1")
    group.disconnect("n1", "n2")
    group.crash("n1")
    group.run_until(_led_by(group, "n2"), ms_max=4_000)
    group.start("n1")
    group.connect("n1", "n0")
    group.connect("n1", "n2")
    group.run_until(_led_by(group, "n1"), ms_max=4_000)


def test_a_leader_that_is_preferred_keeps_the_leadership():
    group, member = _led_by_n0(preferred_leader_ids=("n0", "n1"))
    group.run(30_000)
    assert (group.leader(), member.curr_term) == ("n0", 1)


def test_a_preferred_leader_that_does_not_take_over_is_left_alone_for_ever_longer():
    group, member = _led_by_n0(preferred_leader_ids=("n1",))
    group.carry_out("n1", group.nodes["n1"].up.leave(group.now_ms))
    begun_ms, was_under_way = [], False
    while group.now_ms < 80_000:
        group.run(50)
        is_under_way = member.transfer_target is not None
        if is_under_way and not was_under_way:
            begun_ms.append(group.now_ms)
        was_under_way = is_under_way
    waits_s = [round((later - earlier) / 1000) for earlier, later in pairwise(begun_ms)]
    assert waits_s == [11, 21, 41]
    assert (group.leader(), member.curr_term) == ("n0", 1)


def test_a_member_that_says_its_disk_is_full_is_not_handed_over_to():
    group, member = _led_by_n0(preferred_leader_ids=("n1",))
    group.carry_out("n1", group.nodes["n1"].up.write_failed_no_space(True, group.now_ms))
    group.run(10_000)
    assert member.check_transfer("n1").reason is RefusalReason.NOT_FIT
    assert (group.leader(), member.curr_term) == ("n0", 1)


def test_what_a_member_said_of_its_disk_is_forgotten_with_that_disk():
    group, member = _led_by_n0()
    group.carry_out("n1", group.nodes["n1"].up.write_failed_no_space(True, group.now_ms))
    group.run(500)
    assert member.check_transfer("n1").reason is RefusalReason.NOT_FIT
    group.carry_out("n0", member.peer_shown("n1", b"another", 9, group.now_ms))
    refusal = member.check_transfer("n1")
    assert refusal is None or refusal.reason is not RefusalReason.NOT_FIT


def test_a_preferred_leader_must_be_a_member():
    with pytest.raises(DLedgerConfigError, match="'n7'"):
        _led_by_n0(preferred_leader_ids=("n7",))


def test_a_leader_whose_damage_nobody_can_repair_lets_another_lead():
    group, member = _led_by_n0()
    group.nodes["n0"].log.has_faults = True
    group.run(2000)
    assert group.leader() == "n0", "it may yet be repaired"
    member.damage_stays()
    group.run(50)
    assert group.leader() in ("n1", "n2")


def test_a_leader_whose_damage_is_repaired_after_all_leads_on():
    group, member = _led_by_n0()
    member.damage_stays()
    group.run(2000)
    assert (member.role, member.curr_term) == (Role.LEADER, 1)


def test_others_that_are_damaged_as_well_are_asked_ever_more_rarely():
    group, member = _led_by_n0(transfer_timeout_ms=300)
    for node in group.nodes.values():
        node.log.has_faults = True
    member.damage_stays()
    begun = []
    for _ in range(4000):
        if member.transfer_target is not None and (not begun or group.now_ms - begun[-1] > 400):
            begun.append(group.now_ms)
        group.run(10)
    assert (member.role, member.curr_term) == (Role.LEADER, 1)
    assert len(begun) == 3
    assert [later - earlier >= 10_000 for earlier, later in pairwise(begun)] == [True, True]


def test_a_member_that_leaves_asks_another_where_the_first_does_not_take_over():
    group, member = _led_by_n0()
    group.nodes["n1"].log.has_faults = True
    group.carry_out("n0", member.leave(group.now_ms))
    group.run_until(lambda: group.leader() == "n2")


def test_a_leader_with_damage_asks_another_where_the_first_does_not_take_over():
    group, member = _led_by_n0()
    for node_id in ("n0", "n1"):
        group.nodes[node_id].log.has_faults = True

    def told_that_it_stays():
        if group.leader() == "n0":
            member.damage_stays()
        return group.leader() == "n2"

    group.run_until(told_that_it_stays, 60_000)
