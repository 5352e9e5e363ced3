"""A member that a fault had forget what lay in front of its log is asked for it again once a start has found it."""

from dledger.entry import GENESIS_CHAIN
from simulator.harness.options import draw_options
from simulator.harness.sim_cluster import Cluster
from simulator.invariants.invariant import has_found_begin
from tests.simulator.member_view import View


def test_what_is_in_front_is_found_where_nothing_is_or_its_chain_is_known():
    unknown = [(-1, GENESIS_CHAIN), (1, 11)]
    assert has_found_begin(View(log=unknown))
    assert not has_found_begin(View(log=unknown, ledger_begin_index=1))
    assert has_found_begin(View(log=[(1, 10), (1, 11)], ledger_begin_index=1))


def test_what_is_in_front_is_forgotten_only_until_a_start_finds_it():
    cluster = Cluster(4, draw_options(4))
    for member in cluster.members:
        member.has_forgotten_begin = True
    cluster.run()
    assert [member.has_forgotten_begin for member in cluster.members] == [False] * len(cluster.members)
