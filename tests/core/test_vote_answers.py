"""One request for a vote to one member in a known state, and the whole Output."""

from random import Random

import pytest
from memory_log import MemoryLog

from dledger.core.member import Member
from dledger.core.member_config import MemberConfig
from dledger.core.messages import HeartBeatRequest, VoteRequest, VoteResponse, VoteResult
from dledger.core.output import Envelope, HardState, Output, Role, RoleChange
from dledger.entry import Index, Term

CONFIG = MemberConfig(self_id="n1", peers=("n0", "n1", "n2"))


def _member(*, vote_for=None, durable_index=None, doubted=False, can_vote=True):
    """In term 2, its log ends with entry 1 of term 2."""
    log = MemoryLog([1, 2])
    return Member(
        CONFIG,
        log,
        HardState(7, Term(2), vote_for, doubted),
        Random(0),
        0,
        durable_index=log.ledger_end_index if durable_index is None else durable_index,
        can_vote=can_vote,
    )


def _request(term, *, end=(2, 1), pre_vote=False, candidate="n0"):
    return VoteRequest(Term(term), candidate, Term(end[0]), Index(end[1]), pre_vote)


def _response(request, result, *, term=2, doubted=False):
    return VoteResponse(Term(term), request.term, "n1", request.pre_vote, result, Term(2), Index(1), doubted)


def _only(request, result, **fields):
    return Output(messages=(Envelope(request.candidate_id, _response(request, result, **fields)),))


REFUSALS = [
    (_request(1), VoteResult.REJECT_EXPIRED_VOTE_TERM),
    (_request(2, end=(1, 9)), VoteResult.REJECT_EXPIRED_LEDGER_TERM),
    (_request(2, end=(2, 0)), VoteResult.REJECT_SMALL_LEDGER_END_INDEX),
    (_request(3, candidate="n9"), VoteResult.REJECT_UNKNOWN_LEADER),
]


@pytest.mark.parametrize(("request_", "result"), REFUSALS, ids=lambda value: getattr(value, "name", None))
def test_a_refusal_changes_nothing(request_, result):
    assert _member().step(request_, 5) == _only(request_, result)


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_member_whose_group_is_not_formed_votes_for_nobody(pre_vote):
    request = _request(3, pre_vote=pre_vote)
    assert _member(can_vote=False).step(request, 5) == _only(request, VoteResult.REJECT_CANNOT_VOTE)


def test_no_vote_is_given_on_a_tail_that_was_read_back_and_not_synced():
    member, request = _member(durable_index=Index(0)), _request(3)
    assert member.step(request, 5) == _only(request, VoteResult.REJECT_CANNOT_VOTE)
    member.synced(Index(1), 6)
    assert member.step(request, 7).hard_state == HardState(9, Term(3), "n0", False)


def test_a_second_candidate_of_one_term_is_refused():
    request = _request(2, candidate="n2")
    assert _member(vote_for="n0").step(request, 5) == _only(request, VoteResult.REJECT_ALREADY_VOTED)


def test_the_same_candidate_is_granted_its_vote_again():
    request = _request(2)
    assert _member(vote_for="n0").step(request, 5) == _only(request, VoteResult.ACCEPT)


def test_a_granted_vote_leaves_when_it_is_saved():
    member, request = _member(), _request(3)
    assert member.step(request, 5) == Output(
        hard_state=HardState(9, Term(3), "n0", False),
        role_change=RoleChange(Role.FOLLOWER, Term(3), None, "voted for n0"),
    )
    assert member.hard_state_saved(9, 6) == _only(request, VoteResult.ACCEPT, term=3)


def test_a_pre_vote_changes_nothing_on_disk():
    member, request = _member(vote_for="n2"), _request(3, pre_vote=True)
    assert member.step(request, 5) == _only(request, VoteResult.ACCEPT)
    assert (member.curr_term, member.curr_vote_for) == (2, "n2")


def test_a_doubted_member_says_so():
    request = _request(3, pre_vote=True)
    assert _member(doubted=True).step(request, 5) == _only(request, VoteResult.ACCEPT, doubted=True)


def test_a_grant_held_for_a_term_that_is_over_never_leaves():
    member = _member()
    member.step(_request(3), 5)
    member.step(_request(4, candidate="n2"), 6)
    output = member.hard_state_saved(9, 7)
    assert output == Output(hard_state=HardState(11, Term(4), "n2", False))
    assert member.hard_state_saved(11, 8) == _only(_request(4, candidate="n2"), VoteResult.ACCEPT, term=4)


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_member_that_hears_its_leader_refuses_all_others_in_any_term(pre_vote):
    member, request = _member(), _request(9, pre_vote=pre_vote)
    member.step(HeartBeatRequest(Term(2), "n2", Index(-1), 1), 10)
    assert member.step(request, 1009) == _only(request, VoteResult.REJECT_ALREADY_HAS_LEADER)
    assert member.curr_term == 2


def test_silence_of_the_leader_ends_the_loyalty():
    member, request = _member(), _request(3, pre_vote=True)
    member.step(HeartBeatRequest(Term(2), "n2", Index(-1), 1), 10)
    assert member.step(request, 1010) == _only(request, VoteResult.ACCEPT)


def test_the_closed_connection_of_the_leader_ends_the_loyalty_until_it_is_heard_again():
    member, request = _member(), _request(3, pre_vote=True)
    member.step(HeartBeatRequest(Term(2), "n2", Index(-1), 1), 10)
    member.peer_disconnected("n2", 11)
    assert member.step(request, 12) == _only(request, VoteResult.ACCEPT)
    member.step(HeartBeatRequest(Term(2), "n2", Index(-1), 2), 13)
    assert member.step(request, 14) == _only(request, VoteResult.REJECT_ALREADY_HAS_LEADER)


def test_a_late_copy_of_the_request_that_made_the_leader_does_not_depose_it():
    member, request = _member(), _request(3)
    member.step(request, 5)
    member.hard_state_saved(9, 6)
    member.step(HeartBeatRequest(Term(3), "n0", Index(-1), 1), 7)
    assert member.step(request, 8) == _only(request, VoteResult.ACCEPT, term=3)
    assert member.leader_id == "n0"
