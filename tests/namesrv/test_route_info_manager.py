"""Registration, fencing, expiry: the tables of a NameServer."""

from __future__ import annotations

import pytest

from namesrv.route_info_manager import BROKER_CHANNEL_EXPIRED_MS, Registration, RouteInfoManager
from remoting.bodies.bodies import DataVersion, QueueData

NOW = 1_000_000


def registration(
    addr: str = "h0:1",
    broker_id: int = 0,
    *,
    name: str = "b",
    cluster: str = "c",
    term: int = 1,
    topics: tuple[str, ...] = ("T", "U"),
    queues: int = 4,
    counter: int = 1,
    acting: bool | None = False,
    confirmed: bool = False,
) -> Registration:
    return Registration(
        cluster=cluster,
        broker_addr=addr,
        broker_name=name,
        broker_id=broker_id,
        ha_server_addr=f"{addr}:ha",
        data_version=DataVersion(timestamp=1, counter=counter, state_version=term),
        topics={
            topic: QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)
            for topic in topics
        },
        enable_acting_master=acting,
        is_confirmed=confirmed,
    )


@pytest.fixture
def routes() -> RouteInfoManager:
    return RouteInfoManager()


def addrs(routes: RouteInfoManager, name: str = "b") -> dict[int, str]:
    return routes.broker_addr_table[name].broker_addrs


def test_a_masters_topics_become_a_route(routes: RouteInfoManager) -> None:
    assert routes.register_broker(registration(), 1, NOW).refusal is None
    route = routes.topic_route("T")
    assert route is not None
    assert [queue.write_queue_nums for queue in route.queues] == [4]
    assert route.brokers[0].broker_addrs == {0: "h0:1"}
    assert routes.topic_route("V") is None


def test_a_followers_topics_are_not_taken(routes: RouteInfoManager) -> None:
    routes.register_broker(registration("h1:1", 2), 1, NOW)
    assert routes.topic_route("T") is None


def test_a_follower_is_told_where_its_master_is(routes: RouteInfoManager) -> None:
    routes.register_broker(registration(), 1, NOW)
    result = routes.register_broker(registration("h1:1", 2), 2, NOW)
    assert (result.master_addr, result.ha_server_addr) == ("h0:1", "h0:1:ha")


def test_a_new_leader_takes_the_masters_place_and_leaves_its_own(routes: RouteInfoManager) -> None:
    routes.register_broker(registration("h0:1", 0, term=1), 1, NOW)
    routes.register_broker(registration("h1:1", 2, term=1), 2, NOW)
    routes.register_broker(registration("h1:1", 0, term=2, topics=("T", "U", "V")), 2, NOW)
    assert addrs(routes) == {0: "h1:1"}
    assert routes.topic_route("V") is not None
    routes.register_broker(registration("h0:1", 1, term=2), 1, NOW)
    assert addrs(routes) == {0: "h1:1", 1: "h0:1"}


def test_a_leader_of_an_older_term_is_refused(routes: RouteInfoManager) -> None:
    routes.register_broker(registration("h1:1", 0, term=2), 2, NOW)
    assert routes.register_broker(registration("h0:1", 0, term=1, queues=9), 1, NOW).refusal is not None
    assert addrs(routes) == {0: "h1:1"}
    route = routes.topic_route("T")
    assert route is not None
    assert route.queues[0].write_queue_nums == 4


def test_an_older_term_is_no_reason_to_refuse_once_the_newer_leader_is_gone(routes: RouteInfoManager) -> None:
    routes.register_broker(registration("h1:1", 0, term=2), 2, NOW)
    routes.channel_closed(2)
    assert routes.register_broker(registration("h0:1", 0, term=1), 1, NOW).refusal is None
    assert addrs(routes) == {0: "h0:1"}


def test_a_new_id_with_a_single_topic_is_ignored(routes: RouteInfoManager) -> None:
    assert routes.register_broker(registration(topics=("T",)), 1, NOW).refusal is not None
    assert routes.broker_addr_table == {}
    routes.register_broker(registration(), 1, NOW)
    assert routes.register_broker(registration(topics=("V",), counter=2), 1, NOW).refusal is None
    assert routes.topic_route("V") is not None


