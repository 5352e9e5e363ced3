"""Routes of topics, as the NameServers have them: which queues a topic has at all brokers of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from remoting.bodies.bodies import TopicRouteData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from remoting.frame.command import request

TIMEOUT_S: Final = 1.0
# A route is asked for again after so long. What was known before goes on where no NameServer answers.
FRESH_S: Final = 2.0
TOPICS_MAX: Final = 4096

OnRoute = Callable[[TopicRouteData | None], None]  # None: there is none, as far as anybody knows
AskRoute = Callable[[str, OnRoute], None]


class RouteRequests:
    """Invariant: each that asks is told once. A topic is asked for once at a time."""

    def __init__(self, client: RemotingClient, name_servers: Sequence[str]) -> None:
        self._client = client
        self._name_servers = name_servers
        self._known: dict[str, tuple[float, TopicRouteData]] = {}  # with the time of the answer
        self._asking: dict[str, list[OnRoute]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, topic: str, on_route: OnRoute) -> None:
        loop = asyncio.get_running_loop()
        asked_at, route = self._known.get(topic, (0.0, None))
        if route is not None and loop.time() - asked_at < FRESH_S:
            on_route(route)
            return
        waiting = self._asking.setdefault(topic, [])
        waiting.append(on_route)
        if len(waiting) == 1:
            task = loop.create_task(self._ask(topic))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, topic: str) -> None:
        _, route = self._known.get(topic, (0.0, None))
        for address in self._name_servers:
            command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, opaque=0)
            try:
                answer = await self._client.invoke(address, command, TIMEOUT_S)
                if answer.code == ResponseCode.SUCCESS:
                    route = TopicRouteData.decode(answer.body)
                    self._known[topic] = (asyncio.get_running_loop().time(), route)
                elif answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._known.pop(topic, None)
                    route = None
                break
            except RemotingError:
                continue
        while len(self._known) > TOPICS_MAX:
            del self._known[next(iter(self._known))]
        for on_route in self._asking.pop(topic):
            on_route(route)
