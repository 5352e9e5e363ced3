"""What a leader owes: counted commits, one answer per append, and going when it has no ground to lead."""

from core_group import CoreGroup

from dledger.core.messages import (
    HeartBeatRequest,
    PushRequest,
    PushResponse,
    PushResult,
    PushType,
    VoteRequest,
    VoteResult,
)
from dledger.core.output import AppendStatus, Batch, Completion, Output, Role
from dledger.core.refusal import Refusal, RefusalReason
from dledger.entry import Index, Term

SUCCESS, UNKNOWN = AppendStatus.SUCCESS, AppendStatus.UNKNOWN


def _leader(size=3, **settings):
    group = CoreGroup([f"n{number}" for number in range(size)], **settings)
    for node_id in group.ids:
        group.start(node_id)
    group.now_ms = 40
    group.tick("n0")
    group.settle()
    group.run(50)
    assert group.leader() == "n0"
    return group, group.nodes["n0"].up


def _ack(group, peer, index):
    """As the peer would say it for the newest push on its way."""
    sequence = group.links["n0", peer][-1].sequence
    return PushResponse(
        PushType.APPEND, Term(1), peer, sequence, PushResult.SUCCESS, Index(index), Index(0), Index(index)
    )


def _quiet_append(group, closure):
    """The Output of the last append() without its pushes."""
    log, member = group.nodes["n0"].log, group.nodes["n0"].up
    batch = log.append([b"body"], member.curr_term)
    group.carry_out("n0", member.append(batch, closure, group.now_ms))


def test_an_append_is_acknowledged_when_a_majority_holds_it_durably():
    group, member = _leader()
    _quiet_append(group, "a")
    assert member.synced(Index(1), group.now_ms) == Output()
    assert member.step(_ack(group, "n1", 1), group.now_ms) == Output(
        committed_index=Index(1), completions=(Completion("a", SUCCESS),)
    )


def test_two_followers_are_a_majority_without_the_leaders_own_disk():
    group, member = _leader()
    _quiet_append(group, "a")
    assert member.step(_ack(group, "n1", 1), group.now_ms) == Output()
    assert member.step(_ack(group, "n2", 1), group.now_ms) == Output(
        committed_index=Index(1), completions=(Completion("a", SUCCESS),)
    )


def test_one_acknowledgement_completes_all_appends_that_it_covers():
    group, member = _leader()
    for closure in ("a", "b", "c"):
        _quiet_append(group, closure)
    member.synced(Index(3), group.now_ms)
    assert member.step(_ack(group, "n1", 2), group.now_ms) == Output(
        committed_index=Index(2), completions=(Completion("a", SUCCESS), Completion("b", SUCCESS))
    )


def test_an_append_that_waits_too_long_ends_as_unknown_and_may_still_be_committed():
    group, member = _leader(check_quorum_ms=60_000, wait_ack_ms_max=2500)
    _quiet_append(group, "a")
    group.now_ms += 2500
    output = member.tick(group.now_ms)
    assert output.completions == (Completion("a", UNKNOWN),)
    group.carry_out("n0", output)
    member.synced(Index(1), group.now_ms)
    output = member.step(_ack(group, "n2", 1), group.now_ms)
    assert (output.committed_index, output.completions) == (1, ())


def test_stepping_down_ends_all_pending_appends_at_once_as_unknown():
    group, member = _leader()
    for closure in ("a", "b"):
        _quiet_append(group, closure)
    output = member.step(HeartBeatRequest(Term(2), "n1", Index(0), 1), group.now_ms)
    assert output.completions == (Completion("a", UNKNOWN), Completion("b", UNKNOWN))
    assert output.role_change is not None
    assert (output.role_change.role, output.role_change.leader_id) == (Role.FOLLOWER, "n1")
    assert member.peer_watermarks_by_term == {}


def test_a_sync_that_ends_after_stepping_down_still_counts_as_durable():
    group, member = _leader()
    _quiet_append(group, "a")
    member.step(HeartBeatRequest(Term(2), "n1", Index(0), 1), group.now_ms)
    member.synced(Index(1), group.now_ms)
    assert member.durable_index == 1


def test_refusals_name_cause_value_and_limit():
    group, member = _leader(pending_size_max=100)
    assert member.check_append(101, 1) is None  # while nothing waits, or it would be refused for ever
    _quiet_append(group, "a")
    assert member.check_append(60, 2) == Refusal(
        RefusalReason.LEADER_PENDING_FULL,
        "52 bytes wait for a majority, 60 more in 2 entries are above the limit of 100",
    )
    assert group.nodes["n1"].up.check_append(1, 1) == Refusal(
        RefusalReason.NOT_LEADER, "n1 is FOLLOWER in term 1, the leader is n0"
    )


