"""The consumer that hands out messages as they come, to be counted as done one batch at a time.

At least once: an offset is committed only behind messages whose batch is done, so a member that ends in between has
its messages delivered again, to itself or, when clustering, to another one. Order holds within a queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from message.decoder import MessageExt
from message.names import retry_topic
from message.tags import SUB_ALL
from mqclient.consumer.consumer_config import ConsumerConfig, MessageModel
from mqclient.consumer.direct_batch import DirectBatch
from mqclient.consumer.group_consumer import GroupConsumer
from mqclient.consumer.group_member import GroupMember, OnAssignment
from mqclient.consumer.process_queue import ConsumeBatch
from mqclient.consumer.replies import ReplySender
from mqclient.consumer.subscription import Expression
from mqclient.errors import MQClientError
from mqclient.message_queue import MessageQueue
from remoting.client import Connect

log = logging.getLogger(__name__)


class PushConsumer(GroupConsumer):
    """Use it as `async with PushConsumer(namesrv, group, {"T": "*"}) as consumer: async for message in consumer: …`.

    "Push" is RocketMQ's word for it: the client pulls with long polls and the application only sees messages come.
    """

    def __init__(
        self,
        namesrv: str | None,
        group: str,
        subscriptions: Mapping[str, Expression],
        *,
        config: ConsumerConfig | None = None,
        instance_name: str = "",
        on_assignment: OnAssignment | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        connect: Connect | None = None,
    ) -> None:
        """`subscriptions`: topic to `*`, `TagA || TagB` or `sql(…)`; every member of a group must have the same.

        `instance_name` tells apart the broadcasting members of a group on one machine, whose offsets go by it from run
        to run. `on_assignment` is called with this member's queues when they have changed. Raises ValueError for a
        name or an expression that is none, LocalOffsetsError for a broadcasting member without a home directory and
        without `local_offset_store_dir`.
        """
        self.group = group
        self._config = config or ConsumerConfig()
        retry = (
            {} if self._config.message_model is MessageModel.BROADCASTING else {retry_topic(group): SUB_ALL}
        )
        self._member = GroupMember(
            namesrv,
            group,
            dict(subscriptions) | retry,
            self._config,
            is_lite=False,
            auto_commit=True,
            instance_name=instance_name,
            now_ms=now_ms,
            connect=connect,
            on_assignment=on_assignment,
        )
        self._replies = ReplySender(self._member.instance, group, now_ms)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues this member reads now."""
        return self._member.queues

    async def take(self) -> ConsumeBatch | None:
        """The next batch of any queue, to be ended with `done` (or `send_back`); None once the consumer is closed.

        Several tasks may take at a time; offsets then move over the oldest batch that is done.
        """
        return await self._member.take()

    async def batches(self) -> AsyncIterator[ConsumeBatch]:
        """Batches, each counted as done when the next one is asked for."""
        while (batch := await self.take()) is not None:
            yield batch
            batch.done()

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        async for batch in self.batches():
            for message in batch.messages:
                yield message

    async def send_back(
        self, batch: ConsumeBatch, messages: Sequence[MessageExt] | None = None, *, delay_level: int = 0
    ) -> None:
        """The batch, or these messages of it, could not be processed: has them delivered again later, and ends it.

        The broker keeps count of the attempts (`reconsume_times`), waits longer each time, or as `delay_level` says,
        and after `max_reconsume_times`, or with level -1 at once, moves them to the topic `%DLQ%<group>`. What a broker
        does not take back is left to us: it is delivered again here, and meanwhile its queue's offset stands still.
        A broadcasting group has no such topics: its members give up, with a line in the log. A tool that
        handed a message over is told that it failed, and the message stays where it is.
        """
        left = list(batch.messages if messages is None else messages)
        if isinstance(batch, DirectBatch) and left:
            batch.failed()
            return
        if self._member.is_broadcasting and left:
            log.warning(
                "given up, the group is broadcasting queue=%s offsets=%d to %d",
                batch.queue, left[0].queue_offset, left[-1].queue_offset,
            )  # fmt: skip
            left.clear()
        try:
            while left:
                await self._send_back_message(batch.queue, left[0], delay_level)
                batch.failed_count += 1
                del left[0]
        except MQClientError as error:
            log.warning("not taken back queue=%s reason=%s", batch.queue, error)
            batch.messages = left
            asyncio.get_running_loop().call_later(
                self._config.redeliver_after_s, self._member.give_back, batch
            )
            return
        batch.done()

    async def reply(self, request: MessageExt, body: bytes, *, timeout_s: float | None = None) -> None:
        """Replies to a request (`Producer.request`). Returns when the requester has taken the reply.

        It is tried until the request's time to live is over, or for `timeout_s`. Raises MessageIllegalError for a
        message that is no request, and SendError, after which the requester may have the reply all the same unless it
        is `definite`.
        """
        await self._replies.send(request, body, timeout_s)

    async def commit(self) -> None:
        """Commits the offset of every queue that moved. Those that fail are tried again with the next commit."""
        await self._member.commit()

    async def _send_back_message(self, queue: MessageQueue, message: MessageExt, delay_level: int) -> None:
        instance = self._member.instance
        await instance.api.send_back(
            await instance.master_address(queue),
            self.group,
            topic=message.topic,
            # By it the broker finds the message in an inner batch.
            msg_id=message.uniq_key or message.msg_id,
            phy_offset=message.phy_offset,
            delay_level=delay_level,
            max_times=self._config.max_reconsume_times,
        )