def test_an_unchanged_version_leaves_known_topics_alone(routes: RouteInfoManager) -> None:
    routes.register_broker(registration(), 1, NOW)
    routes.register_broker(registration(queues=9, topics=("T", "U", "V")), 1, NOW)
    changed = routes.topic_route("T")
    added = routes.topic_route("V")
    assert changed is not None
    assert added is not None
    assert changed.queues[0].read_queue_nums == 4
    assert added.queues[0].read_queue_nums == 9
    routes.register_broker(registration(queues=9, counter=2), 1, NOW)
    changed = routes.topic_route("T")
    assert changed is not None
    assert changed.queues[0].read_queue_nums == 9


def test_a_closed_channel_takes_its_broker_away_at_once(routes: RouteInfoManager) -> None:
    routes.register_broker(registration(), 1, NOW)
    routes.register_broker(registration("h1:1", 2), 2, NOW)
    routes.channel_closed(1)
    assert addrs(routes) == {2: "h1:1"}
    assert routes.topic_route("T") is not None
    routes.channel_closed(2)
    assert routes.broker_addr_table == {}
    assert routes.cluster_addr_table == {}
    assert routes.topic_queue_table == {}


def test_a_silent_broker_expires(routes: RouteInfoManager) -> None:
    routes.register_broker(registration(), 1, NOW)
    assert routes.expire(NOW + BROKER_CHANNEL_EXPIRED_MS) == []
    routes.heartbeat("h0:1", NOW + 1)
    assert routes.expire(NOW + BROKER_CHANNEL_EXPIRED_MS + 1) == []
    assert routes.expire(NOW + BROKER_CHANNEL_EXPIRED_MS + 2) == [1]
    assert routes.broker_addr_table == {}


def test_two_brokers_share_a_topic_and_leave_apart(routes: RouteInfoManager) -> None:
    routes.register_broker(registration(), 1, NOW)
    routes.register_broker(registration("h9:1", name="d"), 2, NOW)
    route = routes.topic_route("T")
    assert route is not None
    assert sorted(broker.broker_name for broker in route.brokers) == ["b", "d"]
    assert routes.unregister_broker("h9:1", "d", 2)
    route = routes.topic_route("T")
    assert route is not None
    assert [queue.broker_name for queue in route.queues] == ["b"]
    assert routes.cluster_addr_table == {"c": {"b"}}


def test_a_deleted_topic_has_no_route(routes: RouteInfoManager) -> None:
    routes.register_broker(registration(), 1, NOW)
    routes.delete_topic("T")
    routes.delete_topic("U", "c")
    routes.delete_topic("Unknown", "other")
    assert routes.topics() == []


def test_write_permission_can_be_taken_and_given_back(routes: RouteInfoManager) -> None:
    routes.register_broker(registration(), 1, NOW)
    assert routes.operate_write_perm("b", is_allowed=False) == 2
    assert {queue["b"].perm for queue in routes.topic_queue_table.values()} == {4}
    assert routes.operate_write_perm("b", is_allowed=True) == 2
    assert {queue["b"].perm for queue in routes.topic_queue_table.values()} == {6}


def test_the_smallest_slave_brings_topics_read_only_where_it_may_act_for_its_master(
    routes: RouteInfoManager,
) -> None:
    routes.register_broker(registration("h1:1", 1, acting=True), 1, NOW)
    route = routes.topic_route("T")
    assert route is not None
    assert route.queues[0].perm == 4


def test_a_replacement_under_the_name_of_a_silent_plain_broker_is_taken_at_once(
    routes: RouteInfoManager,
) -> None:
    """Its host is gone without a word, so that its connection stays open. Plain brokers have state version 0."""
    routes.register_broker(registration("h0:1", term=0), 1, NOW)
    result = routes.register_broker(registration("h1:1", term=0), 2, NOW)
    assert result.refusal is None
    assert result.to_ask == (1,)
    assert addrs(routes) == {0: "h1:1"}


