"""Which queues this member of a consumer group shall read now: a share, as the brokers know the members, or all."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from mqclient.client_instance import ClientInstance
from mqclient.consumer.allocate import AllocateStrategy
from mqclient.errors import MQClientError
from mqclient.message_queue import MessageQueue
from mqclient.route.topic_route import TopicRoute
from remoting.bodies.bodies import MASTER_ID

log = logging.getLogger(__name__)


async def all_queues(instance: ClientInstance, topic: str) -> list[MessageQueue] | None:
    """What each member of a broadcasting group reads. None: not known now (no route); keep what you have."""
    route = await _route(instance, topic)
    return None if route is None else list(route.subscribe_queues)


async def assigned_queues(
    instance: ClientInstance, group: str, topic: str, strategy: AllocateStrategy
) -> list[MessageQueue] | None:
    """This member's share.

    None: not known now (no route, no broker answered, our heartbeat has not arrived, or the strategy failed); keep
    what you have.
    """
    route = await _route(instance, topic)
    if route is None:
        return None
    if not route.subscribe_queues:
        return []
    for address in _addresses(route):
        try:
            client_ids = await instance.api.consumer_ids(address, group)
        except MQClientError as error:
            log.info("consumer list failed broker=%s reason=%s", address, error)
            continue
        if instance.client_id in client_ids:
            return _share(strategy, instance.client_id, route, client_ids)
    return None


def _share(
    strategy: AllocateStrategy, client_id: str, route: TopicRoute, client_ids: list[str]
) -> list[MessageQueue] | None:
    try:
        queues = strategy.allocate(client_id, route.subscribe_queues, client_ids)
    except Exception:
        # It may be the application's own; a consumer must not end by it.
        log.exception("strategy failed, queues stay as they are name=%s topic=%s", strategy.name, route.topic)
        return None
    # A list from a configuration is the same for every topic.
    return [queue for queue in queues if queue.topic == route.topic]


async def _route(instance: ClientInstance, topic: str) -> TopicRoute | None:
    try:
        return await instance.routes.route(topic)
    except MQClientError as error:
        log.debug("no route topic=%s reason=%s", topic, error)
        return None


def _addresses(route: TopicRoute) -> Iterable[str]:
    """Leaders first: followers hear of members by the same heartbeats, but later than the leader."""
    ranked = [
        (id_ != MASTER_ID, name, address)
        for name, addresses in route.brokers.items()
        for id_, address in addresses.items()
    ]
    return [address for _, _, address in sorted(ranked)]
