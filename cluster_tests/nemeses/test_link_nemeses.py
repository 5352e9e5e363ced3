"""Each nemesis on links alone, on a real group under load: it happens, members feel it, and all is well afterwards."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from local_cluster import LocalCluster, port_block, wait_for
from nemeses.links.bridge import Bridge
from nemeses.links.isolated_member import IsolatedMember
from nemeses.links.link_bandwidth import LinkBandwidth
from nemeses.links.link_cut import LinkCut
from nemeses.links.link_down import LinkDown
from nemeses.links.link_latency import LinkLatency
from nemeses.links.link_limit_data import LinkLimitData
from nemeses.links.link_nemesis import LinkNemesis
from nemeses.links.link_reset import LinkReset
from nemeses.links.link_slicer import LinkSlicer
from nemeses.links.link_slow_close import LinkSlowClose
from nemeses.links.one_way_ring import OneWayRing
from nemeses.messages.doubled_messages import DoubledMessages
from nemeses.messages.lost_messages import LostMessages
from nemeses.messages.message_nemesis import MessageNemesis
from nemeses.messages.overtaken_messages import OvertakenMessages
from nemeses.nemesis import NemesisError
from proved_load import Load, prove
from proxies.links import SERVER_PORT, Links
from proxies.toxiproxy_server import running_server

from faults.nemesis import WHOLE_GROUP
from mq.cluster import Cluster
from mq.cluster_layout import ClusterLayout, parse_peer_dial

pytestmark = [pytest.mark.slow, pytest.mark.long]

# What some tens of members' processes on one machine may need.
PATIENCE_S = 120
DATA_FILE_SIZE = 256 << 10
# Entries. Two are on their way at any time, for so many messages are.
LAG = 8
PUSHES, ACKNOWLEDGEMENTS = 5, 6  # types of messages
Group = tuple[LocalCluster, Links]


@pytest.fixture(scope="module")
def linked_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """One for all tests here, which leave it as they found it. Messages can be meddled with, too."""
    directory = tmp_path_factory.mktemp("link_nemeses")
    with (
        port_block() as base_port,
        running_server(directory / "toxiproxy.log", base_port + SERVER_PORT) as server,
        Links.of_cluster(server, cluster := LocalCluster(directory / "cluster", base_port)) as links,
        pytest.MonkeyPatch.context() as patch,
    ):
        links.frames()
        patch.setattr("mq.cluster.LISTEN_TIMEOUT_S", 3.0 * PATIENCE_S)
        dials = dict(map(parse_peer_dial, links.options()[1::2]))
        conf = {"mappedFileSizeCommitLog": str(DATA_FILE_SIZE), "mappedFileSizeConsumeQueue": "10000"}
        Cluster.up(
            ClusterLayout(dir=str(cluster.directory), base_port=base_port, peer_dials=dials, conf=conf)
        )
        yield cluster, links
        cluster.down()


@pytest.fixture
def cluster(linked_group: Group) -> LocalCluster:
    cluster, links = linked_group
    links.heal()  # an earlier test may have failed
    cluster.leader(PATIENCE_S)
    cluster.level(PATIENCE_S)
    return cluster


@pytest.fixture
def links(linked_group: Group) -> Links:
    return linked_group[1]


@pytest.fixture
def load(cluster: LocalCluster, tmp_path: Path) -> Load:
    return Load(cluster, tmp_path / "history.jsonl")


def verified(nemesis: LinkNemesis) -> str:
    evidence: str = wait_for(nemesis.evidence, PATIENCE_S, f"evidence of {nemesis.spec.name}")
    return evidence


def a_link(cluster: LocalCluster, *, from_leader: bool) -> tuple[str, str]:
    leader = cluster.leader(PATIENCE_S)
    follower = next(name for name in cluster.nodes() if name != leader)
    return (leader, follower) if from_leader else (follower, leader)


# What members say themselves of a link of theirs, as they carry load.


def falls_behind(cluster: LocalCluster, sender: str, receiver: str) -> Callable[[], bool]:
    """A follower has, or is known to have, less than what is committed."""

    def shows() -> bool:
        nodes = cluster.nodes()
        leader, follower = (sender, receiver) if nodes[sender]["role"] == "LEADER" else (receiver, sender)
        committed, known = nodes[leader]["committed"], nodes[leader]["watermarks"].get(follower)
        return committed is not None and known is not None and bool(known < committed - LAG)

    return shows


def loses_connections(cluster: LocalCluster, sender: str, receiver: str) -> Callable[[], bool]:
    def lost() -> int:
        return lost_dials(cluster, sender, receiver) + lost_dials(cluster, receiver, sender)

    before = lost()
    return lambda: lost() > before


def lost_dials(cluster: LocalCluster, dialler: str, peer: str) -> int:
    """How often this member has said so."""
    return cluster.log_file(dialler).read_text().count(f"link down peer={peer} dialled=True ")


def stays_level(cluster: LocalCluster, sender: str, receiver: str) -> Callable[[], bool]:
    """Acknowledgements are small and few: the link carries all of them."""

    def shows() -> bool:
        nodes = cluster.nodes()
        committed, known = nodes[receiver]["committed"], nodes[receiver]["watermarks"].get(sender)
        return committed is not None and known is not None and bool(known >= committed - LAG)

    return shows


def keeps_connections(cluster: LocalCluster, sender: str, receiver: str) -> Callable[[], bool]:
    """Nobody closes anything, so nothing closes late."""
    lost = loses_connections(cluster, sender, receiver)
    return lambda: not lost()


TO_FOLLOWER, TO_LEADER = True, False


@pytest.mark.parametrize(
    ("make", "from_leader", "is_felt"),
    [
        (LinkLatency, TO_FOLLOWER, falls_behind),
        (LinkLatency, TO_LEADER, falls_behind),
        (LinkBandwidth, TO_FOLLOWER, falls_behind),
        (LinkBandwidth, TO_LEADER, stays_level),
        (LinkSlicer, TO_FOLLOWER, falls_behind),
        (LinkSlicer, TO_LEADER, stays_level),
        (LinkCut, TO_FOLLOWER, falls_behind),
        (LinkCut, TO_LEADER, falls_behind),
        (LinkReset, TO_FOLLOWER, loses_connections),
        (LinkReset, TO_LEADER, loses_connections),
        (LinkLimitData, TO_FOLLOWER, loses_connections),
        (LinkLimitData, TO_LEADER, loses_connections),
        (LinkSlowClose, TO_FOLLOWER, keeps_connections),
        (LinkSlowClose, TO_LEADER, keeps_connections),
        (LinkDown, TO_FOLLOWER, loses_connections),
        (LinkDown, TO_LEADER, loses_connections),
    ],
    ids=lambda it: (
        {TO_FOLLOWER: "to_follower", TO_LEADER: "to_leader"}.get(it) if isinstance(it, bool) else it.__name__
    ),
)
def test_a_group_serves_with_an_impaired_link_and_is_whole_again_without(
    cluster: LocalCluster,
    links: Links,
    load: Load,
    make: Callable[[Links], LinkNemesis],
    from_leader: bool,
    is_felt: Callable[[LocalCluster, str, str], Callable[[], bool]],
) -> None:
    nemesis = make(links)
    with load:
        sender, receiver = a_link(cluster, from_leader=from_leader)
        felt = is_felt(cluster, sender, receiver)
        nemesis.begin(f"{sender}->{receiver}")
        verified(nemesis)
        wait_for(felt, PATIENCE_S, f"{sender} and {receiver} that feel {nemesis.spec.name}")
        load.goes_on()
        if is_felt in (stays_level, keeps_connections):  # which was so before it could have had an effect
            wait_for(felt, PATIENCE_S, f"{sender} and {receiver} that do not mind {nemesis.spec.name}")
        nemesis.end()
        load.goes_on()
    assert nemesis.evidence() is not None, "what was seen is still told"
    assert load.failed == []
    prove(cluster, load)


def test_of_an_isolated_leader_the_others_make_one_of_themselves(
    cluster: LocalCluster, links: Links, load: Load
) -> None:
    nemesis = IsolatedMember(links)
    with load:
        leader = cluster.leader(PATIENCE_S)
        term = cluster.nodes()[leader]["term"]
        nemesis.begin(leader)
        verified(nemesis)
        successor = wait_for(lambda: another_leader(cluster, leader), PATIENCE_S, "another leader")
        assert cluster.nodes()[successor]["term"] > term
        load.goes_on()
        nemesis.end()
        load.goes_on()
    assert load.failed == []
    prove(cluster, load)


def test_a_bridge_keeps_the_group_serving_whichever_end_led(
    cluster: LocalCluster, links: Links, load: Load
) -> None:
    nemesis = Bridge(links)
    with load:
        leader, follower = a_link(cluster, from_leader=True)
        nemesis.begin(f"{leader}->{follower}")
        verified(nemesis)
        load.goes_on()
        nemesis.end()
        load.goes_on()
    assert load.failed == []
    prove(cluster, load)


def test_nobody_leads_a_ring_in_which_no_two_hear_each_other(
    cluster: LocalCluster, links: Links, load: Load
) -> None:
    nemesis = OneWayRing(links)
    with load:
        nemesis.begin(WHOLE_GROUP)
        verified(nemesis)
        wait_for(
            lambda: not any(node["role"] == "LEADER" for node in cluster.nodes().values()),
            PATIENCE_S,
            "a group without a leader",
        )
        nemesis.end()
        load.goes_on()
    prove(cluster, load)


@pytest.mark.parametrize("from_leader", [TO_FOLLOWER, TO_LEADER], ids=["to_follower", "to_leader"])
@pytest.mark.parametrize("make", [LostMessages, DoubledMessages, OvertakenMessages])
def test_messages_of_the_load_are_meddled_with_and_no_connection_is_lost(
    cluster: LocalCluster,
    links: Links,
    load: Load,
    make: Callable[[Links], MessageNemesis],
    from_leader: bool,
) -> None:
    nemesis = make(links)
    of_the_load = PUSHES if from_leader else ACKNOWLEDGEMENTS
    with load:
        sender, receiver = a_link(cluster, from_leader=from_leader)
        lost = loses_connections(cluster, sender, receiver)
        nemesis.begin(f"{sender}->{receiver}")
        wait_for(lambda: nemesis.counts[of_the_load] >= 10, PATIENCE_S, nemesis.spec.name)
        load.goes_on()
        nemesis.end()
        assert not lost(), "the stream was sound"
        load.goes_on()
    assert nemesis.evidence() is not None
    assert load.failed == []
    prove(cluster, load)


def test_two_on_one_link_add_up_and_each_takes_off_its_own(
    cluster: LocalCluster, links: Links, load: Load
) -> None:
    slow, scraps, cut = LinkLatency(links), LinkSlicer(links), LinkCut(links)
    with load:
        sender, receiver = a_link(cluster, from_leader=True)
        link = f"{sender}->{receiver}"
        for nemesis in (slow, scraps):
            nemesis.begin(link)
        verified(scraps)
        scraps.end()
        verified(slow)
        cut.begin(link)
        slow.end()
        verified(cut)
        cut.end()
        load.goes_on()
    assert load.failed == []
    cluster.level(PATIENCE_S)
    prove(cluster, load)


def test_what_cannot_begin_says_why_and_leaves_nothing_behind(cluster: LocalCluster, links: Links) -> None:
    nemesis = LinkCut(links)
    for target in ("n0", "n0->n0", "n0->n7"):
        with pytest.raises(NemesisError, match="link_cut"):
            nemesis.begin(target)
        nemesis.end()
        assert nemesis.evidence() is None
    cluster.level(PATIENCE_S)


def another_leader(cluster: LocalCluster, former: str) -> str | None:
    for name, node in cluster.nodes().items():
        if name != former and node["role"] == "LEADER" and node["serving"]:
            return name
    return None
