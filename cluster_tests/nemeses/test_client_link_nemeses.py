"""Each nemesis on the links of clients alone: it happens, no member minds it, and all is well afterwards."""

from collections.abc import Callable, Iterator

import pytest
from fault_runs.fault_run import Load
from fault_runs.our_group import OurGroup
from local_cluster import port_block, wait_for
from nemeses.clients.client_answers_cut import ClientAnswersCut
from nemeses.clients.client_link_cut import ClientLinkCut
from nemeses.clients.client_link_down import ClientLinkDown
from nemeses.clients.client_link_latency import ClientLinkLatency
from nemeses.clients.client_link_nemesis import ClientLinkNemesis
from nemeses.clients.client_link_reset import ClientLinkReset
from nemeses.nemesis import NemesisError
from proxies.client_links import ClientLinks
from workload.client_process import ClientProcess
from workload.topic import make_topic

pytestmark = [pytest.mark.slow, pytest.mark.long]

PATIENCE_S = 120
ACKNOWLEDGED, NOT_ACKNOWLEDGED = b'"outcome":"ok"', (b'"outcome":"unknown"', b'"outcome":"fail"')
Group = tuple[OurGroup, ClientLinks]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """One for all tests here, which leave it as they found it."""
    with port_block() as base_port, pytest.MonkeyPatch.context() as patch:
        patch.setattr("mq.cluster.LISTEN_TIMEOUT_S", float(PATIENCE_S))
        made = OurGroup(tmp_path_factory.mktemp("client_links") / "cluster", base_port)
        links = made.client_links()
        try:
            made.up()
            make_topic(made.namesrv, PATIENCE_S)
            yield made, links
        finally:
            made.down()


@pytest.fixture
def producers(group: Group, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientProcess]:
    """At work."""
    made, links = group
    links.heal()
    *others, client = Load(rate=200, producer_processes=1).clients(made, tmp_path_factory.mktemp("history"))
    for other in others:
        assert other.end(PATIENCE_S) is None
    wait_for(lambda: client.has_noted(ACKNOWLEDGED), PATIENCE_S, "an acknowledged message")
    yield client
    links.heal()
    assert client.end(PATIENCE_S) is None


def acknowledged(client: ClientProcess) -> int:
    return client.history.read_bytes().count(ACKNOWLEDGED)


def others(client: ClientProcess) -> int:
    content = client.history.read_bytes()
    return sum(content.count(outcome) for outcome in NOT_ACKNOWLEDGED)


@pytest.mark.parametrize("make", [ClientAnswersCut, ClientLinkCut, ClientLinkDown, ClientLinkReset])
def test_sends_fail_while_clients_cannot_reach_the_leader_which_leads_on(
    group: Group, producers: ClientProcess, make: Callable[[ClientLinks], ClientLinkNemesis]
) -> None:
    made, links = group
    leader = wait_for(made.leader, PATIENCE_S, "a leader")
    term = made.led_by(leader)
    nemesis, before = make(links), others(producers)
    nemesis.begin(leader)
    wait_for(nemesis.evidence, PATIENCE_S, f"evidence of {nemesis.spec.name}")
    wait_for(lambda: others(producers) > before, PATIENCE_S, "sends that are not acknowledged")
    nemesis.end()
    since = acknowledged(producers)
    wait_for(lambda: acknowledged(producers) > since + 100, PATIENCE_S, "acknowledgements again")
    assert nemesis.evidence() is not None, "what was seen is still told"
    assert made.led_by(leader) == term


def test_sends_are_late_where_answers_are(group: Group, producers: ClientProcess) -> None:
    made, links = group
    nemesis = ClientLinkLatency(links)
    nemesis.begin(wait_for(made.leader, PATIENCE_S, "a leader"))
    wait_for(nemesis.evidence, PATIENCE_S, f"evidence of {nemesis.spec.name}")
    since = acknowledged(producers)
    wait_for(lambda: acknowledged(producers) > since + 100, PATIENCE_S, "acknowledgements all the same")
    nemesis.end()


def test_what_is_no_member_is_refused_and_nothing_is_left_behind(group: Group) -> None:
    nemesis = ClientLinkCut(group[1])
    with pytest.raises(NemesisError, match="client_link_cut n7"):
        nemesis.begin("n7")
    nemesis.end()
    assert nemesis.evidence() is None