def test_batches_that_wait_are_limited_too():
    group, member = _leader(pending_count_max=2)
    _quiet_append(group, "a")
    assert member.check_append(1, 1) is None
    _quiet_append(group, "b")
    assert member.check_append(1, 1) == Refusal(
        RefusalReason.LEADER_PENDING_FULL, "2 appends wait for a majority, limit 2"
    )
    group.settle()
    assert member.check_append(1, 1) is None


def test_a_leader_refuses_until_an_entry_of_its_own_term_is_committed():
    group = CoreGroup(("n0", "n1", "n2"))
    for node_id in group.ids:
        group.start(node_id)
    group.now_ms = 40
    group.tick("n0")
    while group.nodes["n0"].up.role is not Role.LEADER:
        for node_id in group.ids:
            group.save(node_id)
        for (sender, to), link in group.links.items():
            if link:
                group.deliver(sender, to)
    assert not group.nodes["n0"].up.leader_ready
    assert group.nodes["n0"].up.check_append(1, 1).reason is RefusalReason.LEADER_NOT_READY
    group.settle()
    assert group.nodes["n0"].up.leader_ready


def test_a_leader_without_space_for_its_no_op_goes():
    group = CoreGroup(("n0", "n1", "n2"))
    group.full.add("n0")
    reasons = []
    group.trace = lambda _, output: reasons.append(output.role_change and output.role_change.reason)
    for node_id in group.ids:
        group.start(node_id)
    group.now_ms = 40
    group.tick("n0")
    group.settle()
    assert "no space for the no-op of its term" in reasons
    assert group.run_until(lambda: group.leader() in ("n1", "n2")) < 3000


def test_a_leader_whose_disk_hangs_gives_way_to_a_peer_that_holds_all_it_has():
    group, member = _leader(stalled_sync_ms=2000, check_quorum_ms=1000)
    group.hung.add("n0")
    group.append("n0", [b"a"], "a")
    assert group.run_until(lambda: member.committed_index == 1) == 10  # the others are a majority
    assert group.run_until(lambda: member.role is not Role.LEADER) == 1990
    assert member.disk_obstacle == "the own disk hangs: no sync completed for 2000 ms, limit 2000 ms"
    assert group.run_until(lambda: group.leader() in ("n1", "n2")) <= 20
    assert group.nodes["n0"].results == [("a", SUCCESS)]


def test_a_leader_whose_disk_hangs_falls_silent_if_nobody_is_level():
    group, member = _leader(stalled_sync_ms=2000, check_quorum_ms=1000)
    group.hung |= {"n0", "n1"}
    group.crash("n2")
    group.append("n0", [b"a"], "a")
    lasted_ms = group.run_until(lambda: member.role is not Role.LEADER)
    assert 2000 + 1000 - 150 <= lasted_ms <= 3010


def test_nobody_campaigns_while_all_disks_hang_and_one_leads_when_they_go_on():
    group, member = _leader(stalled_sync_ms=2000, check_quorum_ms=1000)
    group.hung |= set(group.ids)
    group.append("n0", [b"a"], "a")
    group.run(8000)
    assert {node.up.curr_term for node in group.nodes.values()} == {1}
    assert member.role is Role.FOLLOWER
    group.hung.clear()
    assert group.run_until(lambda: group.leader() is not None) <= 3000
    assert member.disk_obstacle is None


def _write_fails(group, node_id):
    group.full.add(node_id)
    group.carry_out(node_id, group.nodes[node_id].up.write_failed_no_space(True, group.now_ms))


def test_a_leader_without_space_gives_way_to_a_peer_that_has_some():
    group, member = _leader(5)
    group.full.add("n1")
    _write_fails(group, "n0")
    # Asked by one heartbeat, known by the next.
    assert group.run_until(lambda: member.role is not Role.LEADER) <= 310
    assert group.run_until(lambda: group.leader() in ("n2", "n3", "n4")) <= 20
    leader = group.leader()
    group.run(5000)
    assert group.leader() == leader
    assert group.nodes[leader].up.curr_term == 2


def test_a_leader_without_space_stays_where_a_majority_has_none():
    group, member = _leader()
    group.full.add("n1")
    _write_fails(group, "n0")
    group.run(5000)
    assert (group.leader(), member.curr_term) == ("n0", 1)
    group.full.discard("n1")
    group.carry_out("n1", group.nodes["n1"].up.write_failed_no_space(False, group.now_ms))
    assert group.run_until(lambda: group.leader() in ("n1", "n2")) <= 320


