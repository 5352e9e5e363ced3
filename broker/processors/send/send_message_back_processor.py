"""CONSUMER_SEND_MSG_BACK (36): a consumer that could not do with a message gives it back.

The message comes again through its group's retry topic, after a delay that grows with each try, and when it has been
tried often enough it goes to the group's dead letter topic. Rows are those of broker_behaviour's table (send back).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.answers import AnyRequest, Request
from broker.clients.client_channel import ClientChannel
from broker.config.broker_config import BrokerConfig
from broker.topics.subscription_group_manager import SubscriptionGroupManager
from broker.topics.topic_config_manager import RETRY_QUEUE_NUMS, TopicConfigManager
from message import const
from message.decoder import MessageExt, decode_message
from message.errors import MessageDecodeError, MessageEncodeError
from message.inner_batch import unwrapped
from message.names import HIDDEN_TOPICS, dlq_topic, popped_topic, retry_topic
from message.properties import encode_properties
from message.sys_flag import has_consume_queue_unit
from remoting.codes import FAQ, ResponseCode
from remoting.headers import headers
from store.put_message import PutBatch, PutMessage, PutRefusal, PutStatus, put_again
from store.services.delayed_message import delayed
from store.state.table_configs import PERM_WRITE, TopicConfig

if TYPE_CHECKING:
    from store.message_store import MessageStore

DLQ_QUEUE_NUMS = RETRY_QUEUE_NUMS
# What a message waits before its first new try, if the consumer leaves that to the broker: 10 s, then 30 s and so on.
FIRST_DELAY_LEVEL = 3


class SendMessageBackProcessor:
    """Invariant: SUCCESS is answered only when a quorum holds the message in its new place."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        clock: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._random = rng
        self._delay_level_max = max(store.config.delay_levels)

    def send_back(self, request: Request[headers.ConsumerSendMsgBackRequestHeader], now_ms: int) -> None:
        header = request.header
        group = header.group
        if not self._store.serving:
            remark = "service not available now: this member does not serve as leader"
            request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
            return
        config = self._groups.find(group, now_ms)
        if config is None:
            remark = f"subscription group not exist, {group} {FAQ}"
            request.answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            return
        if not self.config.broker_permission & PERM_WRITE:
            remark = f"the broker[{self.config.broker_ip1}] sending message is forbidden"
            request.answer(ResponseCode.NO_PERMISSION, remark)
            return
        if config.retry_queue_nums <= 0:
            request.answer()
            return
        # Before the topic: a request that is refused leaves none behind.
        message = self._message_at(header.offset, header.origin_msg_id)
        if message is None:
            remark = f"look message by offset failed, {header.offset}"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
            return
        if refusal := request.refusal_of_topic(popped_topic(group, message.topic)):
            request.answer(ResponseCode.NO_PERMISSION, refusal)
            return
        topic = self._ready_topic(retry_topic(group), config.retry_queue_nums, request, now_ms)
        if topic is None:
            return
        times_max = header.max_reconsume_times
        if times_max is None:
            times_max = config.retry_max_times
        level = header.delay_level or FIRST_DELAY_LEVEL + message.reconsume_times
        if message.reconsume_times >= times_max or level < 0:
            level = 0
            topic = self._ready_topic(dlq_topic(group), DLQ_QUEUE_NUMS, request, now_ms)
            if topic is None:
                return
        queue_id = self._random.randrange(max(topic.write_queue_nums, 1))
        try:
            put = _given_back(message, topic.topic_name, queue_id, level)
        except MessageEncodeError as error:
            request.answer(ResponseCode.SYSTEM_ERROR, f"{PutStatus.MESSAGE_ILLEGAL.value}: {error}")
            return
        if level:
            put = delayed(put, level, self._delay_level_max)
        self._store.gather.add(request.channel, [put], [request], (), _answer, now_ms)

    def _ready_topic(
        self,
        topic: str,
        queue_nums: int,
        request: Request[headers.ConsumerSendMsgBackRequestHeader],
        now_ms: int,
    ) -> TopicConfig | None:
        """The topic if it takes messages. If it does not exist yet, the request is worked on when it does; if it must
        not be written to, it is answered.
        """
        config = self._topics.select(topic)
        if config is not None and config.is_writable:
            return config
        if config is not None:
            remark = f"the topic[{topic}] sending message is forbidden"
            request.answer(ResponseCode.NO_PERMISSION, remark)
            return None

        def on_created(is_created: bool) -> None:
            if is_created:
                self.send_back(request, self._clock())
            else:
                remark = f"topic[{topic}] could not be created: this member stopped leading"
                request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

        self._topics.create(self._topics.retry_topic_config(topic, queue_nums), on_created, now_ms)
        return None

    def _message_at(self, phy_offset: int, message_id: str | None) -> MessageExt | None:
        """The message that a consumer can have been given from there; of an inner batch the one with this id."""
        record = self._store.reads.look_message_by_offset(phy_offset)
        if record is None:
            return None
        try:
            stored = decode_message(record)
            messages = unwrapped([stored])
        except MessageDecodeError:
            return None
        if stored.topic in HIDDEN_TOPICS:
            return None
        if len(messages) > 1:
            messages = [message for message in messages if message.uniq_key == message_id]
        return messages[0] if messages and has_consume_queue_unit(messages[0].sys_flag) else None


def _answer(
    channel: ClientChannel, requests: list[AnyRequest], outcome: PutBatch | PutRefusal, first: int
) -> None:
    for request in requests:
        if not isinstance(outcome, PutRefusal):
            request.answer()
        elif outcome.status is PutStatus.UNKNOWN:
            remark = "outcome unknown: this member stopped leading; the message may or may not come again"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
        else:
            request.answer(ResponseCode.SYSTEM_ERROR, f"{outcome.status.value}: {outcome.text}")


def _given_back(message: MessageExt, topic: str, queue_id: int, level: int) -> PutMessage:
    """The message as it is stored anew. Raises MessageEncodeError when its properties grow too long."""
    properties = {
        const.RETRY_TOPIC: message.topic,
        const.ORIGIN_MESSAGE_ID: message.msg_id,
        **message.properties,
        const.WAIT_STORE_MSG_OK: "false",
        const.DELAY_TIME_LEVEL: str(level),
    }
    return put_again(message, topic.encode(), queue_id, encode_properties(properties), attempts=1)
