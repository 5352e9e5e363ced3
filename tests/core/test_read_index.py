"""A read that must not be stale: how far it has to reach, and who may say so."""

from core_group import CoreGroup
from msgspec.structs import replace

from dledger.core.messages import HeartBeatRequest, HeartBeatResponse, ReadIndexResponse
from dledger.core.output import AppendStatus, Output, ReadCompletion, Role
from dledger.core.refusal import Refusal, RefusalReason
from dledger.entry import Index, Term

LEADER_NOT_READY, NOT_LEADER = RefusalReason.LEADER_NOT_READY, RefusalReason.NOT_LEADER
NO_ANSWER, LEADER_CHANGED = RefusalReason.NO_ANSWER, RefusalReason.LEADER_CHANGED


def _group(size=3, **settings):
    """n0 leads, and its no-op, entry 0, is committed everywhere."""
    group = CoreGroup([f"n{number}" for number in range(size)], **settings)
    for node_id in group.ids:
        group.start(node_id)
    for a in group.ids:
        for b in group.ids:
            if a < b:
                group.connect(a, b)
    group.now_ms = 40
    group.tick("n0")
    group.settle()
    group.run_until(lambda: set(group.committed().values()) == {0}, 500)
    assert group.leader() == "n0"
    return group


def _rounds(group, peer="n1"):
    """Of the heartbeats on their way from n0."""
    return [message.round for message in group.links["n0", peer] if isinstance(message, HeartBeatRequest)]


def _reasons(group, node_id):
    return [
        (name, outcome.reason if isinstance(outcome, Refusal) else outcome)
        for name, outcome in group.nodes[node_id].reads
    ]


def test_a_leader_answers_when_a_majority_has_answered_a_round_that_began_after_the_question():
    group = _group()
    group.read("n0", "a")
    assert len(_rounds(group)) == 1, "it does not wait for the next heartbeat"
    group.deliver("n0", "n1")
    assert group.nodes["n0"].reads == []
    group.deliver("n1", "n0")
    assert group.nodes["n0"].reads == [("a", 0)]


def test_an_answer_to_an_earlier_round_confirms_nothing():
    group = _group()
    late = HeartBeatResponse(Term(1), "n1", group.nodes["n0"].up._rounds.newest_round, Index(0))
    group.read("n0", "a")
    assert group.nodes["n0"].up.step(late, group.now_ms) == Output()
    assert group.nodes["n0"].up.step(replace(late, round=late.round + 1), group.now_ms) == Output(
        read_completions=(ReadCompletion("a", Index(0)),)
    )


def test_an_answer_to_a_round_that_did_not_begin_confirms_nothing():
    """It was to one of an earlier term, in which the same member led."""
    group = _group()
    group.read("n0", "a")
    newest = group.nodes["n0"].up._rounds.newest_round
    answer = HeartBeatResponse(Term(1), "n1", newest + 1, Index(0))
    assert group.nodes["n0"].up.step(answer, group.now_ms) == Output()
    group.settle()
    assert group.nodes["n0"].reads == [("a", 0)]


def test_the_answer_to_a_heartbeat_of_an_earlier_term_confirms_nothing():
    """n0 leads again, and a heartbeat of its first term comes late to n1."""
    group = _group()
    leader = group.nodes["n0"].up
    group.receive("n0", HeartBeatResponse(Term(9), "n1", 1, Index(0)))
    while group.leader() != "n0" or leader.committed_index < 1:
        group.now_ms += 10
        group.tick("n0")
        group.settle()
    group.read("n0", "a")
    late = HeartBeatRequest(Term(1), "n0", Index(0), leader._rounds.newest_round)
    group.links["n0", "n1"].clear()
    group.links["n0", "n2"].clear()
    group.receive("n1", late)
    group.deliver("n1", "n0")
    assert group.nodes["n0"].reads == []
    group.run(150)
    assert group.nodes["n0"].reads == [("a", 1)]


