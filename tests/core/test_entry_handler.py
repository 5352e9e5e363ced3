"""One push to a follower in a known state, and the whole Output: what it takes, cuts, refuses and acknowledges."""

from random import Random

import pytest
from memory_log import MemoryLog
from msgspec.structs import replace

from dledger.core.member import Member
from dledger.core.member_config import MemberConfig
from dledger.core.messages import (
    NO_ROUND,
    HeartBeatRequest,
    HeartBeatResponse,
    PushRequest,
    PushResponse,
    PushResult,
    PushType,
    VoteRequest,
)
from dledger.core.output import NOTHING, BeginAnew, Cut, Envelope, HardState, Output, PushedEntries
from dledger.entry import Index, Pos, Term

CONFIG = MemberConfig(self_id="n1", peers=("n0", "n1", "n2"))
TERM = Term(4)


class Follower:
    """n1 in term 4, whose leader n0 has the log `theirs`."""

    def __init__(self, own, theirs, *, can_vote=True, doubted=False):
        self.log, self.theirs = MemoryLog(own), MemoryLog(theirs)
        self.member = Member(
            CONFIG,
            self.log,
            HardState(1, TERM, None, doubted),
            Random(0),
            0,
            durable_index=self.log.ledger_end_index,
            can_vote=can_vote,
        )
        self.sequence = 0
        self.member.step(HeartBeatRequest(TERM, "n0", Index(-1), 1), 1)

    def request(self, push_type, previous_index, *, last_index=None, committed_index=-1, **fields):
        self.sequence += 1
        theirs, payload = self.theirs, None
        if push_type is PushType.APPEND:
            entries = theirs.range_from(Index(previous_index + 1), 10_000)
            if last_index is not None and last_index < entries.last_index:
                entries = replace(entries, last_index=Index(last_index), size=0)
            payload = theirs.payload(entries)
        return PushRequest(
            push_type,
            TERM,
            "n0",
            Index(previous_index),
            theirs.term_at(Index(previous_index)),
            theirs.chain_at(Index(previous_index)),
            Index(committed_index),
            self.sequence,
            None,
            payload,
            **fields,
        )

    def push(self, push_type, previous_index, **fields):
        return self.step(self.request(push_type, previous_index, **fields))

    def step(self, request):
        output = self.member.step(request, 10)
        if output.cut is not None:
            self.log.carry_out(output.cut)
        for pushed in output.appends:
            self.log.append_range(pushed.payload, pushed.skip)
        return output

    def sync(self):
        return self.member.synced(self.log.ledger_end_index, 20)

    def answer(self, push_type, result=PushResult.SUCCESS, *, durable, end=None, conflict=(-1, -1)):
        response = PushResponse(
            push_type,
            TERM,
            "n1",
            self.sequence,
            result,
            Index(durable),
            Index(0),
            self.log.ledger_end_index if end is None else Index(end),
            Term(conflict[0]),
            Index(conflict[1]),
        )
        return Output(messages=(Envelope("n0", response),))


def test_entries_that_follow_are_taken_and_acknowledged_after_the_sync():
    follower = Follower([1], [1, 4, 4])
    request = follower.request(PushType.APPEND, 0)
    assert follower.step(request) == Output(appends=(PushedEntries(request.payload, 0),))
    assert follower.sync() == follower.answer(PushType.APPEND, durable=2)


def test_one_sync_acknowledges_all_that_came_before_it():
    follower = Follower([1], [1, 4, 4, 4])
    follower.push(PushType.APPEND, 0, last_index=1)
    follower.push(PushType.APPEND, 1, last_index=2)
    assert follower.sync() == follower.answer(PushType.APPEND, durable=2)


def test_what_came_after_the_sync_began_waits_for_the_next():
    follower = Follower([1], [1, 4, 4, 4])
    follower.push(PushType.APPEND, 0, last_index=1)
    end_index = follower.log.ledger_end_index
    follower.push(PushType.APPEND, 1, last_index=2)
    output = follower.member.synced(end_index, 20)
    assert output == follower.answer(PushType.APPEND, durable=1)


def test_entries_held_already_are_acknowledged_at_once():
    follower = Follower([1, 4, 4], [1, 4, 4])
    assert follower.push(PushType.APPEND, 0) == follower.answer(PushType.APPEND, durable=2)


def test_of_a_range_that_is_held_in_part_the_rest_is_taken():
    follower = Follower([1, 4], [1, 4, 4, 4])
    request = follower.request(PushType.APPEND, 0)
    assert follower.step(request) == Output(appends=(PushedEntries(request.payload, 1),))