def test_a_leader_without_space_hands_over_to_another_if_the_first_does_not_take_over():
    group, _ = _leader()
    group.nodes["n1"].log.has_faults = True
    _write_fails(group, "n0")
    assert group.run_until(lambda: group.leader() == "n2") <= 310 + 1000 + 20
    assert group.nodes["n2"].up.curr_term == 2


def test_a_leader_without_space_asks_again_those_who_did_not_take_over():
    group, member = _leader(transfer_timeout_ms=300, preferred_leader_retry_ms_min=3000)
    for peer in ("n1", "n2"):
        group.nodes[peer].log.has_faults = True
    _write_fails(group, "n0")
    group.run(310 + 2 * 300 + 500)
    assert (member.role, member.transfer_target) == (Role.LEADER, None)
    assert group.run_until(lambda: member.transfer_target == "n1") <= 2500
    group.nodes["n1"].log.has_faults = False
    assert group.run_until(lambda: group.leader() == "n1") <= 200


def test_a_leader_leads_on_while_no_disk_has_space_and_terms_do_not_rise():
    group, member = _leader()
    group.full |= {"n1", "n2"}
    _write_fails(group, "n0")
    group.run(20_000)
    assert (group.leader(), member.curr_term) == ("n0", 1)
    assert member.check_append(1, 1).reason is RefusalReason.DISK_FULL
    assert [node.up.disk_obstacle for node in group.nodes.values()] == ["no space on the own disk"] * 3
    group.carry_out("n0", member.write_failed_no_space(False, group.now_ms))
    assert member.check_append(1, 1) is None


def test_space_that_was_found_before_the_leader_asked_proves_nothing():
    group, member = _leader(transfer_timeout_ms=300, preferred_leader_retry_ms_min=100)
    for peer in ("n1", "n2"):
        group.nodes[peer].log.has_faults = True  # they prove that they have space, and do not take over
    member.set_low_space("the disk is 91.0 % full, the limit is 90 %")
    group.run(310 + 2 * 300 + 50)
    member.set_low_space(None)
    group.run(500)
    for peer in ("n1", "n2"):
        group.nodes[peer].log.has_faults = False
    group.full |= {"n1", "n2"}
    _write_fails(group, "n0")
    group.run(5000)
    assert (group.leader(), member.curr_term) == ("n0", 1)


def test_a_leader_without_space_waits_until_the_other_holds_all_that_it_has():
    group, member = _leader()
    group.hung |= {"n1", "n2"}
    group.append("n0", [b"a"], "a")
    _write_fails(group, "n0")
    group.run(500)
    assert member.role is Role.LEADER
    group.hung.clear()
    group.run(20)  # the others have proved meanwhile that they have space
    assert member.role is Role.FOLLOWER
    assert group.nodes["n0"].results == [("a", SUCCESS)]


def test_a_leader_that_takes_no_more_writes_gives_way_to_a_peer_that_does():
    group, member = _leader()
    member.set_low_space("the disk is 91.0 % full, the limit is 90 %")
    assert group.run_until(lambda: group.leader() in ("n1", "n2")) <= 310 + 20
    group.run(5000)
    assert group.nodes[group.leader()].up.curr_term == 2
    assert member.role is Role.FOLLOWER


def test_heartbeats_wait_for_no_sync():
    group, member = _leader()
    _quiet_append(group, "a")
    beats = 0
    for _ in range(30):
        group.now_ms += 10
        output = member.tick(group.now_ms)
        beats += sum(isinstance(item.message, HeartBeatRequest) for item in output.messages)
    assert beats == 2 * 2


def test_an_answer_to_an_old_round_is_no_fresh_contact():
    group, member = _leader()
    first_round = []
    for _ in range(16):
        group.now_ms += 10
        group.carry_out("n0", member.tick(group.now_ms))
    for _ in range(len(group.links["n0", "n1"])):
        group.deliver("n0", "n1")
    first_round = list(group.links["n1", "n0"])
    for _ in range(150):
        group.now_ms += 10
        group.carry_out("n0", member.tick(group.now_ms))
        for message in first_round:
            group.receive("n0", message)  # again and again, as from a buffer
        if member.role is not Role.LEADER:
            break
    assert member.role is Role.FOLLOWER


def test_a_group_of_one_commits_what_is_on_its_own_disk():
    group, member = _leader(size=1)
    log = group.nodes["n0"].log
    batch = log.append([b"a"], Term(1))
    assert batch == Batch(Index(1), Index(1), Term(1), 49)
    assert member.append(batch, "a", group.now_ms) == Output()
    assert member.synced(Index(1), group.now_ms) == Output(
        committed_index=Index(1), completions=(Completion("a", SUCCESS),)
    )


