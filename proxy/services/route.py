"""QueryRoute and QueryAssignment: which queues a topic has, and where clients reach them, which is always a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Address
from typing import Final

from proxy.brokers import Brokers, queue_counts
from proxy.config import ProxyConfig
from proxy.grpc.call import Call
from proxy.messages.names import check_group, check_topic
from proxy.metadata import Metadata
from proxy.protocol.definition import (
    Address,
    AddressScheme,
    Assignment,
    Broker,
    Code,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
)
from proxy.protocol.service import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from proxy.status import StatusError, status
from remoting.address import literal

# The queue id of an assignment of all of a broker's queues, for consumers that pop.
ALL_QUEUES: Final = -1
REQUEST_SIZE_MAX: Final = 4096
_OF_MIXED: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
_TYPES: Final = {
    MessageType.Name(each): each for each in (*_OF_MIXED, MessageType.LITE, MessageType.PRIORITY)
}


class RouteService:
    def __init__(self, config: ProxyConfig, brokers: Brokers, metadata: Metadata) -> None:
        self._config = config
        self._brokers = brokers
        self._metadata = metadata

    async def query_route(self, request: QueryRouteRequest, call: Call) -> QueryRouteResponse:
        _check_size(request)
        topic = check_topic(request.topic)
        route = await self._brokers.fresh_route(topic)
        types = accepted_types(await self._metadata.topic_type(topic))
        endpoints = self._endpoints(request.endpoints)
        queues = [
            MessageQueue(
                topic=request.topic,
                id=number,
                permission=permission,
                broker=Broker(name=name, endpoints=endpoints),
                accept_message_types=types,
            )
            for name, (readable, writable) in queue_counts(route).items()
            for number, permission in enumerate(_permissions(readable, writable))
        ]
        return QueryRouteResponse(status=status(Code.OK), message_queues=queues)

    async def query_assignment(self, request: QueryAssignmentRequest, call: Call) -> QueryAssignmentResponse:
        _check_size(request)
        topic = check_topic(request.topic)
        group = check_group(request.group)
        route = await self._brokers.fresh_route(topic)
        is_fifo = (await self._metadata.known_group_config(group, topic)).consume_message_orderly
        endpoints = self._endpoints(request.endpoints)
        assignments = [
            Assignment(
                message_queue=MessageQueue(
                    topic=request.topic,
                    id=number,
                    permission=Permission.READ_WRITE if writable else Permission.READ,
                    broker=Broker(name=name, endpoints=endpoints),
                )
            )
            for name, (readable, writable) in queue_counts(route).items()
            if readable
            for number in (range(readable) if is_fifo else (ALL_QUEUES,))
        ]
        if not assignments:
            raise StatusError(Code.FORBIDDEN, f"no readable queue in topic {topic}")
        return QueryAssignmentResponse(status=status(Code.OK), assignments=assignments)

    def _endpoints(self, asked: Endpoints) -> Endpoints:
        """Return the advertised endpoint. Without one, return the endpoints of the request: the client has reached the
        proxy there, maybe through a balancer."""
        advertised = self._config.advertised_endpoint
        if advertised is not None:
            return Endpoints(
                scheme=_scheme(advertised.host),
                addresses=[Address(host=advertised.host, port=advertised.port)],
            )
        scheme = asked.scheme or AddressScheme.IPv4
        if self._config.use_endpoint_port_from_request:
            return Endpoints(scheme=scheme, addresses=asked.addresses)
        port = self._config.grpc_server_port
        return Endpoints(
            scheme=scheme, addresses=[Address(host=address.host, port=port) for address in asked.addresses]
        )


def _check_size(request: QueryRouteRequest | QueryAssignmentRequest) -> None:
    """Raise StatusError for a large request: the answer holds a copy of its topic and endpoints for each queue."""
    if (size := request.ByteSize()) > REQUEST_SIZE_MAX:
        message = f"topic, group and endpoints have {size} bytes, {REQUEST_SIZE_MAX} are allowed"
        raise StatusError(Code.ILLEGAL_ACCESS_POINT, message)


def accepted_types(topic_type: str) -> list[MessageType]:
    """Return which messages a topic of this type takes. Clients check that before they send."""
    return [_TYPES[topic_type]] if topic_type in _TYPES else list(_OF_MIXED)


def _permissions(readable: int, writable: int) -> Iterator[Permission]:
    """Yield the permission of each queue, in RocketMQ's order."""
    both = min(readable, writable)
    for permission, count in (
        (Permission.READ, readable - both),
        (Permission.WRITE, writable - both),
        (Permission.READ_WRITE, both),
    ):
        for _ in range(count):
            yield permission


def _scheme(host: str) -> AddressScheme:
    address = literal(host)
    if address is None:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv6 if isinstance(address, IPv6Address) else AddressScheme.IPv4
