"""What one producer or consumer has of its cluster: connections, routes, heartbeats (Java: MQClientInstance).

The owner says what its heartbeat tells (`heartbeat_body`) and hears of routes that changed and of requests that
brokers make. Heartbeats go to every broker of every known route, followers too: the one that leads next already knows
the group's members.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from auth.client_credentials import signer_of
from auth.credentials import Credentials
from mqclient.client_api import ClientApi
from mqclient.connecting import connect_of_environment
from mqclient.errors import ClientClosedError, MQClientError, NoMasterError
from mqclient.message_queue import MessageQueue
from mqclient.route.route_table import RouteTable
from mqclient.route.topic_route import TopicRoute
from remoting.address import AddressError, parse_addresses
from remoting.bodies.bodies import HeartbeatData
from remoting.channel import Channel
from remoting.client import Connect, RemotingClient
from remoting.frame.command import RemotingCommand

log = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_S = 0.5


class ClientInstance:
    """Invariant: after `close` no task of this object is left and every connection is closed."""

    def __init__(
        self,
        namesrv: str | None,
        *,
        heartbeat_body: Callable[[str], HeartbeatData],
        on_request: Callable[[Channel, RemotingCommand], None] | None = None,
        on_close: Callable[[str], None] | None = None,
        on_route_change: Callable[[TopicRoute], None] | None = None,
        instance_name: str = "",
        heartbeat_interval_s: float = 30.0,
        poll_name_server_interval_s: float = 5.0,
        credentials: Credentials | None = None,
        connect: Connect | None = None,
    ) -> None:
        """`credentials`: with which requests are signed; without them, those of the environment. Raises ValueError."""
        # Java's form; the time tells two instances of one process apart.
        self.client_id = f"{local_ip()}@{instance_name or f'{os.getpid()}#{time.perf_counter_ns()}'}"
        self.remoting = RemotingClient(
            on_request=on_request,
            on_close=on_close,
            connect=connect or connect_of_environment(),
            before_request=signer_of(credentials),
        )
        self.api = ClientApi(self.remoting)
        self.routes = RouteTable(
            parse_namesrv(namesrv),
            self.api.topic_route,
            poll_interval_s=poll_name_server_interval_s,
            on_change=self._route_changed,
        )
        self._heartbeat_body = heartbeat_body
        self._on_route_change = on_route_change
        self._heartbeat_interval_s = heartbeat_interval_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False
        self._closed = False

    def start(self) -> None:
        self._started = True
        self.routes.start_polling()
        self.spawn(self._heartbeats())

    async def close(self) -> None:
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.routes.close()
        await self.remoting.close()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def check_open(self) -> None:
        """Raises ClientClosedError before `start` and after `close`."""
        if self._closed or not self._started:
            raise ClientClosedError(
                "closed" if self._closed else "not started: use `async with`, or await start()"
            )

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with this instance."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def broker_addresses(self) -> list[str]:
        """Every broker of every known route, masters first."""
        ranked = {
            (id_ != 0, address)
            for topic in self.routes.topics()
            if (route := self.routes.cached(topic)) is not None
            for addresses in route.brokers.values()
            for id_, address in addresses.items()
        }
        return list(dict.fromkeys(address for _, address in sorted(ranked)))

    async def master_address(self, queue: MessageQueue) -> str:
        """Who leads the queue's broker. Raises NoMasterError, RouteNotFoundError."""
        address = (await self.routes.route(queue.topic)).master_address(queue.broker_name)
        if address is None:
            raise NoMasterError(f"broker {queue.broker_name} has no leader now")
        return address

    async def heartbeat(self) -> None:
        """One heartbeat to every known broker. Brokers that do not answer are passed over: the next one is soon."""
        await asyncio.gather(*map(self.heartbeat_to, self.broker_addresses()))

    async def unregister(self, *, producer_group: str = "", consumer_group: str = "") -> None:
        """Tells every known broker that we leave. One that does not answer in time finds out by the connection."""

        async def tell(address: str) -> None:
            with suppress(MQClientError):
                await self.api.unregister(
                    address, self.client_id, producer_group=producer_group, consumer_group=consumer_group
                )

        with suppress(TimeoutError):
            async with asyncio.timeout(UNREGISTER_TIMEOUT_S):
                await asyncio.gather(*map(tell, self.broker_addresses()))

    async def heartbeat_to(self, address: str) -> bool:
        """Returns False, with a line in the log, where the broker did not take it."""
        try:
            await self.api.heartbeat(address, self._heartbeat_body(self.client_id))
        except MQClientError as error:
            log.info("heartbeat failed to=%s reason=%s", address, error)
            return False
        return True

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_interval_s)
            await self.heartbeat()

    def _route_changed(self, route: TopicRoute, before: TopicRoute | None) -> None:
        if before is not None and not self._closed:
            # A broker that came back does not know us any more.
            self.spawn(self.heartbeat())
        if self._on_route_change is not None:
            self._on_route_change(route)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task ended", exc_info=error)


def parse_namesrv(text: str | None) -> list[str]:
    """`host:port;host:port` -> addresses; without a text, those of NAMESRV_ADDR in the environment. Raises ValueError
    naming the part that is none.
    """
    try:
        addresses = [str(address) for address in parse_addresses(text or os.environ.get("NAMESRV_ADDR", ""))]
    except AddressError as error:
        raise ValueError(f"NameServer address {error}: write host:port, several joined by ;") from None
    if not addresses:
        raise ValueError("no NameServer address: give host:port, several joined by ;, or set NAMESRV_ADDR")
    return addresses


def local_ip() -> str:
    """The address this machine would use to the outside; it names the client, nothing connects to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # documentation range; UDP connect sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
