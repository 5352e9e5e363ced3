"""Which queues this member of a consumer group shall read now, as the brokers know the group's members."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from mqclient.allocate import allocate_averagely
from mqclient.client_instance import ClientInstance
from mqclient.errors import MQClientError
from mqclient.message_queue import MessageQueue
from mqclient.topic_route import MASTER_ID, TopicRoute
from remoting.errors import RemotingError

log = logging.getLogger(__name__)


async def assigned_queues(instance: ClientInstance, group: str, topic: str) -> list[MessageQueue] | None:
    """None: not known now (no route, no broker answered, or our heartbeat has not arrived); keep what you have."""
    try:
        route = await instance.routes.route(topic)
    except MQClientError as error:
        log.debug("no route topic=%s reason=%s", topic, error)
        return None
    for address in _addresses(route):
        try:
            client_ids = await instance.api.consumer_ids(address, group)
        except (RemotingError, MQClientError) as error:
            log.info("consumer list failed broker=%s reason=%s", address, error)
            continue
        if instance.client_id in client_ids:
            return allocate_averagely(instance.client_id, route.subscribe_queues, client_ids)
    return None


def _addresses(route: TopicRoute) -> Iterable[str]:
    """Leaders first: followers hear of members by the same heartbeats, but later than those who ask the leader."""
    ranked = [
        (id_ != MASTER_ID, name, address)
        for name, addresses in route.brokers.items()
        for id_, address in addresses.items()
    ]
    return [address for _, _, address in sorted(ranked)]
