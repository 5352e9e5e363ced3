"""Routes and assignments as clients are told them."""

from __future__ import annotations

from typing import Any

import pytest
from fake_call import answer
from fake_group import FakeGroup
from proxy_group import proxying, run

from proxy.protocol.definition import AddressScheme, Code, Endpoints, MessageType, Permission
from proxy.protocol.service import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from proxy.server import Proxy
from remoting.address import Address
from remoting.bodies.bodies import SubscriptionGroupConfig


def endpoints() -> Endpoints:
    asked = Endpoints(scheme=AddressScheme.DOMAIN_NAME)
    asked.addresses.add(host="lb.example", port=443)
    return asked


async def route(proxy: Proxy, topic: str = "T") -> QueryRouteResponse:
    request = QueryRouteRequest(endpoints=endpoints())
    request.topic.name = topic
    request.topic.resource_namespace = "ns"
    return await answer(proxy.handlers, "QueryRoute", request, QueryRouteResponse)


async def assignment(proxy: Proxy, topic: str = "T", group: str = "g") -> QueryAssignmentResponse:
    request = QueryAssignmentRequest(endpoints=endpoints())
    request.topic.name, request.group.name = topic, group
    return await answer(proxy.handlers, "QueryAssignment", request, QueryAssignmentResponse)


def test_a_route_has_every_queue_of_every_group_at_the_address_that_the_client_knows() -> None:
    async def story() -> None:
        async with FakeGroup(name="H") as other, FakeGroup(neighbours=(other,)) as group:
            group.topic_types["T"] = "FIFO"
            async with proxying(group.address) as proxy:
                told = await route(proxy)
                assert told.status.code == Code.OK
                assert [(queue.broker.name, queue.broker.id, queue.id) for queue in told.message_queues] == [
                    (name, 0, number) for name in "GH" for number in range(4)
                ]
                for queue in told.message_queues:
                    assert queue.permission == Permission.READ_WRITE
                    assert queue.topic.resource_namespace == "ns"
                    assert queue.broker.endpoints == endpoints()
                    assert list(queue.accept_message_types) == [MessageType.FIFO]

    run(story())


@pytest.mark.parametrize(
    ("conf", "scheme", "host", "port"),
    [
        ({"advertised_endpoint": Address("10.0.0.9", 1234)}, AddressScheme.IPv4, "10.0.0.9", 1234),
        ({"advertised_endpoint": Address("::1", 1234)}, AddressScheme.IPv6, "::1", 1234),
        ({"advertised_endpoint": Address("mq", 1234)}, AddressScheme.DOMAIN_NAME, "mq", 1234),
        ({"use_endpoint_port_from_request": False}, AddressScheme.DOMAIN_NAME, "lb.example", 0),  # the conf's
    ],
)
def test_an_operator_says_where_clients_find_the_proxy(
    conf: dict[str, Any], scheme: AddressScheme, host: str, port: int
) -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address, **conf) as proxy:
            (queue, *_) = (await route(proxy)).message_queues
            (address,) = queue.broker.endpoints.addresses
            told = (queue.broker.endpoints.scheme, address.host, address.port)
            assert told == (scheme, host, port)

    run(story())


def test_endpoints_that_are_many_are_not_copied_into_each_queue() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            request = QueryRouteRequest(endpoints=endpoints())
            request.topic.name = "T"
            for number in range(1000):
                request.endpoints.addresses.add(host=f"lb{number}.example", port=443)
            told = await answer(proxy.handlers, "QueryRoute", request, QueryRouteResponse)
            assert told.status.code == Code.ILLEGAL_ACCESS_POINT
            assert not told.message_queues

    run(story())


def test_a_group_that_elects_keeps_its_queues() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            before = await route(proxy)
            assigned = await assignment(proxy)
            group.lead(None)
            assert await route(proxy) == before
            assert await assignment(proxy) == assigned

    run(story())


def test_a_topic_of_which_no_broker_says_the_type_takes_all_types() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            (queue, *_) = (await route(proxy)).message_queues
            assert list(queue.accept_message_types) == [
                MessageType.NORMAL,
                MessageType.FIFO,
                MessageType.DELAY,
                MessageType.TRANSACTION,
            ]

    run(story())


def test_a_deleted_topic_is_not_found_and_a_name_server_that_is_silent_changes_nothing() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            before = await route(proxy)
            group.namesrv.is_mute = True
            assert await route(proxy) == before
            group.namesrv.is_mute = False
            group.topics.clear()
            assert (await route(proxy)).status.code == Code.TOPIC_NOT_FOUND
            assert (await route(proxy, "a b")).status.code == Code.ILLEGAL_TOPIC

    run(story())


def test_a_fifo_group_is_assigned_queues_and_others_brokers() -> None:
    async def story() -> None:
        async with FakeGroup(name="H") as other, FakeGroup(neighbours=(other,)) as group:
            group.group_configs["fifo"] = SubscriptionGroupConfig(consume_message_orderly=True)
            async with proxying(group.address) as proxy:
                told = (await assignment(proxy)).assignments
                assert [(one.message_queue.broker.name, one.message_queue.id) for one in told] == [
                    ("G", -1),
                    ("H", -1),
                ]
                told = (await assignment(proxy, group="fifo")).assignments
                assert [(one.message_queue.broker.name, one.message_queue.id) for one in told] == [
                    (name, number) for name in "GH" for number in range(4)
                ]
                assert (await assignment(proxy, group="a b")).status.code == Code.ILLEGAL_CONSUMER_GROUP
                assert (
                    await assignment(proxy, group="CID_RMQ_SYS_X")
                ).status.code == Code.ILLEGAL_CONSUMER_GROUP

    run(story())


def test_without_readable_queues_there_is_nothing_to_assign() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            group.queue_count = 0
            told = await assignment(proxy)
            assert (told.status.code, told.status.message) == (
                Code.FORBIDDEN,
                "no readable queue in topic T",
            )

    run(story())
