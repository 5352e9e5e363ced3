"""A member that a fault had forget what lay in front of its log is asked for it again once a start has found it."""

from simulator.cluster import Cluster
from simulator.options import draw_options


def test_what_is_in_front_is_forgotten_only_until_a_start_finds_it():
    cluster = Cluster(4, draw_options(4))
    for member in cluster.members:
        member.has_forgotten_begin = True
    cluster.run()
    assert [member.has_forgotten_begin for member in cluster.members] == [False] * len(cluster.members)
