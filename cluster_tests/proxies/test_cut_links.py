"""Links between real members that carry nothing one way: the group goes on, and members show what does not arrive."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from local_cluster import LocalCluster, wait_for
from proxies.links import Links

pytestmark = [pytest.mark.slow, pytest.mark.long]

TOPIC = "Cut"
Node = dict[str, Any]


def produce(cluster: LocalCluster, count: int) -> None:
    """All of them are acknowledged."""
    lines = "".join(f"{number}\n" for number in range(count))
    command = [sys.executable, "-m", "mq", "produce", "-n", cluster.namesrv, "--topic", TOPIC]
    subprocess.run(command, input=lines, text=True, check=True, timeout=120, capture_output=True)


def lacks_entries(leader: Node, follower: Node) -> bool:
    """Nothing of what the others have committed has reached it."""
    return (
        follower["ledger_end"] < leader["committed"]
        and follower["ledger_end"] <= leader["watermarks"][follower["id"]]
    )


def is_not_heard(leader: Node, follower: Node) -> bool:
    """It holds more than its leader knows of: entries come, and no answer leaves."""
    return leader["watermarks"][follower["id"]] < follower["ledger_end"]


@pytest.mark.parametrize(
    ("from_leader", "is_seen"),
    [(True, lacks_entries), (False, is_not_heard)],
    ids=["leader_to_follower", "follower_to_leader"],
)
def test_a_link_that_is_cut_one_way_costs_neither_the_leader_nor_a_send(
    cluster: LocalCluster, links: Links, from_leader: bool, is_seen: Callable[[Node, Node], bool]
) -> None:
    cluster.up(*links.options())
    produce(cluster, 50)
    cluster.level()
    leader = cluster.leader()
    term = cluster.nodes()[leader]["term"]
    follower, other = (name for name in links.members if name != leader)

    links.cut(*(leader, follower) if from_leader else (follower, leader))
    produce(cluster, 50)

    def shows() -> bool:
        nodes = cluster.nodes()
        ends = [node["ledger_end"] for node in nodes.values()]
        if None in ends or nodes[leader]["role"] != "LEADER":
            return False
        others_are_level = nodes[other]["ledger_end"] == nodes[leader]["ledger_end"]
        return others_are_level and is_seen(nodes[leader], nodes[follower])

    wait_for(shows, 20, f"{follower} without what {leader} and {other} have")
    assert (cluster.leader(), cluster.nodes()[leader]["term"]) == (leader, term)

    links.heal()
    produce(cluster, 50)
    cluster.level()
    assert (cluster.leader(), cluster.nodes()[leader]["term"]) == (leader, term)
