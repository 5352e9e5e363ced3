"""Sends messages from a worker, and returns when brokers have acknowledged all of them.

Some go out in one write to each leader, and the next ones when these are acknowledged. What ends unknown is sent again,
with the same id: at least once. Messages with a sharding key wait for their own queue, whoever leads it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Final, NamedTuple

from message.names import AUTO_CREATE_TOPIC_KEY_TOPIC
from message.tags import java_hash
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.patience import NotNowError, Patience
from pyspark_dledger.wire.queue_range import Queue
from pyspark_dledger.wire.read_errors import SendRefusedError
from pyspark_dledger.wire.topic_route import find_in_route, leaders_of
from remoting.blocking_connection import BlockingConnection
from remoting.bodies.bodies import TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError

_AT_ONCE: Final = 256  # messages
_AT_ONCE_SIZE: Final = 1024 * 1024  # bytes of bodies, but for the last one
_SEND_TIMEOUT_S: Final = 10.0
_PERM_WRITE: Final = 2
# Stored, though perhaps not as surely as the broker was configured to store it: as clients count them.
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
_NOT_NOW: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.GO_AWAY,
    }
)


@dataclass(frozen=True, slots=True)
class SendOptions:
    cluster: ClusterAccess
    producer_group: str
    timeout_ms: int  # without an acknowledgement


class SinkMessage(NamedTuple):
    topic: str
    sharding_key: str  # empty: any queue
    properties: str
    body: bytes


class Route(NamedTuple):
    """Of one topic: all queues that are written to, in one order, and who leads their brokers."""

    queues: tuple[Queue, ...]
    leaders: dict[str, str]


class MessageSender:
    """One task's. Whoever makes it closes it."""

    def __init__(self, options: SendOptions) -> None:
        self._options = options
        self._routes: dict[str, Route] = {}
        self._connections: dict[str, BlockingConnection] = {}
        self._turns = count()  # of queues

    def send(self, messages: Iterator[SinkMessage]) -> int:
        """Returns how many there were. Raises ReadTimeoutError, SendRefusedError."""
        sent = 0
        while some := _some_of(messages):
            self._send_some(some)
            sent += len(some)
        return sent

    def _send_some(self, messages: Sequence[SinkMessage]) -> None:
        patience = Patience(self._options.timeout_ms)
        todo = list(messages)
        while todo:
            before = len(todo)
            todo, trouble = self._round(todo)
            if len(todo) < before:
                patience.refresh()
            if todo:
                self.close()
                self._routes.clear()
                patience.pause(f"topic {todo[0].topic}: no acknowledgement", trouble)

    def _round(self, messages: Sequence[SinkMessage]) -> tuple[list[SinkMessage], Exception]:
        """Sends each once. Returns those that are to be sent again, and why."""
        by_leader: dict[str, list[tuple[SinkMessage, Queue]]] = {}
        left: list[SinkMessage] = []
        trouble: Exception = NotNowError("none")
        for message in messages:
            try:
                queue, leader = self._place(message)
            except (RemotingError, NotNowError) as error:
                left.append(message)
                trouble = error
            else:
                by_leader.setdefault(leader, []).append((message, queue))
        for leader, some in by_leader.items():
            unanswered = {}
            try:
                connection = self._connected(leader)
                fields = [self._fields(message, queue) for message, queue in some]
                opaques = connection.send_many(
                    RequestCode.SEND_MESSAGE_V2,
                    zip(fields, (message.body for message, _ in some), strict=True),
                )
                unanswered = {opaque: message for opaque, (message, _) in zip(opaques, some, strict=True)}
                for _ in some:
                    answer = connection.receive(_SEND_TIMEOUT_S)
                    message = unanswered.pop(answer.opaque)
                    if answer.code in _NOT_NOW:
                        left.append(message)
                        trouble = NotNowError(f"{leader} answers {answer.code} {answer.remark or ''}")
                    elif answer.code not in _STORED:
                        raise SendRefusedError(
                            f"topic {message.topic}: {leader} answers {answer.code} {answer.remark or ''}"
                        )
            except RemotingError as error:
                left += unanswered.values() if unanswered else (message for message, _ in some)
                trouble = error
        return left, trouble

    def _place(self, message: SinkMessage) -> tuple[Queue, str]:
        """Its queue, and who leads that. Raises RemotingError, NotNowError."""
        topic = message.topic
        route = self._routes.get(topic)
        if route is None:
            route = self._routes[topic] = write_route(self._options.cluster, topic)
        if message.sharding_key:
            # As Java's SelectMessageQueueByHash; all queues count, whether or not their group has a leader now.
            queue = route.queues[abs(java_hash(message.sharding_key)) % len(route.queues)]
        else:
            led = [queue for queue in route.queues if queue.broker in route.leaders] or route.queues
            queue = led[next(self._turns) % len(led)]
        if queue.broker not in route.leaders:
            raise NotNowError(f"broker {queue.broker} has no leader now")
        return queue, route.leaders[queue.broker]

    def _fields(self, message: SinkMessage, queue: Queue) -> dict[str, str]:
        """Of SEND_MESSAGE_V2, in the order in which Java's client has them."""
        return {
            "a": self._options.producer_group,
            "b": message.topic,
            "c": AUTO_CREATE_TOPIC_KEY_TOPIC,
            "d": "4",
            "e": str(queue.queue_id),
            "f": "0",
            "g": str(time.time_ns() // 1_000_000),
            "h": "0",
            "i": message.properties,
            "j": "0",
            "k": "false",
            "m": "false",
            "n": queue.broker,
        }

    def _connected(self, address: str) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self._options.cluster.connection(address)
        return connection

    def close(self) -> None:
        """What is asked next connects anew."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def write_route(cluster: ClusterAccess, topic: str) -> Route:
    """Raises NotNowError."""

    def find(route: TopicRouteData) -> Route:
        queues = tuple(
            Queue(topic, data.broker_name, queue_id)
            for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
            if data.perm & _PERM_WRITE
            for queue_id in range(data.write_queue_nums)
        )
        if not queues:
            raise NotNowError(f"knows no queue of topic {topic} that may be written to")
        return Route(queues, leaders_of(route))

    return find_in_route(cluster, topic, find)


def _some_of(messages: Iterator[SinkMessage]) -> list[SinkMessage]:
    """The next ones, none at the end."""
    some: list[SinkMessage] = []
    size = 0
    for message in islice(messages, _AT_ONCE):
        some.append(message)
        size += len(message.body)
        if size >= _AT_ONCE_SIZE:
            break
    return some
