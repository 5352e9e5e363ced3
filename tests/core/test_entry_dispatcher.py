"""The leader's side of one peer: what it sends next, whose answers count, and that it never gets stuck."""

import pytest
from core_group import CoreGroup
from hypothesis import given
from hypothesis import strategies as st
from memory_log import MemoryLog

from dledger.core.messages import PushRequest, PushResponse, PushResult, PushType
from dledger.core.output import NOTHING, BeginAnew, HardState
from dledger.entry import Index, Term

RESEND_MS = 1000


def _group(**settings):
    """n0 leads n1 and n2, everything is quiet."""
    group = CoreGroup(("n0", "n1", "n2"), **settings)
    for node_id in group.ids:
        group.start(node_id)
    group.now_ms = 40
    group.tick("n0")
    group.settle()
    group.run(50)
    assert group.leader() == "n0"
    return group


def _pushed(group, peer="n1"):
    """Pushes on their way to the peer: (type, first entry, last entry) or (type, previous index)."""
    pushes = []
    for message in group.links["n0", peer]:
        if isinstance(message, PushRequest):
            payload = message.payload
            what = (payload.first_index, payload.last_index) if payload else (message.previous_index,)
            pushes.append((message.push_type, *what))
    return pushes


def _drop(group):
    for link in group.links.values():
        link.clear()


def _response(
    group, result, *, sequence, durable=-1, end=0, term=1, push_type=PushType.APPEND, conflict=(-1, -1)
):
    conflict_term, conflict_index = conflict
    return PushResponse(
        *(push_type, Term(term), "n1", sequence, result, Index(durable), Index(0), Index(end)),
        *(Term(conflict_term), Index(conflict_index)),
    )


def test_entries_are_pipelined_within_the_window():
    group = _group(push_size_max=100, push_window_size=200)
    for number in range(5):
        group.append("n0", [b"x" * 50], number)  # 98 bytes with its header
    assert _pushed(group) == [(PushType.APPEND, index, index) for index in (1, 2, 3)]


def test_an_acknowledgement_opens_the_window():
    group = _group(push_size_max=100, push_window_size=200)
    for number in range(5):
        group.append("n0", [b"x" * 50], number)
    sequence = group.links["n0", "n1"][-1].sequence
    _drop(group)
    group.receive("n0", _response(group, PushResult.SUCCESS, sequence=sequence, durable=2, end=3))
    assert _pushed(group) == [(PushType.APPEND, 4, 5)]


def test_a_full_window_costs_no_look_into_the_log(monkeypatch):
    group = _group(push_size_max=100, push_window_size=200)
    for number in range(4):
        group.append("n0", [b"x" * 50], number)
    looked_up = []
    monkeypatch.setattr(group.nodes["n0"].log, "range_from", lambda *place: looked_up.append(place))
    group.append("n0", [b"x" * 50], 4)
    assert looked_up == []


def test_an_entry_larger_than_the_window_goes_alone():
    """Heartbeats wait behind what is on its way, so it is never the window and a large entry as well."""
    group = _group(push_size_max=100, push_window_size=300)
    for number, size in enumerate((50, 2000, 50)):
        group.append("n0", [b"x" * size], number)
    assert _pushed(group) == [(PushType.APPEND, 1, 1)]
    sequence = group.links["n0", "n1"][-1].sequence
    _drop(group)
    group.receive("n0", _response(group, PushResult.SUCCESS, sequence=sequence, durable=1, end=1))
    assert _pushed(group) == [(PushType.APPEND, 2, 3)]


