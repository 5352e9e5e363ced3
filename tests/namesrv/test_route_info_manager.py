"""Registration, fencing, expiry: the tables of a NameServer."""

from __future__ import annotations

import pytest

from namesrv.route_info_manager import BROKER_CHANNEL_EXPIRED_MS, Registration, RouteInfoManager
from remoting.bodies import DataVersion, QueueData

NOW = 1_000_000


def registration(
    addr: str = "h0:1",
    broker_id: int = 0,
    *,
    name: str = "b",
    term: int = 1,
    topics: tuple[str, ...] = ("T", "U"),
    queues: int = 4,
    counter: int = 1,
    acting: bool | None = False,
) -> Registration:
    return Registration(
        cluster="c",
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
    )


@pytest.fixture
def routes() -> RouteInfoManager:
    return RouteInfoManager()


def addrs(routes: RouteInfoManager, name: str = "b") -> dict[int, str]:
    return routes.broker_addr_table[name].broker_addrs


def test_a_masters_topics_become_a_route(routes: RouteInfoManager) -> None:
    assert routes.register_broker(registration(), 1, NOW) is not None
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
    assert result is not None
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
    assert routes.register_broker(registration("h0:1", 0, term=1, queues=9), 1, NOW) is None
    assert addrs(routes) == {0: "h1:1"}
    route = routes.topic_route("T")
    assert route is not None
    assert route.queues[0].write_queue_nums == 4


def test_an_older_term_is_no_reason_to_refuse_once_the_newer_leader_is_gone(routes: RouteInfoManager) -> None:
    routes.register_broker(registration("h1:1", 0, term=2), 2, NOW)
    routes.channel_closed(2)
    assert routes.register_broker(registration("h0:1", 0, term=1), 1, NOW) is not None
    assert addrs(routes) == {0: "h0:1"}


def test_a_new_id_with_a_single_topic_is_ignored(routes: RouteInfoManager) -> None:
    assert routes.register_broker(registration(topics=("T",)), 1, NOW) is None
    assert routes.broker_addr_table == {}
    routes.register_broker(registration(), 1, NOW)
    assert routes.register_broker(registration(topics=("V",), counter=2), 1, NOW) is not None
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
    routes.heartbeat("c", "h0:1", NOW + 1)
    assert routes.expire(NOW + BROKER_CHANNEL_EXPIRED_MS + 1) == []
    assert routes.expire(NOW + BROKER_CHANNEL_EXPIRED_MS + 2) == [1]
    assert routes.broker_addr_table == {}


def test_two_brokers_share_a_topic_and_leave_apart(routes: RouteInfoManager) -> None:
    routes.register_broker(registration(), 1, NOW)
    routes.register_broker(registration("h9:1", name="d"), 2, NOW)
    route = routes.topic_route("T")
    assert route is not None
    assert sorted(broker.broker_name for broker in route.brokers) == ["b", "d"]
    routes.unregister_broker("c", "h9:1", "d")
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
