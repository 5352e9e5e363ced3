"""The pull loop of one queue: asks, waits with long polls, follows the leader, obeys the broker's offsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from message.decoder import MessageExt
from message.errors import MessageError
from message.names import RETRY_GROUP_TOPIC_PREFIX
from message.received_messages import received_messages
from message.sys_flag import pull_sys_flag
from message.tags import SubscriptionData
from mqclient.answer import Answer
from mqclient.client_instance import ClientInstance
from mqclient.consumer.consumer_config import ConsumerConfig
from mqclient.consumer.process_queue import ProcessQueue
from mqclient.errors import BrokerResponseError, MQClientError
from remoting.codes import RequestCode, ResponseCode

log = logging.getLogger(__name__)

PULL_BYTES_MAX = 256 * 1024
NOTHING_NEW_CODES = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
GROUP_UNKNOWN_CODES = frozenset(
    {
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
    }
)


class Puller:
    """Runs until its queue is dropped.

    `deliver` is told of each batch that can be taken, `on_group_unknown` when the broker does not know the group, or
    knows an older subscription of it.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        process_queue: ProcessQueue,
        subscription: SubscriptionData,
        config: ConsumerConfig,
        *,
        is_lite: bool,
        sends_subscription: bool,
        deliver: Callable[[], None],
        on_group_unknown: Callable[[], None],
    ) -> None:
        self._instance = instance
        self._process_queue = process_queue
        self._subscription = subscription
        self._config = config
        self._deliver = deliver
        self._on_group_unknown = on_group_unknown
        queue = process_queue.queue
        self._code = RequestCode.LITE_PULL_MESSAGE if is_lite else RequestCode.PULL_MESSAGE
        flags = pull_sys_flag(
            commit_offset=False,
            suspend=True,
            subscription=sends_subscription,
            class_filter=False,
            lite_pull=is_lite,
        )
        self._fields = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": "",
            "maxMsgNums": str(config.pull_batch_size),
            "sysFlag": str(flags),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(int(config.pull_suspend_s * 1000)),
            "subscription": subscription.sub_string,
            "subVersion": str(subscription.sub_version),
            "expressionType": subscription.expression_type,
            "maxMsgBytes": str(PULL_BYTES_MAX),
            "bname": queue.broker_name,
        }
        self.address = ""  # the broker that was asked last
        self._unreadable_offset = -1  # has been told

    async def run(self) -> None:
        process_queue = self._process_queue
        pause_s = self._config.retry_pause_s
        while not process_queue.is_dropped:
            await process_queue.room.wait()
            if process_queue.is_dropped:
                return
            try:
                await self._pull()
                pause_s = self._config.retry_pause_s
            except (MQClientError, MessageError) as error:
                self._tell(error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, self._config.retry_pause_max_s)
                await self._look_for_leader()

    def _tell(self, error: MQClientError | MessageError) -> None:
        queue, offset = self._process_queue.queue, self._process_queue.pull_offset
        if isinstance(error, MQClientError):
            log.info("pull failed queue=%s broker=%s reason=%s", queue, self.address, error)
        elif offset != self._unreadable_offset:
            # To go on would be to lose it; a package that is missing can be installed.
            self._unreadable_offset = offset
            log.error(
                "no message can be read, the queue stands still queue=%s from=%d reason=%s",
                queue,
                offset,
                error,
            )

    async def _pull(self) -> None:
        process_queue = self._process_queue
        queue, offset = process_queue.queue, process_queue.pull_offset
        self.address = address = await self._instance.master_address(queue)
        fields = self._fields | {"queueOffset": str(offset)}
        process_queue.pull_begins()
        answer = await self._instance.api.ask(
            address, self._code, fields, timeout_s=self._config.pull_timeout_s
        )
        if process_queue.is_dropped or process_queue.pull_offset != offset:
            return  # dropped or reset while this pull was held
        self._take(answer)

    def _take(self, answer: Answer) -> None:
        process_queue, code = self._process_queue, answer.code
        if code == ResponseCode.SUCCESS:
            messages = received_messages(answer.body, process_queue.pull_offset)
            # Brokers compare hashes of tags; two tags may share one.
            wanted = self._subscription.tags_set
            if wanted:
                messages = [message for message in messages if message.tags in wanted]
            if process_queue.queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                show_origin(messages)
            process_queue.pulled(messages, answer.number("nextBeginOffset"))
            if messages:
                self._deliver()
        elif code in NOTHING_NEW_CODES:
            process_queue.pulled([], answer.number("nextBeginOffset"))
        elif code == ResponseCode.PULL_OFFSET_MOVED:
            offset = answer.number("nextBeginOffset")
            log.warning(
                "offset moved queue=%s from=%d to=%d reason=%s",
                process_queue.queue, process_queue.pull_offset, offset, answer.remark,
            )  # fmt: skip
            process_queue.reset(offset)
        else:
            if code in GROUP_UNKNOWN_CODES:
                self._on_group_unknown()
            raise BrokerResponseError(code, answer.remark, self.address)

    async def _look_for_leader(self) -> None:
        try:
            await self._instance.routes.refresh(self._process_queue.queue.topic)
        except MQClientError as error:
            log.info("route not found topic=%s reason=%s", self._process_queue.queue.topic, error)


def show_origin(messages: list[MessageExt]) -> None:
    """A message delivered again shows the topic that it was sent to, not the group's retry topic."""
    for message in messages:
        message.topic = message.properties.get("RETRY_TOPIC", message.topic)