def test_what_another_disk_has_answered_is_no_answer_of_the_voters_own():
    """Two processes are started as n1, one of them on the wrong disk."""
    group = _group()
    leader = group.nodes["n0"].up
    for link in group.links.values():
        link.clear()
    group.carry_out("n0", leader.peer_shown("n1", b"another", 9, group.now_ms))
    group.read("n0", "a")
    group.receive("n0", HeartBeatResponse(Term(1), "n1", leader._rounds.newest_round, Index(0)))
    assert group.nodes["n0"].reads == []
    group.carry_out("n0", leader.peer_shown("n1", b"n1", 9, group.now_ms))
    group.tick("n0")
    assert group.nodes["n0"].reads == []
    group.receive("n0", HeartBeatResponse(Term(1), "n1", leader._rounds.newest_round, Index(0)))
    assert group.nodes["n0"].reads == [("a", 0)]


def test_reads_that_come_while_a_round_is_under_way_share_the_next_one():
    group = _group()
    group.read("n0", "a")
    for name in ("b", "c", "d"):
        group.read("n0", name)
    first = _rounds(group)
    assert len(first) == 1
    group.deliver("n0", "n1")
    group.deliver("n1", "n0")
    assert group.nodes["n0"].reads == [("a", 0)]
    assert _rounds(group) == [first[0] + 1]
    group.settle()
    assert group.nodes["n0"].reads == [("a", 0), ("b", 0), ("c", 0), ("d", 0)]
    assert group.nodes["n0"].up._rounds.newest_round == first[0] + 1


def test_a_heartbeat_that_is_due_anyway_serves_the_reads_that_came_before_it():
    group = _group()
    group.read("n0", "a")
    group.read("n0", "b")
    group.links["n0", "n1"].clear()
    group.links["n0", "n2"].clear()
    group.now_ms += 150
    group.tick("n0")
    group.settle()
    assert group.nodes["n0"].reads == [("a", 0), ("b", 0)]


def test_a_round_that_was_lost_is_made_good_by_the_next_heartbeat():
    group = _group()
    group.read("n0", "a")
    group.links["n0", "n1"].clear()
    group.links["n0", "n2"].clear()
    group.run(150)
    assert group.nodes["n0"].reads == [("a", 0)]


def test_the_index_is_the_commit_at_the_question_not_at_the_answer():
    group = _group()
    group.append("n0", [b"x"], None)
    group.settle()
    group.read("n0", "a")
    group.append("n0", [b"y"], None)
    group.settle()
    assert group.nodes["n0"].up.committed_index == 2
    assert group.nodes["n0"].reads == [("a", 1)]


def test_a_group_of_one_answers_at_once_and_asks_nobody():
    group = _group(1)
    member = group.nodes["n0"].up
    assert member.read_index("a", group.now_ms) == Output(read_completions=(ReadCompletion("a", Index(0)),))


def test_a_leader_that_has_committed_nothing_in_its_term_refuses():
    group = _group()
    group.append("n0", [b"x"], "x")
    group.run(200)
    group.hung |= {"n1", "n2"}  # of the next no-op no majority holds anything
    group.disconnect("n0", "n1")
    group.disconnect("n0", "n2")
    group.now_ms += 45
    group.tick("n1")
    for _ in range(8):
        group.save("n1")
        group.save("n2")
        for link in (("n1", "n2"), ("n2", "n1")):
            while group.links[link]:
                group.deliver(*link)
    member = group.nodes["n1"].up
    assert member.role is Role.LEADER
    assert not member.leader_ready
    group.read("n1", "a")
    assert _reasons(group, "n1") == [("a", LEADER_NOT_READY)]


def test_a_leader_that_is_cut_off_refuses_within_its_limit_and_never_answers():
    group = _group()
    for peer in ("n1", "n2"):
        group.links["n0", peer].clear()
    member = group.nodes["n0"].up
    group.read("n0", "a")
    for _ in range(110):
        group.now_ms += 10
        group.tick("n0")
        group.links["n0", "n1"].clear()
        group.links["n0", "n2"].clear()
    assert member.role is Role.FOLLOWER
    (outcome,) = group.nodes["n0"].reads
    assert outcome[0] == "a"
    assert outcome[1].reason in (NO_ANSWER, LEADER_CHANGED)
    group.read("n0", "b")
    assert _reasons(group, "n0")[1:] == [("b", NOT_LEADER)]