def test_a_gap_is_refused_with_what_is_held():
    follower = Follower([1, 2, 2], [1, 2, 2, 4, 4])
    output = follower.push(PushType.APPEND, 3)
    assert output == follower.answer(
        PushType.APPEND, PushResult.INCONSISTENT_STATE, durable=-1, conflict=(2, 1)
    )


def test_a_previous_entry_of_another_term_is_refused_with_the_run_that_is_held():
    follower = Follower([1, 2, 2, 3], [1, 2, 4, 4])
    output = follower.push(PushType.COMPARE, 3)
    assert output == follower.answer(
        PushType.COMPARE, PushResult.INCONSISTENT_STATE, durable=-1, conflict=(3, 3)
    )


def test_a_previous_entry_of_the_same_term_with_another_chain_is_refused():
    follower = Follower([2, 3, 4], [1, 3, 4])
    output = follower.push(PushType.COMPARE, 1)
    assert output == follower.answer(
        PushType.COMPARE, PushResult.INCONSISTENT_STATE, durable=-1, conflict=(3, 1)
    )


def test_a_compare_acknowledges_no_more_than_what_was_compared():
    follower = Follower([1, 1, 1, 1], [1, 1, 1, 1])
    assert follower.push(PushType.COMPARE, 1) == follower.answer(PushType.COMPARE, durable=1)


def test_what_a_sync_makes_durable_of_another_leaders_entries_is_not_acknowledged():
    follower = Follower([1], [1, 4])
    follower.push(PushType.COMPARE, 0)
    follower.log.append([b"of an earlier leader"], Term(3))
    assert follower.sync() == NOTHING


def test_a_conflict_is_cut_from_where_it_begins_and_the_push_taken_after_the_cut():
    follower = Follower([1, 2, 2], [1, 2, 4, 4])
    request = follower.request(PushType.APPEND, 0)
    assert follower.step(request) == Output(cut=Cut(Index(2)))
    assert follower.member.cut_done(12) == Output(appends=(PushedEntries(request.payload, 1),))


def test_the_fork_of_a_damaged_copy_is_found_by_the_chain():
    follower = Follower([1], [1, 4, 4, 4])
    follower.log.append([b"another"], TERM)
    follower.log.append([b"body"], TERM)
    follower.sync()
    assert follower.push(PushType.APPEND, 0) == Output(cut=Cut(Index(1)))


def test_pushes_during_a_cut_wait_and_the_newest_is_answered():
    follower = Follower([1, 2], [1, 4, 4])
    follower.push(PushType.APPEND, 0)
    assert follower.push(PushType.COMPARE, 0) == NOTHING
    assert follower.member.cut_done(12) == follower.answer(PushType.COMPARE, durable=0)


def test_a_push_that_waited_for_a_cut_is_forgotten_when_its_leader_is_not_known_any_more():
    """Its request for the vote came late, and who gives one knows of no leader until the next heartbeat."""
    follower = Follower([1, 2], [1, 4, 4])
    follower.push(PushType.APPEND, 0)
    follower.push(PushType.COMPARE, 0)
    follower.member.step(VoteRequest(TERM, "n0", TERM, Index(2), pre_vote=False), 11)
    assert follower.member.leader_id is None
    assert follower.member.cut_done(12) == NOTHING


def test_a_push_of_an_earlier_term_that_waited_for_a_cut_is_forgotten():
    follower = Follower([1, 2], [1, 4, 4])
    follower.push(PushType.APPEND, 0)
    follower.member.step(HeartBeatRequest(Term(5), "n2", Index(-1), 1), 11)
    assert follower.member.cut_done(12) == NOTHING


def test_truncate_cuts_what_differs_behind_the_previous_entry():
    follower = Follower([1, 2, 2], [1, 4])
    fields = {"next_term": TERM, "next_chain": follower.theirs.chain_at(Index(1))}
    assert follower.push(PushType.TRUNCATE, 0, **fields) == Output(cut=Cut(Index(1)))
    assert follower.member.cut_done(12) == follower.answer(PushType.TRUNCATE, durable=0, end=0)


@pytest.mark.parametrize("names_next", [True, False])
def test_truncate_cuts_nothing_that_matches_nor_when_there_is_nothing_to_compare_with(names_next):
    follower = Follower([1, 4, 4], [1, 4])
    fields = {"next_term": TERM, "next_chain": follower.theirs.chain_at(Index(1))} if names_next else {}
    assert follower.push(PushType.TRUNCATE, 0, **fields) == follower.answer(PushType.TRUNCATE, durable=0)