def test_what_was_acknowledged_before_it_was_sent_again_leaves_the_window():
    group = _group(push_size_max=100, push_window_size=200)
    for number in range(5):
        group.append("n0", [b"x" * 50], number)

    def answer(result, push_type, conflict=(-1, -1)):
        sequence = group.links["n0", "n1"][-1].sequence
        _drop(group)
        held = _response(
            group, result, sequence=sequence, durable=3, end=3, push_type=push_type, conflict=conflict
        )
        group.receive("n0", held)

    answer(PushResult.SUCCESS, PushType.APPEND)
    group.disconnect("n0", "n1")
    group.connect("n0", "n1")
    answer(PushResult.INCONSISTENT_STATE, PushType.COMPARE)
    # Of the same term, so the whole run is suspect: the leader goes back to before it.
    answer(PushResult.INCONSISTENT_STATE, PushType.COMPARE, conflict=(1, 1))
    assert _pushed(group) == [(PushType.COMPARE, 0)]
    answer(PushResult.SUCCESS, PushType.COMPARE)
    answer(PushResult.SUCCESS, PushType.TRUNCATE)
    assert _pushed(group) == [(PushType.APPEND, 1, 2), (PushType.APPEND, 3, 4)]
    answer(PushResult.SUCCESS, PushType.APPEND)
    assert _pushed(group) == [(PushType.APPEND, 5, 5)]


def test_each_push_names_the_entry_before_it():
    group = _group(push_size_max=1)
    group.append("n0", [b"a", b"b"], "ab")
    log = group.nodes["n0"].log
    for message in group.links["n0", "n1"]:
        previous = Index(message.payload.first_index - 1)
        assert (message.previous_index, message.previous_term, message.previous_chain) == (
            previous,
            log.term_at(previous),
            log.chain_at(previous),
        )


@pytest.mark.parametrize("offset", [-1, 1])
def test_an_answer_to_what_was_never_asked_or_before_the_last_compare_does_not_count(offset):
    group = _group()
    group.nodes["n0"].up.peer_connected("n1", group.now_ms)
    asked = group.nodes["n0"].up.peer_connected("n1", group.now_ms).messages[0].message.sequence
    group.append("n0", [b"a"], "a")
    before = group.nodes["n0"].up.peer_watermarks_by_term[Term(1)]["n1"]
    group.receive("n0", _response(group, PushResult.SUCCESS, sequence=asked + offset, durable=1, end=1))
    assert group.nodes["n0"].up.peer_watermarks_by_term[Term(1)]["n1"] == before


def test_an_acknowledgement_of_an_earlier_term_does_not_count():
    group = _group()
    group.append("n0", [b"a"], "a")
    sequence = group.links["n0", "n1"][-1].sequence
    group.receive("n0", _response(group, PushResult.SUCCESS, sequence=sequence, durable=1, end=1, term=0))
    assert group.nodes["n0"].up.peer_watermarks_by_term[Term(1)]["n1"] == 0


def test_a_higher_term_in_an_answer_deposes_the_leader():
    group = _group()
    group.append("n0", [b"a"], "a")
    group.receive("n0", _response(group, PushResult.EXPIRED_TERM, sequence=1, term=2))
    assert group.nodes["n0"].up.curr_term == 2
    assert group.leader() is None
    assert [status.name for _, status in group.nodes["n0"].results] == ["UNKNOWN"]


def test_without_progress_it_compares_again():
    group = _group(check_quorum_ms=60_000)
    group.append("n0", [b"a"], "a")
    _drop(group)
    group.now_ms += RESEND_MS - 1
    group.tick("n0")
    assert not _pushed(group)
    group.now_ms += 1
    group.tick("n0")
    assert _pushed(group) == [(PushType.COMPARE, 1)]


def test_an_unanswered_compare_is_asked_again():
    group = _group(check_quorum_ms=60_000)
    group.disconnect("n0", "n1")
    group.now_ms += RESEND_MS
    group.tick("n0")
    _drop(group)
    group.now_ms += RESEND_MS
    group.tick("n0")
    assert _pushed(group) == [(PushType.COMPARE, 0)]


def test_a_connection_that_comes_back_is_compared_at_once():
    group = _group()
    group.disconnect("n0", "n1")
    group.connect("n0", "n1")
    assert _pushed(group) == [(PushType.COMPARE, 0)]


