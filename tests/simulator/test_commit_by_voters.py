"""Commits that a majority of the voters does not hold."""

from test_invariants import THREE, View, _oracle

from dledger.core.membership import Membership, Seat
from dledger.core.output import Role
from simulator.invariants.commit_by_voters import CommitByVoters


def test_commit_by_voters_fires_when_a_learner_or_another_disk_makes_the_majority():
    for value in (
        THREE.without("n1").with_learner("n1", Seat(b"n1")).without("n2").with_learner("n2", Seat(b"n2")),
        THREE.with_learner("n1", Seat(b"another")).with_voter("n1", b"another"),
    ):
        invariant = CommitByVoters()
        voters = Membership({**value.voters, "n3": Seat(b"n3")}, value.learners)
        leader = View(role=Role.LEADER, logged_membership=voters, committed_index=1)
        assert invariant.check(leader, _oracle()) is None
        assert invariant.check(View("n1"), _oracle()) is None
        leader.committed_index = 2
        assert "commits 2, which n0 of the voters" in str(invariant.check(leader, _oracle()))


def test_commit_by_voters_is_silent_when_a_majority_holds_the_entry():
    invariant = CommitByVoters()
    leader = View(role=Role.LEADER, committed_index=1)
    for view in (leader, View("n1")):
        assert invariant.check(view, _oracle()) is None
    leader.committed_index = 2
    assert invariant.check(leader, _oracle()) is None


def test_commit_by_voters_does_not_count_what_a_voter_has_cut():
    invariant = CommitByVoters()
    first = [(1, 10), (1, 11), (1, 12)]
    uncommitted = View("n1", log=[*first, (1, 13), (1, 14)], durable_index=4)
    cut = View("n1", log=first, log_generation=1, curr_term=2)
    leader = View(role=Role.LEADER, curr_term=2)
    for view in (uncommitted, cut, leader):
        assert invariant.check(view, _oracle()) is None
    leader.log, leader.durable_index, leader.committed_index = [*first, (2, 23)], 3, 3
    assert "commits 3, which n0 of the voters" in str(invariant.check(leader, _oracle()))


def test_commit_by_voters_counts_what_a_voter_holds_in_place_of_what_it_has_cut():
    invariant = CommitByVoters()
    log = [(1, 10), (1, 11), (1, 12), (2, 23)]
    uncommitted = View("n1", log=[*log[:3], (1, 13), (1, 14)], durable_index=4)
    leader = View(role=Role.LEADER, curr_term=2, log=log, durable_index=3)
    for view in (uncommitted, leader, View("n1", log=log, durable_index=3, curr_term=2)):
        assert invariant.check(view, _oracle()) is None
    leader.committed_index = 3
    assert invariant.check(leader, _oracle()) is None


def test_commit_by_voters_counts_what_a_voter_has_acknowledged_before_it_fell():
    invariant = CommitByVoters()
    leader = View(role=Role.LEADER, committed_index=1)
    assert invariant.check(leader, _oracle()) is None
    invariant.note(View("n1"))
    leader.committed_index = 2
    assert invariant.check(leader, _oracle()) is None
