"""What the driver asks a cluster: which queues there are, and where they begin and end.

Ends come from the leader after a read index, so they are committed and never move back. The driver alone loads this:
it needs mqclient, and so an event loop.
"""

from __future__ import annotations

import asyncio
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from dledger.entry import GENESIS_CHAIN, parse_header
from message.names import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS, is_retry_or_dlq_topic
from message.tags import SUB_ALL
from mqclient.client_api import ClientApi
from mqclient.client_instance import local_ip
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
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.entry_offset import LogRange
from pyspark_dledger.wire.message_options import Subscription
from pyspark_dledger.wire.proof import LogBounds, Proof
from pyspark_dledger.wire.queue_range import Queue, QueueRange
from pyspark_dledger.wire.read_errors import ReadTimeoutError
from remoting.bodies.admin_bodies import QueryConsumeQueueResponseBody
from remoting.bodies.bodies import MASTER_ID, ClusterInfo, ConsumerData, HeartbeatData, SubscriptionData
from remoting.client import Connect, RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingUntrustedError
from remoting.frame.command import RemotingCommand
from remoting.headers.admin_headers import QueryConsumeQueueRequestHeader
from remoting.headers.headers import to_ext_fields

T = TypeVar("T")

_INDEX_MAX: Final = (1 << 63) - 1  # behind all entries
_UNITS_AT_ONCE: Final = 1000  # brokers give no more
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

# RocketMQ's brokers, one without a group, and a client that may not look at the cluster.
_NO_ENTRIES: Final = frozenset({ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION})


class QueueBounds(NamedTuple):
    begin: int  # of the first message that is there
    end: int  # of the next one that will be