def test_the_limit_names_who_was_not_answered_and_how_long():
    group = _group(read_index_ms_max=300)
    group.read("n0", "a")
    for _ in range(40):
        group.now_ms += 10
        group.tick("n0")
        group.links["n0", "n1"].clear()
        group.links["n0", "n2"].clear()
    assert group.nodes["n0"].up.role is Role.LEADER
    assert group.nodes["n0"].reads == [("a", Refusal(NO_ANSWER, "no majority has answered n0 within 300 ms"))]


def test_a_leader_that_steps_down_refuses_each_read_once():
    group = _group()
    for name in ("a", "b"):
        group.read("n0", name)
    group.receive("n0", HeartBeatResponse(Term(9), "n1", 1, Index(0)))
    assert _reasons(group, "n0") == [("a", LEADER_CHANGED), ("b", LEADER_CHANGED)]
    group.settle()
    group.run(3000)
    assert len(group.nodes["n0"].reads) == 2


def test_a_member_that_stops_refuses_what_waits_and_what_comes():
    group = _group()
    group.read("n0", "a")
    group.carry_out("n0", group.nodes["n0"].up.stop(group.now_ms))
    group.read("n0", "b")
    assert _reasons(group, "n0") == [("a", RefusalReason.STOPPED), ("b", RefusalReason.STOPPED)]


def test_a_follower_asks_its_leader():
    group = _group()
    group.append("n0", [b"x"], None)
    group.settle()
    group.read("n1", "a")
    group.settle()
    assert group.nodes["n1"].reads == [("a", 1)]


def test_reads_of_a_follower_that_come_while_it_asks_share_the_next_question():
    group = _group()
    for name in ("a", "b", "c"):
        group.read("n1", name)
    assert len(group.links["n1", "n0"]) == 1
    group.settle()
    assert group.nodes["n1"].reads == [("a", 0), ("b", 0), ("c", 0)]


def test_a_question_that_was_lost_is_asked_again():
    group = _group()
    group.read("n1", "a")
    group.links["n1", "n0"].clear()
    group.run(150)
    assert group.nodes["n1"].reads == [("a", 0)]


def test_an_answer_to_another_question_counts_for_none():
    group = _group()
    group.read("n1", "a")
    (request,) = group.links["n1", "n0"]
    wrong = ReadIndexResponse(Term(1), "n0", request.request_id ^ 1, Index(0))
    group.receive("n1", wrong)
    group.receive("n1", replace(wrong, request_id=request.request_id, member_id="n2"))
    assert group.nodes["n1"].reads == []
    group.receive("n1", replace(wrong, request_id=request.request_id))
    group.receive("n1", replace(wrong, request_id=request.request_id))
    assert group.nodes["n1"].reads == [("a", 0)]


def test_a_follower_hears_why_its_leader_refuses():
    group = _group()
    group.read("n1", "a")
    (request,) = group.links["n1", "n0"]
    group.receive("n1", ReadIndexResponse(Term(1), "n0", request.request_id, refusal=LEADER_NOT_READY))
    (read,) = group.nodes["n1"].reads
    assert read[1].reason is LEADER_NOT_READY
    assert read[1].text == "n0, asked as the leader of term 1, refuses: LEADER_NOT_READY"


def test_a_follower_whose_leader_says_nothing_refuses_within_its_limit():
    group = _group(read_index_ms_max=300)
    group.read("n1", "a")
    group.read("n1", "b")
    for _ in range(40):
        group.now_ms += 10
        group.tick("n1")
        group.links["n1", "n0"].clear()
    assert group.nodes["n1"].reads == [
        (name, Refusal(NO_ANSWER, "n0, the leader, has not answered within 300 ms")) for name in "ab"
    ]


def test_a_follower_that_loses_its_leader_refuses_each_read_once():
    group = _group()
    group.read("n1", "a")
    group.read("n1", "b")
    group.receive("n1", HeartBeatRequest(Term(5), "n2", Index(0), 1))
    assert _reasons(group, "n1") == [("a", LEADER_CHANGED), ("b", LEADER_CHANGED)]
    group.settle()
    assert len(group.nodes["n1"].reads) == 2


