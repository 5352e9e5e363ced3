"""The consumer: a member of a group, whose members share the queues of its topics (clustering) or each read all of
them (broadcasting).

At least once: an offset is committed only behind messages whose batch is done, so a member that ends in between has
its messages delivered again, to itself or, when clustering, to another one. Order holds within a queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress

from message.decoder import MessageExt
from message.names import group_fault, retry_topic, topic_fault
from message.tags import SUB_ALL, build_subscription
from mqclient.client_instance import ClientInstance
from mqclient.consumer_config import ConsumeFromWhere, ConsumerConfig, MessageModel
from mqclient.errors import MQClientError
from mqclient.local_file_offset_store import LocalFileOffsetStore
from mqclient.message_queue import MessageQueue
from mqclient.offset_store import OffsetStore, RemoteBrokerOffsetStore
from mqclient.process_queue import ConsumeBatch, ProcessQueue
from mqclient.puller import Puller
from mqclient.rebalance import all_queues, assigned_queues
from mqclient.topic_route import TopicRoute
from remoting.bodies import ConsumerData, HeartbeatData, SubscriptionData
from remoting.channel import Channel
from remoting.client import Connect
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand, response
from remoting.errors import RemotingError

log = logging.getLogger(__name__)

LAST_COMMIT_TIMEOUT_S = 3.0
# Java's. A broadcasting member finds its offsets file again by its client id, so that holds no process id.
BROADCASTING_INSTANCE_NAME = "DEFAULT"


class PushConsumer:
    """Use it as `async with PushConsumer(namesrv, group, {"T": "*"}) as consumer: async for message in consumer: …`.

    "Push" is RocketMQ's word for it: the client pulls with long polls and the application only sees messages come.
    Invariant: each queue of `_process_queues` has exactly one puller.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        subscriptions: Mapping[str, str],
        *,
        config: ConsumerConfig | None = None,
        instance_name: str = "",
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        connect: Connect | None = None,
    ) -> None:
        """`subscriptions`: topic to expression, `*` or `TagA || TagB`; every member of a group must have the same.

        `instance_name` tells apart the broadcasting members of a group on one machine, whose offsets go by it from run
        to run. Raises ValueError for a name or an expression that is none, LocalOffsetsError for a broadcasting member
        without a home directory and without `local_offset_store_dir`.
        """
        if (fault := group_fault(group)) is not None:
            raise ValueError(fault)
        for topic in subscriptions:
            if (fault := topic_fault(topic)) is not None:
                raise ValueError(fault)
        self.group = group
        self._config = config or ConsumerConfig()
        self._is_broadcasting = self._config.message_model is MessageModel.BROADCASTING
        if self._is_broadcasting:
            if "/" in instance_name or "\0" in instance_name:
                raise ValueError(
                    f"instance_name {instance_name!r}: it is part of a file's path, so without /"
                )
            instance_name = instance_name or BROADCASTING_INSTANCE_NAME
        retry = {} if self._is_broadcasting else {retry_topic(group): SUB_ALL}
        self._subscriptions = {
            topic: build_subscription(topic, expression, sub_version=now_ms())
            for topic, expression in (dict(subscriptions) | retry).items()
        }
        self._instance = ClientInstance(
            namesrv,
            heartbeat_body=self._heartbeat_body,
            on_request=self._on_request,
            on_route_change=self._on_route_change,
            instance_name=instance_name,
            poll_name_server_interval_s=self._config.poll_name_server_interval_s,
            connect=connect,
        )
        self._offset_store: OffsetStore = (
            LocalFileOffsetStore(self._config.local_offset_store_dir, self.client_id, group)
            if self._is_broadcasting
            else RemoteBrokerOffsetStore(self._instance, group)
        )
        self._process_queues: dict[MessageQueue, ProcessQueue] = {}
        self._pullers: dict[MessageQueue, tuple[Puller, asyncio.Task[None]]] = {}
        self._batches: asyncio.Queue[ConsumeBatch | None] = asyncio.Queue()
        self._rebalance_now = asyncio.Event()
        self._greet_again = False
        self._routes_missed: set[str] = set()  # topics whose missing route has been told

    @property
    def client_id(self) -> str:
        return self._instance.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues this member reads now."""
        return sorted(self._process_queues)

    @property
    def topics_without_route(self) -> list[str]:
        """Subscribed topics that no NameServer has known so far, or that none could be asked for."""
        return [
            topic
            for topic in self._subscriptions
            if topic != retry_topic(self.group) and self._instance.routes.cached(topic) is None
        ]

    async def start(self) -> None:
        """Joins the group. Topics that do not exist yet are looked for again with each rebalance.

        Raises LocalOffsetsError if a broadcasting member's offsets cannot be read, or could not be kept.
        """
        await self._offset_store.load()
        try:
            self._instance.start()
            await self._find_routes()
            await self._instance.heartbeat()
        except BaseException:
            # Who gives up here gets no consumer to close: `async with` has not begun.
            await self.close()
            raise
        self._instance.spawn(self._rebalance_loop())
        self._instance.spawn(self._persist_loop())
        if not self._is_broadcasting:
            self._instance.spawn(self._find_retry_topic())

    async def close(self) -> None:
        """Leaves the group: commits what is done, tells the brokers, ends `async for`.

        Cancelled, it leaves out what it was at, and still ends all that this consumer holds.
        """
        try:
            await self._leave()
        finally:
            self._batches.put_nowait(None)
            try:
                await self._instance.close()
            finally:
                await self._offset_store.close()

    async def _leave(self) -> None:
        for process_queue in self._process_queues.values():
            process_queue.drop()
        tasks = [task for _, task in self._pullers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_COMMIT_TIMEOUT_S):
                await self.commit()
        except TimeoutError:
            log.warning(
                "left group=%s without a last commit: some messages will be delivered again", self.group
            )
        await self._instance.unregister(consumer_group=self.group)

    async def __aenter__(self) -> PushConsumer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def take(self) -> ConsumeBatch | None:
        """The next batch of any queue, to be ended with `done` (or `send_back`); None once the consumer is closed.

        Several tasks may take at a time; offsets then move over the oldest batch that is done.
        """
        while True:
            batch = await self._batches.get()
            if batch is None:
                self._batches.put_nowait(None)  # for the next one who asks
                return None
            if not batch.is_dropped:
                return batch

    async def batches(self) -> AsyncIterator[ConsumeBatch]:
        """Batches, each counted as done when the next one is asked for."""
        while (batch := await self.take()) is not None:
            yield batch
            batch.done()

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        async for batch in self.batches():
            for message in batch.messages:
                yield message

    async def send_back(self, batch: ConsumeBatch) -> None:
        """The batch could not be processed: has it delivered again later, and ends it.

        The broker keeps count of the attempts and gives up into the dead letter queue. A broker that does not take it
        back leaves it to us: the batch is delivered again here, and meanwhile its queue's offset stands still.
        A broadcasting group has no such topics: the batch is given up, with a line in the log.
        """
        if self._is_broadcasting:
            log.warning(
                "given up, the group is broadcasting queue=%s offsets=%d to %d",
                batch.queue, batch.messages[0].queue_offset, batch.messages[-1].queue_offset,
            )  # fmt: skip
            batch.done()
            return
        try:
            for message in batch.messages:
                await self._send_back_message(batch.queue, message)
        except (RemotingError, MQClientError) as error:
            log.warning("not taken back queue=%s reason=%s", batch.queue, error)
            asyncio.get_running_loop().call_later(
                self._config.redeliver_after_s, self._batches.put_nowait, batch
            )
            return
        batch.done()

    async def commit(self) -> None:
        """Commits the offset of every queue that moved. Those that fail are tried again with the next commit."""
        await self._commit(self._process_queues.values())

    async def _send_back_message(self, queue: MessageQueue, message: MessageExt) -> None:
        await self._instance.api.send_back(
            await self._instance.master_address(queue),
            self.group,
            topic=message.topic,
            msg_id=message.msg_id,
            phy_offset=message.phy_offset,
            delay_level=0,
            max_times=self._config.max_reconsume_times,
        )

    async def _commit(self, process_queues: Iterable[ProcessQueue]) -> None:
        moved = {pq.queue: pq for pq in process_queues if pq.consume_offset != pq.committed_offset}
        offsets = {queue: process_queue.consume_offset for queue, process_queue in moved.items()}
        for queue in await self._offset_store.commit(offsets):
            moved[queue].committed_offset = offsets[queue]

    async def _persist_loop(self) -> None:
        while True:
            await asyncio.sleep(self._config.persist_interval_s)
            await self.commit()

    async def _rebalance_loop(self) -> None:
        config = self._config
        pause_s = config.retry_pause_s
        while True:
            self._rebalance_now.clear()
            if await self._rebalance():
                wait_s, pause_s = config.rebalance_interval_s, config.retry_pause_s
            else:
                wait_s, pause_s = pause_s, min(pause_s * 2, config.retry_pause_max_s)
            try:
                async with asyncio.timeout(wait_s):
                    await self._rebalance_now.wait()
            except TimeoutError:
                continue

    async def _rebalance(self) -> bool:
        """False: not balanced, try again soon."""
        await self._find_routes()
        balanced = True
        if self._greet_again:
            self._greet_again = False
            await self._instance.heartbeat()
        for topic in self._subscriptions:
            if topic == retry_topic(self.group) and self._instance.routes.cached(topic) is None:
                continue  # made by the broker with the first heartbeat of the group, or not at all
            queues = await self._wanted_queues(topic)
            if queues is None:
                balanced = False
                self._greet_again = True
                continue
            balanced &= await self._assign(topic, queues)
        return balanced

    async def _wanted_queues(self, topic: str) -> list[MessageQueue] | None:
        if self._is_broadcasting:
            return await all_queues(self._instance, topic)
        return await assigned_queues(self._instance, self.group, topic, self._config.allocate_strategy)

    async def _assign(self, topic: str, queues: list[MessageQueue]) -> bool:
        wanted = set(queues)
        dropped = [queue for queue in self.queues if queue.topic == topic and queue not in wanted]
        for queue in dropped:
            await self._drop(queue)
        complete = True
        for queue in queues:
            if queue not in self._process_queues:
                complete &= await self._add(queue)
        if dropped or not complete:
            log.info("assigned topic=%s queues=%s", topic, [queue.queue_id for queue in self.queues])
        return complete

    async def _add(self, queue: MessageQueue) -> bool:
        try:
            offset = await self._first_offset(queue)
        except (RemotingError, MQClientError) as error:
            log.info("no offset queue=%s reason=%s", queue, error)
            return False
        config = self._config
        process_queue = ProcessQueue(
            queue, offset, count_max=config.cached_count_max, bytes_max=config.cached_bytes_max
        )
        puller = Puller(
            self._instance,
            self.group,
            process_queue,
            self._subscriptions[queue.topic],
            config,
            self._batches.put_nowait,
            self._group_unknown,
        )
        self._process_queues[queue] = process_queue
        self._pullers[queue] = (puller, self._instance.spawn(puller.run()))
        return True

    async def _first_offset(self, queue: MessageQueue) -> int:
        committed = await self._offset_store.read(queue)
        if committed is not None:
            return committed
        address, api = await self._instance.master_address(queue), self._instance.api
        where = self._config.consume_from
        if where is ConsumeFromWhere.FIRST or queue.topic == retry_topic(self.group):
            return await api.min_offset(address, queue)
        if where is ConsumeFromWhere.TIMESTAMP:
            return await api.search_offset(address, queue, self._config.consume_timestamp_ms)
        return await api.max_offset(address, queue)

    async def _drop(self, queue: MessageQueue) -> None:
        process_queue = self._process_queues.pop(queue)
        _, task = self._pullers.pop(queue)
        process_queue.drop()
        task.cancel()
        # Before the next member asks where to begin, as far as it is in our hands.
        await self._commit([process_queue])

    async def _find_routes(self) -> None:
        for topic in self._subscriptions:
            if self._instance.routes.cached(topic) is None:
                try:
                    await self._instance.routes.refresh(topic)
                except MQClientError as error:
                    if topic not in self._routes_missed and topic != retry_topic(self.group):
                        self._routes_missed.add(topic)
                        log.warning("no route yet, looking on topic=%s reason=%s", topic, error)

    async def _find_retry_topic(self) -> None:
        """Asks for the group's own retry topic until there is one.

        The broker makes it with the group's first heartbeat, or with the first message that is given back, and a
        NameServer hears of it a little later: a rebalance is too rare for it. Found, the new route has us rebalance.
        """
        config, topic = self._config, retry_topic(self.group)
        pause_s = config.retry_pause_s
        while self._instance.routes.cached(topic) is None:
            await asyncio.sleep(pause_s)
            # In the end as often as known routes are asked for: a group may have been given no retry queues.
            pause_s = min(pause_s * 2, config.poll_name_server_interval_s)
            with suppress(MQClientError):
                await self._instance.routes.route(topic)

    def _group_unknown(self) -> None:
        self._greet_again = True
        self._rebalance_now.set()

    def _on_route_change(self, route: TopicRoute) -> None:
        self._rebalance_now.set()
        for queue, (puller, _) in self._pullers.items():
            master = route.master_address(queue.broker_name)
            # A leader that was paused or cut off keeps its connections open, with our pulls held in them.
            if queue.topic == route.topic and master is not None and puller.address not in ("", master):
                self._instance.remoting.abort_connection(puller.address)

    def _on_request(self, channel: Channel, command: RemotingCommand) -> None:
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._rebalance_now.set()
        elif not command.is_oneway:
            code, remark = (
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {command.code} not supported",
            )
            channel.write(response(command, code, remark).encode())

    def _heartbeat_body(self, client_id: str) -> HeartbeatData:
        subscriptions = [
            SubscriptionData(
                topic=data.topic,
                sub_string=data.sub_string,
                tags_set=sorted(data.tags_set),
                code_set=sorted(data.code_set),
                sub_version=data.sub_version,
                expression_type=data.expression_type,
            )
            for data in self._subscriptions.values()
        ]
        consumer = ConsumerData(
            group_name=self.group,
            message_model=self._config.message_model.value,
            consume_from_where=self._config.consume_from.value,
            subscription_data_set=subscriptions,
        )
        return HeartbeatData(
            client_id=client_id, consumer_data_set=[consumer], heartbeat_fingerprint=0, without_sub=False
        )