class ClusterLook:
    """Use it as `with ClusterLook(cluster, timeout_ms) as look`. What may pass by itself is waited for. Raises
    ReadTimeoutError, and AccessError and MQClientError for what will not pass."""

    def __init__(self, cluster: ClusterAccess, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        self._cluster = cluster
        self._thread = LoopThread("pyspark-dledger")
        self._remoting: RemotingClient | None = None
        self._greeted: set[tuple[str, str]] = set()  # consumer groups and brokers

    def __enter__(self) -> Self:
        tls, signer = self._cluster.tls(), self._cluster.signer()
        self._thread.start()
        self._thread.call_soon(lambda: self._begin(None if tls is None else tls.connect, signer))
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
        brokers = {(group, queue.broker): queue for queue in offsets}
        strangers = [queue for broker, queue in brokers.items() if broker not in self._greeted]
        self._of_each(strangers, lambda queue: self._greet(group, queue))
        self._greeted |= brokers.keys()
        self._of_each(offsets, lambda queue: self._commit(group, queue, offsets[queue]))

    def groups(self, names: Collection[str]) -> list[str]:
        """Names of the groups of brokers: all, or these, which are waited for."""
        return self._thread.call(self._patiently(lambda: self._groups(names)))

    def committed(self, broker: str) -> LogBounds:
        """What the group's leader has, and knows to be committed."""
        return self._thread.call(self._patiently(lambda: self._committed(broker)))

    def committed_if_told(self, broker: str) -> LogBounds | None:
        """The same; None from brokers that give no entries, or none to this client."""
        try:
            return self.committed(broker)
        except BrokerResponseError as error:
            if error.code in _NO_ENTRIES:
                return None
            raise

    def proof_at(self, broker: str, index: int) -> Proof | None:
        """Of a committed entry, or of the one before the first that the leader has. None where it has expired."""
        return self._thread.call(self._patiently(lambda: self._proof_at(broker, index)))

    def fitting(self, part: QueueRange, size_max: int) -> tuple[int, int]:
        """How many messages from the range's first on have no more bytes as records, one at least, and their bytes.

        Of what has expired nothing counts. Messages of an inner batch count as the whole batch each.
        """
        return self._thread.call(self._fitting(part, size_max))

    def entries_fitting(self, part: LogRange, size_max: int) -> tuple[int, int]:
        """The same of entries, as bytes of the log."""
        begin, end = self._entry_place(part.broker, part.start)
        if end - begin >= size_max:
            return 1, end - begin
        others = range(part.start + 1, part.end)
        count = 1 + bisect_right(
            others, begin + size_max, key=lambda index: self._entry_place(part.broker, index)[1]
        )
        return count, self._entry_place(part.broker, part.start + count - 1)[1] - begin

    def _entry_place(self, broker: str, index: int) -> tuple[int, int]:
        """Where a committed entry begins and ends in the log."""
        return self._thread.call(self._patiently(lambda: self._place_of(broker, index)))

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

    def _begin(self, connect: Connect | None, signer: Callable[[RemotingCommand], None] | None) -> None:
        self._remoting = RemotingClient(connect=connect, before_request=signer)
        self._api = ClientApi(self._remoting)
        self._routes = RouteTable(self._cluster.namesrv, self._api.topic_route)

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
        names = await self._of_a_namesrv(self._api.topic_list)
        return [name for name in names if matches(name) and not _is_of_system(name)]

    async def _bounds(self, queue: Queue) -> QueueBounds:
        address, asked = await self._leader(queue), MessageQueue(*queue)
        # The end first: a topic that is made again in between would else seem to go back.
        end = await self._api.max_offset(address, asked)
        return QueueBounds(min(await self._api.min_offset(address, asked), end), end)

    async def _offset_at(self, queue: Queue, time_ms: int) -> int:
        return await self._api.search_offset(await self._leader(queue), MessageQueue(*queue), time_ms)

    async def _greet(self, group: str, queue: Queue) -> None:
        """Comes to the queue's broker as a consumer of the group, and goes. So the group gets its retry topic, by whose
        route RocketMQ's tools find the brokers that know its offsets.
        """
        address = await self._leader(queue)
        subscription = SubscriptionData(topic=queue.topic, sub_string=SUB_ALL)
        consumer = ConsumerData(group_name=group, subscription_data_set=[subscription])
        client_id = f"{local_ip()}@{os.getpid()}"
        await self._api.heartbeat(address, HeartbeatData(client_id=client_id, consumer_data_set=[consumer]))
        await self._api.unregister(address, client_id, consumer_group=group)

    async def _commit(self, group: str, queue: Queue, offset: int) -> None:
        address = await self._leader(queue)
        await self._api.update_consumer_offset(address, group, MessageQueue(*queue), offset)

    async def _fitting(self, part: QueueRange, size_max: int) -> tuple[int, int]:
        at, size = part.start, 0
        while at < part.end:
            begin, sizes = await self._patiently(
                partial(self._sizes, part._replace(start=at)), part.queue.topic
            )
            at = max(at, min(begin, part.end))
            for length in sizes[: part.end - at]:
                if size + length > size_max and at > part.start:
                    return at - part.start, size
                size += length
                at += 1
        return at - part.start, size

    async def _sizes(self, part: QueueRange) -> tuple[int, list[int]]:
        """The first offset that the queue still has, and sizes of messages from there or from the range's first on."""
        address = await self._leader(part.queue)
        header = QueryConsumeQueueRequestHeader(
            topic=part.queue.topic,
            queue_id=part.queue.queue_id,
            index=part.start,
            count=min(part.end - part.start, _UNITS_AT_ONCE),
        )
        answer = await self._api.call(address, RequestCode.QUERY_CONSUME_QUEUE, to_ext_fields(header))
        body = answer.read(QueryConsumeQueueResponseBody)
        if not body.queue_data and body.min_queue_index < part.end:
            raise NoMasterError(f"{address} does not know offset {part.start} of {part.queue}")
        return body.min_queue_index, [unit.physic_size for unit in body.queue_data]

    async def _place_of(self, broker: str, index: int) -> tuple[int, int]:
        address = await self._leader_of_group(broker)
        _, head = await self._api.entry_head(address, index)
        if not head:
            raise NoMasterError(f"{address} does not know entry {index}")
        header = parse_header(head)
        return header.pos, header.pos + header.size

    async def _groups(self, names: Collection[str]) -> list[str]:
        known = (await self._cluster_info()).broker_addr_table
        if missing := sorted(set(names) - set(known)):
            raise NoMasterError(f"no broker {missing[0]} is registered")
        return sorted(names or known)

    async def _committed(self, broker: str) -> LogBounds:
        told, _ = await self._api.entry_head(await self._leader_of_group(broker), _INDEX_MAX)
        return LogBounds(told.group_uuid, told.ledger_begin_index, told.committed_index)

    async def _proof_at(self, broker: str, index: int) -> Proof | None:
        address = await self._leader_of_group(broker)
        told, head = await self._api.entry_head(address, max(index, 0))
        if index + 1 == told.ledger_begin_index:
            if told.committed_index <= index:
                return Proof(told.group_uuid, index, -1, GENESIS_CHAIN)  # nothing was ever committed
            following, _ = await self._api.entry_head(address, index + 1)
            return Proof(told.group_uuid, index, -1, following.previous_chain)
        if index < told.ledger_begin_index:
            return None
        if not head:
            raise NoMasterError(f"{address} does not know yet that entry {index} is committed")
        header = parse_header(head)
        return Proof(told.group_uuid, index, header.term, header.chain_crc)

    async def _leader_of_group(self, broker: str) -> str:
        group = (await self._cluster_info()).broker_addr_table.get(broker)
        if group is None or MASTER_ID not in group.broker_addrs:
            raise NoMasterError(f"broker {broker} has no leader now")
        return group.broker_addrs[MASTER_ID]

    async def _cluster_info(self) -> ClusterInfo:
        """Of the first NameServer that answers."""
        return await self._of_a_namesrv(self._api.cluster_info)

    async def _of_a_namesrv(self, ask: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        trouble: MQClientError | None = None
        for address in self._cluster.namesrv:
            try:
                return await ask(address)
            except MQClientError as error:
                trouble = error
        assert trouble is not None, "there is at least one NameServer"
        raise trouble

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
    cause = error.__cause__
    if isinstance(error, RouteNotFoundError) and isinstance(cause, MQClientError):
        return _may_pass(cause)
    if isinstance(cause, RemotingUntrustedError):
        return False
    return isinstance(error, NoAnswerError | NoMasterError | RouteNotFoundError)


def _is_of_system(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX) or is_retry_or_dlq_topic(topic)