def test_of_two_living_brokers_of_one_name_the_first_keeps_it_and_both_are_told(
    routes: RouteInfoManager, caplog: pytest.LogCaptureFixture
) -> None:
    routes.register_broker(registration("h0:1", term=0), 1, NOW)
    routes.register_broker(registration("h1:1", term=0, topics=("V", "W")), 2, NOW)
    result = routes.register_broker(registration("h0:1", term=0, confirmed=True), 1, NOW)
    assert (result.refusal, result.to_ask) == (None, (2,))
    assert addrs(routes) == {0: "h0:1"}
    assert sorted(routes.topics()) == ["T", "U"], "what the second one brought is gone"
    assert "two living brokers of one name: name=b id=0 holder=h0:1 refused=h1:1" in caplog.text
    for confirmed in (True, False, True):
        result = routes.register_broker(registration("h1:1", term=0, confirmed=confirmed), 2, NOW)
        assert result.refusal == (
            "broker b id 0 is held by h0:1, which lives: give one of the two another brokerName"
        )
        assert result.to_ask == ()
    assert caplog.text.count("two living brokers") == 1
    routes.register_broker(registration("h0:1", term=0, counter=2), 1, NOW)
    assert routes.register_broker(registration("h1:1", term=0), 2, NOW).refusal is not None
    routes.channel_closed(1)
    assert routes.register_broker(registration("h1:1", term=0), 2, NOW).refusal is None


@pytest.mark.parametrize("addr", ["h9:1", "h0:1"])
def test_a_leader_that_confirms_takes_back_what_a_forged_term_took(
    routes: RouteInfoManager, addr: str
) -> None:
    routes.register_broker(registration("h0:1", term=3), 1, NOW)
    forged = registration(addr, term=2**63 - 1, queues=1)
    assert routes.register_broker(forged, 9, NOW).to_ask == (1,)
    result = routes.register_broker(registration("h0:1", term=3, confirmed=True), 1, NOW)
    assert result.refusal is None
    assert addrs(routes) == {0: "h0:1"}
    route = routes.topic_route("T")
    assert route is not None
    assert route.queues[0].read_queue_nums == 4
    assert routes.register_broker(forged, 9, NOW).refusal is not None
    routes.channel_closed(9)
    assert addrs(routes) == {0: "h0:1"}
    assert routes.register_broker(registration("h1:1", term=4), 2, NOW).refusal is None, "an election counts"


def test_a_leader_that_comes_after_a_forged_term_is_asked_as_well(routes: RouteInfoManager) -> None:
    routes.register_broker(registration("h9:1", term=2**63 - 1), 9, NOW)
    result = routes.register_broker(registration("h0:1", term=3), 1, NOW)
    assert result.refusal is not None
    assert result.to_ask == (1,)
    assert routes.register_broker(registration("h0:1", term=3, confirmed=True), 1, NOW).refusal is None
    assert addrs(routes) == {0: "h0:1"}


def test_a_confirmation_that_nobody_asked_for_does_not_count(routes: RouteInfoManager) -> None:
    routes.register_broker(registration("h1:1", term=2), 2, NOW)
    assert routes.register_broker(registration("h0:1", term=1, confirmed=True), 1, NOW).refusal is not None
    assert addrs(routes) == {0: "h1:1"}


@pytest.mark.parametrize("cluster", ["c", "forged"])
def test_an_address_that_another_name_took_comes_back(routes: RouteInfoManager, cluster: str) -> None:
    routes.register_broker(registration("h0:1", term=3), 1, NOW)
    forged = registration("h0:1", name="forged", cluster=cluster, topics=("V", "W"))
    assert routes.register_broker(forged, 9, NOW).to_ask == (1,)
    routes.register_broker(registration("h0:1", term=3, confirmed=True), 1, NOW)
    routes.channel_closed(9)
    assert list(routes.broker_addr_table) == ["b"]
    assert sorted(routes.topics()) == ["T", "U"]


def test_a_broker_leaves_only_by_the_connection_that_registered_it(routes: RouteInfoManager) -> None:
    routes.register_broker(registration("h0:1"), 1, NOW)
    assert not routes.unregister_broker("h0:1", "b", 9)
    assert addrs(routes) == {0: "h0:1"}
    assert routes.unregister_broker("h0:1", "b", 1)
    assert routes.broker_addr_table == {}
    assert routes.unregister_broker("h0:1", "b", 9), "it is gone already"


def test_a_broker_that_names_a_name_server_twice_is_told_so(routes: RouteInfoManager) -> None:
    routes.register_broker(registration("h0:1"), 1, NOW)
    assert routes.register_broker(registration("h0:1"), 2, NOW).to_ask == (1,)
    routes.register_broker(registration("h0:1", confirmed=True), 1, NOW)
    assert routes.register_broker(registration("h0:1", confirmed=True), 2, NOW).refusal == (
        "broker b id 0 is registered by another connection from h0:1: name each NameServer once"
    )
    assert addrs(routes) == {0: "h0:1"}