def test_a_cut_at_or_below_the_commit_stops_the_member():
    follower = Follower([1, 2, 2], [1, 2, 2])
    follower.push(PushType.COMPARE, 2, committed_index=1)
    follower.theirs = MemoryLog([1, 4])
    output = follower.push(PushType.APPEND, 0)
    assert output.fatal is not None
    assert "another entry 1" in output.fatal
    assert output.cut is None
    assert follower.push(PushType.COMPARE, 0) == NOTHING
    assert follower.member.tick(5000) == NOTHING


def test_what_was_matched_with_this_leader_is_never_cut_for_it():
    follower = Follower([1, 2, 2], [1, 2, 2])
    follower.push(PushType.COMPARE, 2)
    follower.theirs = MemoryLog([1, 2, 4])
    assert follower.push(PushType.APPEND, 1).fatal is not None


def test_the_commit_covers_what_is_matched_and_in_the_log():
    follower = Follower([1, 1, 1], [1, 1, 1, 4])
    output = follower.push(PushType.COMPARE, 1, committed_index=3)
    assert output == replace(follower.answer(PushType.COMPARE, durable=1), committed_index=Index(1))
    output = follower.push(PushType.APPEND, 2, committed_index=3)
    assert output.committed_index == 2  # entry 3 is being appended only now
    assert follower.sync() == replace(follower.answer(PushType.APPEND, durable=3), committed_index=Index(3))


def test_a_commit_push_is_not_answered():
    follower = Follower([1, 1], [1, 1])
    follower.push(PushType.COMPARE, 1)
    assert follower.push(PushType.COMMIT, 1, committed_index=0) == Output(committed_index=Index(0))


def test_a_heartbeat_tells_the_commit_and_is_answered_at_once():
    follower = Follower([1, 1], [1, 1])
    follower.push(PushType.COMPARE, 1)
    assert follower.member.step(HeartBeatRequest(TERM, "n0", Index(9), 2), 11) == Output(
        messages=(Envelope("n0", HeartBeatResponse(TERM, "n1", 2, Index(1))),), committed_index=Index(1)
    )


def test_a_new_term_begins_with_nothing_matched():
    follower = Follower([1, 1], [1, 1])
    follower.push(PushType.COMPARE, 1)
    output = follower.member.step(HeartBeatRequest(Term(5), "n2", Index(1), 1), 11)
    assert output.committed_index is None


def test_a_leader_of_an_earlier_term_is_told_of_the_term():
    follower = Follower([1], [1, 4])
    request = replace(follower.request(PushType.APPEND, 0), term=Term(3))
    assert follower.step(request) == follower.answer(PushType.APPEND, PushResult.EXPIRED_TERM, durable=-1)


def test_a_heartbeat_of_an_earlier_term_is_no_round_of_this_one():
    """Its leader may lead again, and would take the answer for one to its newest round."""
    follower = Follower([1], [1, 4])
    output = follower.member.step(HeartBeatRequest(Term(3), "n0", Index(-1), 40), 11)
    assert output.messages == (Envelope("n0", HeartBeatResponse(TERM, "n1", NO_ROUND, Index(0))),)


def test_two_leaders_of_one_term_stop_the_member_that_hears_both():
    follower = Follower([1], [1])
    output = follower.member.step(HeartBeatRequest(TERM, "n2", Index(-1), 1), 11)
    assert output.fatal == "n2 and n0 both lead term 4"


def test_a_push_that_could_not_be_written_is_not_matched():
    follower = Follower([1], [1, 4])
    follower.member.step(follower.request(PushType.APPEND, 0), 10)  # and the caller finds no space
    assert follower.member.write_failed_no_space(True, 11) == follower.answer(
        PushType.APPEND, PushResult.DISK_FULL, durable=0
    )
    assert follower.push(PushType.APPEND, 0) == follower.answer(
        PushType.APPEND, PushResult.DISK_FULL, durable=0
    )
    follower.member.write_failed_no_space(False, 12)
    assert follower.push(PushType.APPEND, 0).appends


def test_doubt_ends_when_all_that_the_leader_counted_is_durable_here():
    follower = Follower([1], [1, 4, 4], doubted=True)
    follower.push(PushType.COMPARE, 0, committed_index=2)
    follower.push(PushType.APPEND, 0, last_index=1, committed_index=2)
    assert follower.sync().hard_state is None  # entry 2 was counted too, perhaps on the word of this member
    follower.push(PushType.APPEND, 1, committed_index=2)
    assert follower.sync().hard_state == HardState(2, TERM, None, False)
    assert not follower.member.doubted


def test_doubt_does_not_end_with_entries_of_earlier_terms():
    follower = Follower([1], [1, 2, 3], doubted=True)
    follower.push(PushType.COMPARE, 0)
    follower.push(PushType.APPEND, 0, committed_index=2)
    follower.sync()
    assert follower.member.doubted


