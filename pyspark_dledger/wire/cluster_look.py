"""What the driver asks a cluster: which queues there are, and where they begin and end.

Ends come from the leader after a read index, so they are committed and never move back. The driver alone loads this:
it needs mqclient, and so an event loop.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from message.names import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS, is_retry_or_dlq_topic
from mqclient.client_api import ClientApi
from mqclient.errors import (
    BrokerResponseError,
    MQClientError,
    NoAnswerError,
    NoMasterError,
    RouteNotFoundError,
    TopicUnknownError,
)
from mqclient.loop_thread import LoopThread
from mqclient.message_queue import MessageQueue
from mqclient.route.route_table import RouteTable
from pyspark_dledger.wire.message_options import PullOptions, Subscription
from pyspark_dledger.wire.queue_range import Queue
from pyspark_dledger.wire.read_errors import ReadTimeoutError
from remoting.client import RemotingClient
from remoting.codes import ResponseCode

T = TypeVar("T")

_AT_ONCE: Final = 64  # queues that are asked about
_PAUSE_S: Final = 0.1
# It leads no more, does not serve yet, or has too much to do.
_NOT_NOW: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)


class QueueBounds(NamedTuple):
    begin: int  # of the first message that is there
    end: int  # of the next one that will be


class ClusterLook:
    """Use it as `with ClusterLook(options) as look`. What may pass by itself is waited for. Raises ReadTimeoutError,
    and MQClientError for what will not pass."""

    def __init__(self, options: PullOptions) -> None:
        self._timeout_s = options.timeout_ms / 1000
        self._namesrv = options.namesrv
        self._thread = LoopThread("pyspark-dledger")
        self._remoting: RemotingClient | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._thread.call_soon(self._begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.call(self._end())
        finally:
            self._thread.close()

    def queues(self, subscription: Subscription) -> list[Queue]:
        """Those that there are now, in one order. A topic that is named and not there is waited for."""
        if subscription.queues:
            return list(subscription.queues)
        return self._thread.call(self._patiently(lambda: self._queues(subscription)))

    def bounds(self, queues: Collection[Queue]) -> dict[Queue, QueueBounds]:
        return self._of_each(queues, self._bounds)

    def offsets_at(self, times: Iterable[tuple[Queue, int]]) -> dict[Queue, int]:
        """Of each queue the first message that is not older than the time in ms; its end if all are."""
        by_queue = dict(times)
        return self._of_each(by_queue, lambda queue: self._offset_at(queue, by_queue[queue]))

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Returns when the group has them: on disk at a majority, where the brokers' flush mode says so."""
        self._of_each(offsets, lambda queue: self._commit(group, queue, offsets[queue]))

    def _of_each(
        self, queues: Collection[Queue], ask: Callable[[Queue], Coroutine[Any, Any, T]]
    ) -> dict[Queue, T]:
        return self._thread.call(self._gathered(queues, ask))

    async def _gathered(
        self, queues: Collection[Queue], ask: Callable[[Queue], Coroutine[Any, Any, T]]
    ) -> dict[Queue, T]:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(queue: Queue) -> T:
            async with limit:
                return await self._patiently(lambda: ask(queue), queue.topic)

        return dict(zip(queues, await asyncio.gather(*map(one, queues)), strict=True))

    def _begin(self) -> None:
        self._remoting = RemotingClient()
        self._api = ClientApi(self._remoting)
        self._routes = RouteTable(self._namesrv, self._api.topic_route)

    async def _end(self) -> None:
        await self._routes.close()
        if self._remoting is not None:
            await self._remoting.close()

    async def _queues(self, subscription: Subscription) -> list[Queue]:
        topics = subscription.topics or await self._matching(subscription.pattern)
        found = []
        for topic in topics:
            try:
                route = await self._routes.refresh(topic)
            except TopicUnknownError:
                if subscription.topics:
                    raise
                continue  # deleted since the list was made
            found += [Queue(*queue) for queue in route.subscribe_queues]
        return sorted(found)

    async def _matching(self, pattern: str) -> list[str]:
        """Topics of applications: those of the system and of groups are to be named."""
        matches = re.compile(pattern).fullmatch
        trouble: MQClientError | None = None
        for address in self._namesrv:
            try:
                names = await self._api.topic_list(address)
            except MQClientError as error:
                trouble = error
                continue
            return [name for name in names if matches(name) and not _is_of_system(name)]
        assert trouble is not None, "there is at least one NameServer"
        raise trouble

    async def _bounds(self, queue: Queue) -> QueueBounds:
        address, asked = await self._leader(queue), MessageQueue(*queue)
        # The end first: a topic that is made again in between would else seem to go back.
        end = await self._api.max_offset(address, asked)
        return QueueBounds(min(await self._api.min_offset(address, asked), end), end)

    async def _offset_at(self, queue: Queue, time_ms: int) -> int:
        return await self._api.search_offset(await self._leader(queue), MessageQueue(*queue), time_ms)

    async def _commit(self, group: str, queue: Queue, offset: int) -> None:
        address = await self._leader(queue)
        await self._api.update_consumer_offset(address, group, MessageQueue(*queue), offset)

    async def _leader(self, queue: Queue) -> str:
        address = (await self._routes.route(queue.topic)).master_address(queue.broker)
        if address is None:
            raise NoMasterError(f"broker {queue.broker} has no leader now")
        return address

    async def _patiently(self, ask: Callable[[], Coroutine[Any, Any, T]], topic: str = "") -> T:
        """Asks until there is an answer. `topic`: whose route is looked at again after trouble."""
        deadline = monotonic() + self._timeout_s
        while True:
            try:
                return await ask()
            except MQClientError as error:
                if not _may_pass(error):
                    raise
                if monotonic() > deadline:
                    raise ReadTimeoutError(f"no answer for {self._timeout_s:g} s: {error}") from error
            await asyncio.sleep(_PAUSE_S)
            if topic:
                try:
                    await self._routes.refresh(topic)
                except MQClientError:
                    continue  # what is asked next says it


def _may_pass(error: MQClientError) -> bool:
    if isinstance(error, BrokerResponseError):
        return error.code in _NOT_NOW
    return isinstance(error, NoAnswerError | NoMasterError | RouteNotFoundError)


def _is_of_system(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX) or is_retry_or_dlq_topic(topic)