def test_nothing_is_pushed_before_the_compare_is_answered():
    group = _group()
    group.disconnect("n0", "n1")
    group.append("n0", [b"a"], "a")
    assert not _pushed(group)


def test_a_quiet_group_is_told_nothing_but_heartbeats():
    group = _group()
    assert group.nodes["n0"].up.tick(group.now_ms + 10) == NOTHING


def test_a_full_disk_is_asked_again_later():
    group = _group(check_quorum_ms=60_000)
    group.append("n0", [b"a"], "a")
    sequence = group.links["n0", "n1"][-1].sequence
    _drop(group)
    group.receive("n0", _response(group, PushResult.DISK_FULL, sequence=sequence))
    assert not _pushed(group)
    group.now_ms += RESEND_MS
    group.tick("n0")
    assert _pushed(group) == [(PushType.COMPARE, 1)]


def test_a_peer_that_lost_what_it_acknowledged_is_not_counted_for_it():
    group = _group()
    group.append("n0", [b"a"], "a")
    group.deliver("n0", "n1")
    group.sync("n1")
    group.deliver("n1", "n0")
    assert group.nodes["n0"].up.peer_watermarks_by_term[Term(1)]["n1"] == 1
    _drop(group)
    group.connect("n0", "n1")
    sequence = group.links["n0", "n1"][-1].sequence
    lost = _response(
        group,
        PushResult.INCONSISTENT_STATE,
        sequence=sequence,
        durable=-1,
        end=-1,
        push_type=PushType.COMPARE,
    )
    group.receive("n0", lost)
    group.sync("n0")
    assert group.nodes["n0"].up.peer_watermarks_by_term[Term(1)]["n1"] == -1
    assert group.nodes["n0"].up.committed_index == 0


def _group_of_logs(*logs):
    """n0 leads; whoever else holds what."""
    group = CoreGroup([f"n{number}" for number in range(len(logs))])
    for node_id, log in zip(group.ids, logs, strict=True):
        group.nodes[node_id].log = log
        group.start(node_id)
    group.now_ms = 40
    group.tick("n0")
    return group


@pytest.mark.parametrize("held", [0, 3, 5])
def test_a_peer_that_ends_before_the_leaders_first_entry_begins_where_the_leader_does(held):
    group = _group_of_logs(MemoryLog([1] * 10, begin_index=6), MemoryLog([1] * 10), MemoryLog([1] * held))
    group.run(300)
    assert group.leader() == "n0"
    log = group.nodes["n2"].log
    assert (log.ledger_begin_index, log.ledger_end_index) == (6, 10)
    assert group.nodes["n2"].up.committed_index == 10


def test_a_peer_that_parts_from_the_log_before_its_first_entry_begins_there_too():
    theirs = MemoryLog([0] * 4 + [1] * 9)
    group = _group_of_logs(MemoryLog([0] * 4 + [2] * 6, begin_index=7), MemoryLog([0] * 4 + [2] * 6), theirs)
    group.run(300)
    assert group.leader() == "n0"
    assert (theirs.ledger_begin_index, theirs.ledger_end_index) == (7, 10)


def test_a_peer_that_has_to_begin_anew_is_asked_with_pauses_until_it_has():
    logs = [MemoryLog([1] * 10, begin_index=6), MemoryLog([1] * 10, begin_index=6), MemoryLog([1] * 3)]
    group = _group_of_logs(*logs)
    group.crash("n2")
    group.run_until(lambda: group.leader() is not None)
    leader = group.leader()
    group.start("n2")
    group.connect(leader, "n2")
    asked = []

    def trace(node_id, output):
        if isinstance(output.cut, BeginAnew):
            group.hung.add(node_id)  # its disk does not finish
        asked.extend(
            envelope.message.push_type
            for envelope in output.messages
            if envelope.to == "n2" and isinstance(envelope.message, PushRequest)
        )

    group.trace = trace
    group.run(3000)
    assert group.leader() == leader
    assert asked.count(PushType.INSTALL_BEGIN) == 1
    assert 0 < len(asked) <= 6
    group.hung.clear()
    group.run(1200)
    assert group.nodes["n2"].up.committed_index == 10


