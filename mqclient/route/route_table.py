"""Routes of topics: cached, fetched from the NameServers, fetched again when someone saw them fail.

Who decides what: this table knows addresses and how old its knowledge is; producer and consumer tell it what failed.
It starts no task of its own except the poll, and uses nothing but the running loop's time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from mqclient.errors import ClientClosedError, MQClientError, RouteNotFoundError, TopicUnknownError
from mqclient.route.topic_route import TopicRoute

log = logging.getLogger(__name__)

FetchRoute = Callable[[str, str], Awaitable[TopicRoute | None]]
"""(NameServer address, topic) -> the route, or None if that NameServer does not know the topic; raises on trouble."""


class RouteTable:
    """Invariant: at most one request per topic is under way; those who ask meanwhile get its answer."""

    def __init__(
        self,
        namesrv_addresses: Sequence[str],
        fetch: FetchRoute,
        *,
        poll_interval_s: float = 5.0,
        forget_after_s: float | None = None,
        on_change: Callable[[TopicRoute, TopicRoute | None], None] | None = None,
    ) -> None:
        """`forget_after_s`: how long a topic is polled that nobody asks for. None: always, for heartbeats go to the
        brokers of all topics that are known here."""
        if not namesrv_addresses:
            raise ValueError("at least one NameServer address is needed")
        self.namesrv_addresses = list(namesrv_addresses)
        self._fetch = fetch
        self._poll_interval_s = poll_interval_s
        self._forget_after_s = forget_after_s
        self._on_change = on_change
        self._routes: dict[str, TopicRoute] = {}
        self._asked_at: dict[str, float] = {}  # of the topics that have a route
        self._under_way: dict[str, asyncio.Task[TopicRoute]] = {}
        self._poll_task: asyncio.Task[None] | None = None
        self._is_closed = False

    def cached(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    def topics(self) -> list[str]:
        return sorted(self._routes)

    async def route(self, topic: str) -> TopicRoute:
        """The cached route, or the NameServers' answer. Raises RouteNotFoundError."""
        route = self._routes.get(topic)
        if route is None:
            return await self.refresh(topic)
        self._asked_at[topic] = asyncio.get_running_loop().time()
        return route

    async def refresh(self, topic: str) -> TopicRoute:
        """The NameServers' answer of now. Raises RouteNotFoundError, which is a TopicUnknownError where one of them
        says so; the cached route then stays. ClientClosedError."""
        route = await self._ask(topic)
        self._asked_at[topic] = asyncio.get_running_loop().time()
        return route

    def start_polling(self) -> None:
        """Refreshes every known topic in turn, until `close`."""
        self._poll_task = asyncio.get_running_loop().create_task(self._poll())

    async def close(self) -> None:
        self._is_closed = True
        tasks = list(self._under_way.values())
        if self._poll_task is not None:
            tasks.append(self._poll_task)  # type: ignore[arg-type]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, topic: str) -> TopicRoute:
        if self._is_closed:
            raise ClientClosedError("closed")
        task = self._under_way.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._refresh(topic))
            self._under_way[topic] = task
            task.add_done_callback(lambda done: self._refresh_ended(topic, done))
        # One waiter's cancellation must not take the answer from the others.
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._is_closed:
                raise ClientClosedError("closed") from None  # nobody cancelled the waiter
            raise

    def _refresh_ended(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        del self._under_way[topic]
        if not task.cancelled():
            task.exception()  # looked at here, as every waiter may have gone

    async def _refresh(self, topic: str) -> TopicRoute:
        trouble = ""
        cause: MQClientError | None = None
        is_unknown = False
        for _ in range(len(self.namesrv_addresses)):
            address = self.namesrv_addresses[0]
            try:
                route = await self._fetch(address, topic)
            except MQClientError as error:
                cause, trouble = error, str(error)  # which names the address
                self.namesrv_addresses.append(self.namesrv_addresses.pop(0))
                continue
            if route is None:
                # Another one may know it: NameServers share nothing, and this one may have just started.
                trouble = f"topic {topic} is not known to the NameServer {address}"
                is_unknown = True
                self.namesrv_addresses.append(self.namesrv_addresses.pop(0))
                continue
            self._store(route)
            return route
        if is_unknown:
            raise TopicUnknownError(trouble)
        raise RouteNotFoundError(trouble) from cause

    def _store(self, route: TopicRoute) -> None:
        before = self._routes.get(route.topic)
        if before == route:
            return
        self._routes[route.topic] = route
        self._asked_at.setdefault(route.topic, asyncio.get_running_loop().time())
        log.info(
            "route changed topic=%s masters=%s", route.topic, {n: a.get(0) for n, a in route.brokers.items()}
        )
        if self._on_change is not None:
            self._on_change(route, before)

    async def _poll(self) -> None:
        failing: set[str] = set()  # and said so
        while True:
            await asyncio.sleep(self._poll_interval_s)
            self._forget_unused()
            failing.intersection_update(self._routes)
            for topic in self.topics():
                try:
                    await self._ask(topic)
                    failing.discard(topic)
                except RouteNotFoundError as error:
                    if topic not in failing:
                        log.warning("route poll failed topic=%s reason=%s", topic, error)
                        failing.add(topic)

    def _forget_unused(self) -> None:
        if self._forget_after_s is None:
            return
        until = asyncio.get_running_loop().time() - self._forget_after_s
        for topic in [topic for topic, asked_at in self._asked_at.items() if asked_at < until]:
            del self._asked_at[topic]
            self._routes.pop(topic, None)
