"""A group at rest keeps its leader although its members tick seldom, and costs little."""

from simulator.harness.quiet import QuietGroup


def test_a_quiet_group_elects_once():
    group = QuietGroup()
    assert group.elections == 1
    group.run(20)
    assert group.elections == 1