def test_entries_deleted_before_they_were_sent_lead_back_to_the_question_where_to_begin():
    group = _group(push_size_max=1, push_window_size=1)
    group.hung.add("n1")
    for number in range(6):
        group.append("n0", [b"x"], number)
    group.run(50)
    leader = group.nodes["n0"]
    assert leader.up.committed_index == 6
    _drop(group)
    leader.log.ledger_begin_index = Index(5)
    group.hung.clear()
    group.run(2500)
    log = group.nodes["n1"].log
    assert (log.ledger_begin_index, log.ledger_end_index) == (5, 6)
    assert group.nodes["n1"].up.committed_index == 6


def test_a_begin_that_moves_while_a_question_is_on_its_way_is_no_trouble():
    group = _group()
    for number in range(6):
        group.append("n0", [b"x"], number)
    group.settle()
    group.run(50)
    group.crash("n2", keep=100)
    group.nodes["n2"].log.cut(3)
    group.start("n2")
    group.connect("n0", "n2")
    group.deliver("n0", "n2")  # COMPARE
    group.nodes["n0"].log.ledger_begin_index = Index(6)
    group.settle()
    group.run(1100)
    log = group.nodes["n2"].log
    assert (log.ledger_begin_index, log.ledger_end_index) == (6, 6)


def test_a_peer_that_has_deleted_more_than_its_leader_is_compared_where_it_begins():
    longer = MemoryLog([1] * 10, begin_index=9)
    group = _group_of_logs(MemoryLog([1] * 10), MemoryLog([1] * 10), longer)
    group.run(300)
    assert group.leader() == "n0"
    assert (longer.ledger_begin_index, longer.ledger_end_index) == (9, 10)
    group.append("n0", [b"x"], 1)
    _drop(group)
    group.nodes["n2"].log.ledger_begin_index = Index(11)
    group.run(2500)
    assert longer.ledger_end_index == 11


_runs = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), max_size=4).map(
    lambda runs: sorted(term for term, count in runs for _ in range(count))
)


@pytest.mark.slow
@given(leader=_runs, follower=_runs, common=_runs)
def test_whatever_a_follower_holds_it_ends_with_the_leaders_log(leader, follower, common):
    """Two logs that part after a common beginning; the leader's ends with the higher term."""
    common = [0] * len(common)
    group = CoreGroup(("n0", "n1"))
    group.nodes["n0"].log = MemoryLog([*common, *leader, 6])
    # The follower's own entries are of terms that the leader has none of: two leaders share no term.
    follower = [term for term in follower if term not in leader]
    group.nodes["n1"].log = MemoryLog([*common, *follower])
    for node_id in group.ids:
        group.start(node_id)
    group.now_ms = 40
    group.tick("n0")
    compares = []
    group.trace = lambda _, output: compares.extend(
        envelope
        for envelope in output.messages
        if isinstance(envelope.message, PushRequest) and envelope.message.push_type is PushType.COMPARE
    )
    group.run(100)
    ends = {node.log.chain_at(node.log.ledger_end_index) for node in group.nodes.values()}
    assert len(ends) == 1
    assert group.nodes["n1"].up.committed_index == group.nodes["n0"].log.ledger_end_index
    # One question at the end, one for the gap, and at most one per run of either log.
    assert len(compares) <= 2 + len(set(leader)) + len(set(follower))


def test_a_doubt_ends_although_nothing_is_appended():
    group = _group()
    group.append("n0", [b"x"], None)
    group.settle()
    group.run(100)
    node = group.nodes["n1"]
    group.crash("n1", keep=100)
    group.disconnect("n0", "n1")
    state = node.hard_state
    node.hard_state = HardState(state.sequence, state.curr_term, state.curr_vote_for, True)
    group.start("n1")
    group.connect("n0", "n1")
    group.run(100)
    assert group.leader() == "n0"
    assert not node.up.doubted