def test_a_member_without_a_leader_refuses_at_once():
    group = CoreGroup(["n0", "n1", "n2"])
    group.start("n0")
    group.read("n0", "a")
    assert group.nodes["n0"].reads == [
        ("a", Refusal(NOT_LEADER, "n0 is FOLLOWER in term 0, the leader is None"))
    ]


def test_a_leader_of_a_former_release_cannot_be_asked():
    group = CoreGroup(["n0", "n1", "n2"])
    group.wire_versions["n0"] = 2
    for node_id in group.ids:
        group.start(node_id)
    for a, b in (("n0", "n1"), ("n0", "n2"), ("n1", "n2")):
        group.connect(a, b)
    group.now_ms = 40
    group.tick("n0")
    group.settle()
    group.run(200)
    group.read("n1", "a")
    (read,) = group.nodes["n1"].reads
    assert read[1].reason is RefusalReason.MEMBER_OUTDATED
    assert not group.links["n1", "n0"]
    group.read("n0", "b")
    group.settle()
    assert group.nodes["n0"].reads == [("b", 0)], "any release answers heartbeats"


def test_what_a_learner_answers_confirms_nothing_and_a_learner_may_read():
    group = CoreGroup(["n0", "n1", "n2"], voters=["n0", "n1"])
    for node_id in group.ids:
        group.start(node_id)
    for a, b in (("n0", "n1"), ("n0", "n2"), ("n1", "n2")):
        group.connect(a, b)
    group.run_until(lambda: group.leader() is not None)
    leader = group.leader()
    other = {"n0": "n1", "n1": "n0"}[leader]
    wanted = group.nodes[leader].up.changes.add("n2", "")
    assert group.change_members(leader, wanted) is None
    group.hung.add("n2")  # it does not come to level, and so stays a learner
    group.run(500)
    assert "n2" in group.nodes[leader].up.membership.learners
    group.read(leader, "a")
    while group.links[leader, "n2"]:
        group.deliver(leader, "n2")
    while group.links["n2", leader]:
        group.deliver("n2", leader)
    assert group.nodes[leader].reads == []
    while group.links[leader, other]:
        group.deliver(leader, other)
    while group.links[other, leader]:
        group.deliver(other, leader)
    assert [name for name, _ in group.nodes[leader].reads] == ["a"]
    group.hung.clear()
    group.settle()
    group.read("n2", "b")
    group.settle()
    (read,) = group.nodes["n2"].reads
    assert read == ("b", group.nodes[leader].up.committed_index)


def test_reads_do_not_make_a_peer_look_silent_for_longer_than_it_is():
    group = _group()
    for number in range(20):
        group.read("n0", number)
        group.deliver("n0", "n1")
        group.deliver("n1", "n0")
    assert group.nodes["n0"].up._rounds.newest_round > 20
    assert group.nodes["n0"].up._rounds.silent_ms("n2") <= 150
    assert group.nodes["n0"].up.check_transfer("n2") is None


def test_an_acknowledged_append_of_a_new_leader_is_not_missed_by_the_old_one():
    group = _group()
    group.disconnect("n0", "n1")
    group.disconnect("n0", "n2")

    def elect_another():
        for node_id in ("n1", "n2"):
            group.save(node_id)
            group.sync(node_id)
            group.tick(node_id)
        for link in (("n1", "n2"), ("n2", "n1")):
            while group.links[link]:
                group.deliver(*link)

    for _ in range(60):
        group.now_ms += 10
        elect_another()
        if group.leader() != "n0":
            break
    new_leader = group.leader()
    assert new_leader != "n0"
    group.append(new_leader, [b"acknowledged"], "x")
    for _ in range(3):
        elect_another()
    assert group.nodes[new_leader].results == [("x", AppendStatus.SUCCESS)]
    old = group.nodes["n0"].up
    assert old.leader_ready, "it does not know yet"
    group.read("n0", "stale")
    group.now_ms += 2000
    group.tick("n0")
    assert _reasons(group, "n0") == [("stale", LEADER_CHANGED)]