def test_stopped_means_stopped():
    group, member = _leader()
    _quiet_append(group, "a")
    assert member.stop(group.now_ms).completions == (Completion("a", UNKNOWN),)
    assert member.check_append(1, 1).reason is RefusalReason.STOPPED
    assert member.tick(group.now_ms + 10_000) == Output()
    assert member.stop(group.now_ms) == Output()


def test_a_group_of_one_leads_on_after_standing_still():
    group, member = _leader(1)
    group.now_ms += 60_000
    group.tick("n0")
    assert member.role is Role.LEADER


def _with_one_of_its_own(full=()):
    """A leader with entry 1, that nobody has and nobody is being sent."""
    group, member = _leader()
    for peer in full:
        group.full.add(peer)
        group.carry_out(peer, group.nodes[peer].up.write_failed_no_space(True, group.now_ms))
    group.run(500)
    for peer in ("n1", "n2"):
        group.disconnect("n0", peer)
    _quiet_append(group, "a")
    return group, member


def test_a_leader_that_cannot_read_what_only_it_has_lets_go_of_that_and_of_leading():
    group, member = _with_one_of_its_own()
    output = member.nobody_has(Index(0), Index(1), group.now_ms)
    assert output.completions == (Completion("a", UNKNOWN),)
    assert output.role_change is not None
    assert output.role_change.reason == "entry 1 is damaged here, and nobody else has it"
    group.carry_out("n0", output)
    assert _vote_for_less(group, member) is VoteResult.ACCEPT


def _vote_for_less(group, member):
    """n0's answer to a candidate that has no more than entry 0."""
    request = VoteRequest(Term(2), "n1", Term(1), Index(0), True)
    (envelope,) = member.step(request, group.now_ms).messages
    return envelope.message.vote_result


def test_what_was_let_go_of_counts_again_once_it_is_acknowledged_to_another_leader():
    group, member = _with_one_of_its_own()
    group.carry_out("n0", member.nobody_has(Index(1), Index(1), group.now_ms))
    log = group.nodes["n0"].log
    push = PushRequest(
        PushType.COMPARE, Term(2), "n2", Index(1), log.term_at(Index(1)), log.chain_at(Index(1)), Index(0), 1
    )
    group.carry_out("n0", member.step(push, group.now_ms))
    assert member.durable_index == 0
    group.sync("n0")
    group.save("n0")
    group.carry_out("n0", member.peer_disconnected("n2", group.now_ms))
    assert _vote_for_less(group, member) is not VoteResult.ACCEPT


def test_what_was_let_go_of_counts_again_for_who_leads_with_it():
    group, member = _with_one_of_its_own()
    group.carry_out("n0", member.nobody_has(Index(1), Index(1), group.now_ms))
    group.sync("n0")
    for peer in ("n1", "n2"):
        group.connect("n0", peer)
        group.nodes[peer].log.has_faults = True  # they wait before they campaign
    group.run_until(lambda: group.leader() == "n0", 5000)
    group.crash("n1")
    group.run_until(lambda: group.committed()["n2"] >= 2, 5000)
    assert _vote_for_less(group, member) is VoteResult.REJECT_ALREADY_HAS_LEADER
    assert member._state.let_go_behind is None


def test_a_leader_lets_go_of_nothing_that_may_yet_be_committed():
    group, member = _with_one_of_its_own()
    now_ms = group.now_ms
    assert member.nobody_has(Index(0), Index(0), now_ms) == Output(), "the next one to be committed is sound"
    assert member.nobody_has(Index(2), Index(5), now_ms) == Output(), "likewise"
    group, member = _leader()
    _quiet_append(group, "a")
    assert member.nobody_has(Index(1), Index(1), group.now_ms) == Output(), "it is on its way"
    group, member = _with_one_of_its_own(full=["n1", "n2"])
    assert member.nobody_has(Index(1), Index(1), group.now_ms) == Output(), "nobody could lead"
    group, member = _with_one_of_its_own(full=["n1"])
    assert member.nobody_has(Index(1), Index(1), group.now_ms).role_change is not None


def test_a_leader_that_has_committed_nothing_of_its_term_lets_go_of_nothing():
    """What it has of other terms may be committed."""
    group = CoreGroup(("n0", "n1", "n2"))
    for node_id in group.ids:
        group.start(node_id)
    group.now_ms = 40
    group.tick("n0")
    member = group.nodes["n0"].up
    while member.role is not Role.LEADER:
        for pair, link in group.links.items():
            if link:
                group.deliver(*pair)
        for node_id in group.ids:
            group.save(node_id)
    for peer in ("n1", "n2"):
        group.disconnect("n0", peer)
    assert member.nobody_has(Index(0), Index(9), group.now_ms).role_change is None