def _install(follower, index, begin_pos=4096, **fields):
    return follower.push(PushType.INSTALL_BEGIN, index, begin_pos=Pos(begin_pos), **fields)


def test_it_begins_behind_an_entry_that_it_does_not_hold_and_answers_when_that_is_durable():
    follower = Follower([1], [1, 1, 2, 3])
    chain = follower.theirs.chain_at(Index(2))
    output = _install(follower, 2, committed_index=3)
    begin = BeginAnew(Index(2), Term(2), chain, Pos(4096))
    assert output == Output(cut=begin, committed_index=Index(2))
    assert follower.member.durable_index == 0
    answer = follower.member.cut_done(12)
    (envelope,) = answer.messages
    response = envelope.message
    assert (response.push_result, response.durable_index) == (PushResult.SUCCESS, 2)
    assert (response.ledger_begin_index, response.ledger_end_index) == (3, 2)


def test_it_does_not_begin_anew_behind_an_entry_that_it_holds():
    follower = Follower([1, 1, 2], [1, 1, 2, 3])
    output = _install(follower, 2, committed_index=2)
    assert output.cut is None
    assert output.committed_index == 2


def test_a_late_request_to_begin_anew_takes_nothing_that_has_come_since():
    follower = Follower([1, 1, 2, 3], [1, 1, 2, 3])
    follower.push(PushType.COMPARE, 3, committed_index=3)
    follower.log.ledger_begin_index = Index(3)
    output = _install(follower, 0, committed_index=0)
    assert (output.cut, output.fatal) == (None, None)
    assert output.messages[0].message.push_result is PushResult.INCONSISTENT_STATE


def test_to_begin_behind_another_entry_than_the_committed_one_stops_it():
    follower = Follower([1, 1, 2], [1, 1, 3])
    follower.push(PushType.COMPARE, 1, committed_index=1)
    follower.theirs = MemoryLog([2, 2])
    assert _install(follower, 1).fatal is not None


def test_without_entries_it_begins_where_entry_0_of_the_leader_lies():
    follower = Follower([], [])
    begin = BeginAnew(Index(-1), Term(-1), 0, Pos(4096))
    follower.theirs.begin_anew(begin)
    follower.theirs.append([b"first", b"second"], TERM)
    request = follower.request(PushType.APPEND, -1)
    assert follower.step(request) == Output(cut=begin)
    output = follower.member.cut_done(12)
    assert output.appends == (PushedEntries(request.payload, 0),), "without being asked again"
    follower.log.append_range(request.payload, 0)
    assert follower.sync() == follower.answer(PushType.APPEND, durable=1)


def test_damage_in_front_of_what_is_not_the_leaders_is_cut_once_the_doubt_is_saved():
    """Nobody can tell which of the damaged entries are the leader's, so this member may lose what it acknowledged."""
    member = Follower([1, 1, 2, 2], [1, 1, 3]).member
    assert member.cut_damaged(Index(1), "n0", 2) == Output(hard_state=HardState(2, TERM, None, True))
    assert member.cut_damaged(Index(1), "n0", 3) == NOTHING
    member.hard_state_saved(2, 4)
    assert member.cut_damaged(Index(1), "n0", 5) == Output(cut=Cut(Index(1)))
    assert member.doubted


def test_after_a_damaged_cut_the_leader_has_to_compare_anew_or_the_doubt_would_stay():
    follower = Follower([1, 1, 2, 2], [1, 1, 4, 4])
    member, log = follower.member, follower.log
    member.cut_damaged(Index(2), "n0", 2)
    member.hard_state_saved(2, 3)
    log.carry_out(member.cut_damaged(Index(2), "n0", 4).cut)
    assert follower.push(PushType.APPEND, 1) == NOTHING, "it waits for the cut"
    (refused,) = member.cut_done(5).messages
    assert refused.message.push_result is PushResult.INCONSISTENT_STATE
    follower.push(PushType.COMPARE, 1)
    assert follower.push(PushType.APPEND, 1).appends
    follower.sync()
    follower.push(PushType.COMMIT, 3, committed_index=3)
    assert not member.doubted


def test_nothing_damaged_is_cut_that_is_committed_or_for_another_leader():
    follower = Follower([1, 1, 2, 2], [1, 1, 2, 2])
    assert follower.member.cut_damaged(Index(1), "n2", 2) == NOTHING
    follower.push(PushType.COMPARE, 1, committed_index=1)
    assert follower.member.cut_damaged(Index(1), "n0", 3) == NOTHING
    assert not follower.member.doubted
