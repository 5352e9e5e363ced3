"""The proxy as a client of brokers, ours or Java's: routes, connections, requests to the leader of a broker's group.

Where a leader is replaced, the request goes to the next leader within the time that the caller has, unless the request
may have been carried out already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from auth.credentials import Credentials
from mqclient.answer import Answer
from mqclient.client_api import ClientApi
from mqclient.errors import (
    BrokerResponseError,
    MQClientError,
    NoAnswerError,
    NoMasterError,
    RouteNotFoundError,
    TopicUnknownError,
)
from mqclient.route.route_table import RouteTable
from mqclient.route.topic_route import TopicRoute
from proxy.grpc.call import Call
from proxy.protocol.definition import Code
from proxy.status import StatusError
from proxy.tasks import Tasks
from remoting.bodies.bodies import ClusterInfo
from remoting.channel import Channel
from remoting.client import Connect, RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand

log = logging.getLogger(__name__)

# RocketMQ's clients wait this long for an answer other than a long poll's, if their call has no deadline.
TIMEOUT_S: Final = 3.0
_FORGET_AFTER_S: Final = 300.0  # topics that no client asks for: as long as RocketMQ's proxy keeps them
_ANSWER_S: Final = 0.1  # kept back of a call's time, so that the answer reaches the client
_PAUSE_S_MIN: Final = 0.02
_PAUSE_S_MAX: Final = 0.2
# A leader that was paused or cut off keeps its connections open and answers nothing. After this time the NameServers
# are asked who leads now.
_STALLED_AFTER_S: Final = 0.5
_SUCCESS: Final = frozenset({ResponseCode.SUCCESS})
# Answers of a member that does not lead (yet), or of a broker that stops: the request was not carried out.
_NOT_LEADING: Final = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE})


class Brokers:
    """Invariant: after `close` no task of this object is left and every connection is closed."""

    def __init__(
        self,
        namesrv_addresses: Collection[str],
        *,
        on_request: Callable[[Channel, RemotingCommand], None] | None = None,
        on_route_change: Callable[[], None] | None = None,
        connect: Connect | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`on_request` is called with requests of brokers; `on_route_change` when a route has changed, for example
        because a broker is new or has a new leader. With `credentials` each request is signed."""
        self._on_route_change = on_route_change
        self.tasks = Tasks()
        self._remoting = RemotingClient(
            on_request=on_request,
            connect=connect,
            before_request=None if credentials is None else credentials.sign,
        )
        self.api = ClientApi(self._remoting, timeout_s=TIMEOUT_S)
        self.routes = RouteTable(
            list(namesrv_addresses),
            self.api.topic_route,
            forget_after_s=_FORGET_AFTER_S,
            on_change=self._route_changed,
        )

    def start(self) -> None:
        self.routes.start_polling()

    async def close(self) -> None:
        await self.tasks.close()
        await self.routes.close()
        await self._remoting.close()

    async def fresh_route(self, topic: str) -> TopicRoute:
        """Ask the NameServers for the route; return the cached one if none answers. Raises RouteNotFoundError."""
        try:
            return await self.routes.refresh(topic)
        except TopicUnknownError:
            raise
        except RouteNotFoundError:
            route = self.routes.cached(topic)
            if route is None:
                raise
            return route

    async def cluster_info(self) -> ClusterInfo:
        """Of the first NameServer that answers. Raises MQClientError."""
        *others, last = self.routes.namesrv_addresses
        for address in others:
            with suppress(MQClientError):
                return await self.api.cluster_info(address)
        return await self.api.cluster_info(last)

    async def leader(self, topic: str, broker_name: str) -> str:
        """Return the address of the broker's leader.

        Raises NoMasterError, RouteNotFoundError, and StatusError where the topic is not on that broker.
        """
        route = await self.routes.route(topic)
        if broker_name not in route.brokers:
            route = await self.routes.refresh(topic)
        if broker_name not in route.brokers:
            raise StatusError(Code.BAD_REQUEST, f"broker {broker_name} is none of topic {topic}")
        address = route.master_address(broker_name)
        if address is None:
            raise NoMasterError(f"broker {broker_name} has no leader now")
        return address

    async def ask(
        self,
        topic: str,
        broker_name: str,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        timeout_s: float = TIMEOUT_S,
        accept: Collection[int] = _SUCCESS,
        repeat_unknown: bool = False,
    ) -> Answer:
        """Send a request to the broker's leader and return the answer, whose code is one of `accept`.

        While the group elects, look for the leader again and again. With `repeat_unknown` a request that may have been
        carried out already is sent again as well.

        Raises MQClientError, and StatusError as `leader` does.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        pause_s = _PAUSE_S_MIN
        while True:
            try:
                return await self.ask_once(
                    *(topic, broker_name, code, fields, body), timeout_s=deadline - loop.time(), accept=accept
                )
            except MQClientError as error:
                may_repeat = was_not_done(error) or (repeat_unknown and error.retriable)
                if not may_repeat or loop.time() + pause_s >= deadline:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)
            await self.look_for_leader(topic)

    async def ask_once(
        self,
        topic: str,
        broker_name: str,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        timeout_s: float = TIMEOUT_S,
        accept: Collection[int] = _SUCCESS,
    ) -> Answer:
        """Like `ask`, but try once, at the leader that is known now. Raises MQClientError, StatusError."""
        address = await self.leader(topic, broker_name)
        loop = asyncio.get_running_loop()

        watch: asyncio.TimerHandle | None = None

        def stalled() -> None:
            nonlocal watch
            self.tasks.spawn(self.look_for_leader(topic))
            watch = loop.call_later(_STALLED_AFTER_S, stalled)

        # A long poll is not late before its wait is over.
        watch = loop.call_later(max(timeout_s - TIMEOUT_S, 0.0) + _STALLED_AFTER_S, stalled)
        try:
            answer = await self.api.ask(address, code, fields, body, timeout_s=max(timeout_s, 0.001))
        finally:
            watch.cancel()
        if answer.code not in accept:
            raise BrokerResponseError(answer.code, answer.remark, address)
        return answer

    async def look_for_leader(self, topic: str) -> None:
        """Ask the NameServers who leads now, so that the next request goes there. If none answers, nothing changes."""
        with suppress(MQClientError):
            await self.routes.refresh(topic)

    def _route_changed(self, route: TopicRoute, before: TopicRoute | None) -> None:
        if before is not None:
            for name in before.brokers:
                replaced, leader = before.master_address(name), route.master_address(name)
                if replaced is not None and leader is not None and leader != replaced:
                    self._remoting.abort_connection(replaced)
        if self._on_route_change is not None:
            self._on_route_change()


def was_not_done(error: MQClientError) -> bool:
    """Whether the request surely was not carried out, so that it may be sent again, to the next leader."""
    match error:
        case NoMasterError():
            return True
        case NoAnswerError():
            return error.definite and error.retriable
        case BrokerResponseError():
            return error.code in _NOT_LEADING
    return False


def time_left_s(call: Call) -> float:
    """Return how long requests to brokers may take for the client to have its answer in time."""
    if call.deadline is None:
        return TIMEOUT_S
    left_s = call.deadline - asyncio.get_running_loop().time() - _ANSWER_S
    return min(max(left_s, 0.05), TIMEOUT_S)


def queue_counts(route: TopicRoute) -> Mapping[str, tuple[int, int]]:
    """Count the queues of each broker that can be read, and those that can be written to, sorted by broker name."""
    counts = {name: [0, 0] for name in sorted(route.brokers)}
    for at, queues in enumerate((route.subscribe_queues, route.write_queues)):
        for queue in queues:
            if queue.broker_name in counts:
                counts[queue.broker_name][at] += 1
    return {name: (read, write) for name, (read, write) in counts.items()}
