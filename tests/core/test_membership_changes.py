"""Changes that a leader makes by itself."""

from core_group import CoreGroup


def test_a_learner_that_is_gone_does_not_become_a_voter():
    """With it, one voter more would be needed than there is, and nobody could take that back."""
    group = CoreGroup(("n0", "n1"), voters=("n0",))
    group.start("n0")
    group.run_until(lambda: group.leader() == "n0")
    group.start("n1")
    leader = group.nodes["n0"].up
    group.full.add("n0")
    assert group.change_members("n0", leader.changes.add("n1", "h:1")) is None
    group.carry_out("n0", leader.write_failed_no_space(True, group.now_ms))
    group.connect("n0", "n1")
    group.run(500)
    assert "n1" in leader.membership.learners
    group.crash("n1")
    group.disconnect("n0", "n1")
    group.run(60_000)
    group.full.discard("n0")
    group.carry_out("n0", leader.write_failed_no_space(False, group.now_ms))
    group.run(5_000)
    assert group.leader() == "n0"
    assert leader.committed_index == group.nodes["n0"].log.ledger_end_index
    group.start("n1")
    group.connect("n0", "n1")
    group.run_until(lambda: "n1" in leader.membership.voters)
