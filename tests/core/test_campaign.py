"""The own campaign of one member: what it asks, whose answers count, and what a leader starts with."""

from random import Random

from memory_log import MemoryLog

from dledger.core.member import Member
from dledger.core.member_config import MemberConfig
from dledger.core.membership import CurrentMembers, Membership, Seat, pack_membership
from dledger.core.messages import (
    HeartBeatRequest,
    PushRequest,
    PushType,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.core.output import NOTHING, Envelope, HardState, Output, Role, RoleChange
from dledger.entry import EntryKind, Index, Term

CONFIG = MemberConfig(self_id="n0", peers=("n0", "n1", "n2"))


def _member(**fields):
    log = MemoryLog([1])
    return Member(
        CONFIG, log, HardState(3, Term(1), None, False), Random(0), 0, durable_index=Index(0), **fields
    )


def _grant(voter, *, pre_vote, request_term=2, term=None, result=VoteResult.ACCEPT):
    own_term = term if term is not None else (1 if pre_vote else request_term)
    return VoteResponse(Term(own_term), Term(request_term), voter, pre_vote, result, Term(1), Index(0), False)


def _campaigning():
    """Has won the pre-vote of term 2 and saved its own vote."""
    member = _member()
    member.tick(40)
    member.step(_grant("n1", pre_vote=True), 41)
    member.hard_state_saved(4, 42)
    return member


def test_a_campaign_begins_with_a_pre_vote_that_saves_nothing():
    request = VoteRequest(Term(2), "n0", Term(1), Index(0), True)
    assert _member().tick(40) == Output(
        messages=(Envelope("n1", request), Envelope("n2", request)),
        role_change=RoleChange(Role.CANDIDATE, Term(1), None, "no leader known"),
    )


def test_a_won_pre_vote_takes_the_term_and_asks_when_it_is_saved():
    member = _member()
    member.tick(40)
    assert member.step(_grant("n1", pre_vote=True), 41) == Output(
        hard_state=HardState(4, Term(2), "n0", False),
        role_change=RoleChange(Role.CANDIDATE, Term(2), None, "won the pre-vote of term 2"),
    )
    request = VoteRequest(Term(2), "n0", Term(1), Index(0), False)
    assert member.hard_state_saved(4, 42) == Output(
        messages=(Envelope("n1", request), Envelope("n2", request))
    )


def test_a_new_leader_sends_heartbeats_compares_at_its_end_and_wants_a_no_op():
    heart_beat = HeartBeatRequest(Term(2), "n0", Index(-1), 1)
    chain = MemoryLog([1]).chain_at(Index(0))
    compare = PushRequest(PushType.COMPARE, Term(2), "n0", Index(0), Term(1), chain, Index(-1), 1)
    assert _campaigning().step(_grant("n1", pre_vote=False), 43) == Output(
        messages=(
            Envelope("n1", heart_beat),
            Envelope("n2", heart_beat),
            Envelope("n1", compare),
            Envelope("n2", compare),
        ),
        role_change=RoleChange(Role.LEADER, Term(2), "n0", "won the vote of term 2"),
        no_op_wanted=True,
    )


def test_a_late_pre_vote_is_no_vote():
    assert _campaigning().step(_grant("n2", pre_vote=True), 43) == NOTHING


def test_an_answer_to_an_earlier_round_is_no_answer_to_this_one():
    assert _campaigning().step(_grant("n1", pre_vote=False, request_term=1), 43) == NOTHING


def test_a_stranger_has_no_vote():
    assert _campaigning().step(_grant("n9", pre_vote=False), 43) == NOTHING


def test_the_same_voter_counts_once():
    config = MemberConfig(self_id="n0", peers=("n0", "n1", "n2", "n3", "n4"))
    member = Member(
        config, MemoryLog(), HardState(3, Term(1), None, False), Random(0), 0, durable_index=Index(-1)
    )
    member.tick(40)
    grant = VoteResponse(Term(1), Term(2), "n1", True, VoteResult.ACCEPT, Term(-1), Index(-1), False)
    assert member.step(grant, 41) == NOTHING
    assert member.step(grant, 42) == NOTHING


def test_a_higher_term_in_an_answer_is_taken_and_the_next_round_asks_for_one_above_it():
    member = _campaigning()
    refusal = _grant("n1", pre_vote=False, term=7, result=VoteResult.REJECT_EXPIRED_VOTE_TERM)
    assert member.step(refusal, 50) == Output(
        hard_state=HardState(5, Term(7), None, False),
        role_change=RoleChange(Role.FOLLOWER, Term(7), None, "heard a higher term"),
    )
    member.hard_state_saved(5, 51)
    asked = [member.tick(now_ms) for now_ms in range(60, 150, 10)]
    terms = {envelope.message.term for output in asked for envelope in output.messages}
    assert terms == {8}


def test_a_lost_round_is_repeated_within_90_ms():
    member = _member()
    member.tick(40)
    for voter in ("n1", "n2"):
        member.step(_grant(voter, pre_vote=True, result=VoteResult.REJECT_ALREADY_HAS_LEADER), 41)
    asked = [now_ms for now_ms in range(50, 140, 10) if member.tick(now_ms).messages]
    assert len(asked) >= 1
    assert 41 + CONFIG.repeat_round_ms_min <= asked[0] <= 131 + 10


def test_a_peer_that_comes_up_during_a_round_is_asked_at_once():
    member = _member()
    member.tick(40)
    request = VoteRequest(Term(2), "n0", Term(1), Index(0), True)
    assert member.peer_connected("n2", 45) == Output(messages=(Envelope("n2", request),))


def test_a_peer_whose_connection_closed_is_not_waited_for_until_it_answers():
    member = _member()
    member.peer_disconnected("n1", 1)
    member.peer_disconnected("n2", 2)
    member.tick(40)  # lost at once
    assert member.tick(45 + CONFIG.repeat_round_ms_max).messages
    refusal = _grant("n1", pre_vote=True, result=VoteResult.REJECT_ALREADY_HAS_LEADER)
    member.step(refusal, 140)  # late, by the connection of our own that is up
    member.tick(240)
    assert member.step(_grant("n1", pre_vote=True), 241).hard_state == HardState(4, Term(2), "n0", False)


def test_nobody_campaigns_who_cannot_vote():
    assert _member(can_vote=False).tick(5000) == NOTHING


def test_nobody_campaigns_whose_log_is_being_cut_or_has_no_space():
    member = _member()
    assert member.write_failed_no_space(True, 1) == NOTHING
    assert member.tick(40) == NOTHING
    assert member.tick(80) == NOTHING
    member.write_failed_no_space(False, 90)
    assert member.tick(100).role_change is not None


def test_a_log_with_a_later_term_than_the_hard_state_lifts_the_term():
    log = MemoryLog([1, 5])
    member = Member(CONFIG, log, HardState(3, Term(4), "n2", False), Random(0), 0, durable_index=Index(1))
    assert (member.curr_term, member.curr_vote_for) == (5, None)
    assert member.tick(0).hard_state == HardState(4, Term(5), None, False)


def test_a_follower_waits_for_its_leader_a_whole_timeout():
    member = _member()
    member.step(HeartBeatRequest(Term(1), "n1", Index(-1), 1), 10)
    quiet = [member.tick(now_ms) for now_ms in range(20, 1000, 10)]
    assert quiet == [NOTHING] * len(quiet)
    loud = [now_ms for now_ms in range(1000, 1630, 10) if member.tick(now_ms).role_change]
    assert len(loud) == 1


def test_after_its_own_standstill_a_follower_reads_before_it_calls_its_leader_silent():
    member = _member()
    member.step(HeartBeatRequest(Term(1), "n1", Index(-1), 1), 10)
    member.tick(20)
    assert member.tick(5000) == NOTHING
    assert member.step(HeartBeatRequest(Term(1), "n1", Index(-1), 40), 5001).role_change is None
    assert member.tick(5010) == NOTHING


def test_the_closed_connection_of_the_leader_is_evidence_at_once():
    member = _member()
    member.step(HeartBeatRequest(Term(1), "n1", Index(-1), 1), 10)
    member.tick(20)
    member.peer_disconnected("n1", 25)
    asked = [now_ms for now_ms in (30, 40, 50, 60, 70) if member.tick(now_ms).role_change]
    assert len(asked) == 1


def test_the_closed_connection_of_another_follower_is_no_evidence():
    member = _member()
    member.step(HeartBeatRequest(Term(1), "n1", Index(-1), 1), 10)
    member.tick(20)
    member.peer_disconnected("n2", 25)
    assert [member.tick(now_ms) for now_ms in (30, 40, 50, 60, 70)] == [NOTHING] * 5


def test_a_push_without_space_leaves_no_sync_to_wait_for():
    log = MemoryLog([1])
    theirs = MemoryLog([1, 2])
    member = Member(
        MemberConfig(self_id="n1", peers=("n0", "n1", "n2")),
        log,
        HardState(1, Term(2), None, False),
        Random(0),
        0,
        durable_index=Index(0),
    )
    entries = theirs.range_from(Index(1), 10_000)
    push = PushRequest(
        PushType.APPEND, Term(2), "n0", Index(0), Term(1), theirs.chain_at(Index(0)), Index(0), 1, None,
        theirs.payload(entries),
    )  # fmt: skip
    assert member.step(push, 10).appends
    member.write_failed_no_space(True, 11)
    member.write_failed_no_space(False, 1011)
    for now_ms in range(1020, 12_000, 10):
        member.tick(now_ms)
    assert member.role is Role.CANDIDATE


def test_a_member_says_what_its_lost_campaign_lacked_until_it_has_a_leader():
    member = _member()
    assert member.election_obstacle is None
    member.peer_disconnected("n1", 1)
    member.peer_disconnected("n2", 1)
    member.tick(40)
    assert member.election_obstacle == (
        "pre-vote of term 2: n0 ACCEPT; not answered: n1 (not connected), n2 (not connected)"
    )
    member.step(HeartBeatRequest(Term(2), "n1", Index(-1), 1), 50)
    assert member.election_obstacle is None


def _taken_out_by(disk: bytes = b""):
    """The only one that has the entry of term 1 that takes its vote; `disk`: by which it had one."""
    log = MemoryLog([1])
    seats = {peer: Seat() for peer in CONFIG.peers}
    log.formed = Membership({**seats, "n0": Seat(disk)})
    log.append([pack_membership(log.formed.without("n0"))], Term(1), EntryKind.MEMBERSHIP)
    return Member(
        CONFIG, log, HardState(3, Term(1), None, False), Random(0), 0, durable_index=Index(1),
        members=CurrentMembers("n0", b"", log),
    )  # fmt: skip


def test_who_is_taken_out_by_an_entry_that_may_not_be_committed_leads_if_nobody_else_does():
    """The entry may be on no other disk, and what comes behind it neither."""
    member = _taken_out_by()
    patience_ms = CONFIG.last_resort_patience_ms
    assert member.tick(patience_ms - 100) == member.tick(patience_ms - 1) == NOTHING
    request = VoteRequest(Term(2), "n0", Term(1), Index(1), True)
    assert member.tick(patience_ms).messages == (Envelope("n1", request), Envelope("n2", request))
    member.step(_grant("n1", pre_vote=True), patience_ms + 1)
    assert member.role is Role.CANDIDATE
    assert member.curr_term == Term(1), (
        "of two voters one is no majority, and its own grant counts for nothing"
    )
    member.step(_grant("n2", pre_vote=True), patience_ms + 2)
    member.hard_state_saved(4, patience_ms + 3)
    for voter in ("n1", "n2"):
        assert member.role is Role.CANDIDATE
        member.step(_grant(voter, pre_vote=False), patience_ms + 4)
    assert member.role is Role.LEADER


def test_who_never_was_a_voter_with_its_disk_does_not_campaign():
    member, patience_ms = _taken_out_by(disk=b"another"), CONFIG.last_resort_patience_ms
    assert member.tick(patience_ms) == member.tick(patience_ms + 100) == NOTHING
