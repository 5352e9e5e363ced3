"""Clients that come, stay and go: HEART_BEAT (34), UNREGISTER_CLIENT (35), CHECK_CLIENT_CONFIG (46).

Every member of a group answers them, leading or not, so that a new leader knows the clients from its first moment.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.answers import Request
from broker.clients.client_channel import ClientChannelInfo
from broker.clients.client_requests import ClientRequests
from broker.clients.consumer_manager import ConsumerManager
from broker.clients.producer_manager import ProducerManager
from broker.config.broker_config import BrokerConfig
from broker.processors.pull.allowed_filter import allowed_filter
from broker.topics.subscription_group_manager import SubscriptionGroupManager
from broker.topics.topic_config_manager import TopicConfigManager
from message.errors import SubscriptionParseError
from message.names import retry_topic
from message.tags import EXPRESSION_TYPE_TAG, SubscriptionData, build_subscription
from remoting.bodies import bodies
from remoting.codes import RequestCode, ResponseCode
from remoting.headers import headers
from remoting.headers.headers import CommandHeader
from store.filter.message_filter import UnsupportedExpressionError

# A client is in one or two groups, a gateway in hundreds; a million in one request would stop the event loop for
# longer than followers wait for their leader.
HEARTBEAT_GROUPS_MAX = 4096
# A group's SQL92 expressions may have 16 KB each, and stay in memory.
SQL_SUBSCRIPTIONS_MAX = 256


class ClientManageProcessor:
    def __init__(
        self,
        config: BrokerConfig,
        consumers: ConsumerManager,
        producers: ProducerManager,
        groups: SubscriptionGroupManager,
        topics: TopicConfigManager,
        is_serving: Callable[[], bool],
    ) -> None:
        self.config = config
        self._consumers = consumers
        self._producers = producers
        self._groups = groups
        self._topics = topics
        self._is_serving = is_serving

    def heart_beat(self, request: Request[CommandHeader], data: bodies.HeartbeatData, now_ms: int) -> None:
        group_count = len(data.consumer_data_set) + len(data.producer_data_set)
        if group_count > HEARTBEAT_GROUPS_MAX:
            request.answer(
                ResponseCode.INVALID_PARAMETER,
                f"heartbeat of {group_count} groups: {HEARTBEAT_GROUPS_MAX} are allowed",
            )
            return
        for consumer in data.consumer_data_set:
            sql_count = sum(
                item.expression_type != EXPRESSION_TYPE_TAG for item in consumer.subscription_data_set
            )
            if sql_count > SQL_SUBSCRIPTIONS_MAX:
                request.answer(
                    ResponseCode.INVALID_PARAMETER,
                    f"{sql_count} SQL92 subscriptions of the group {consumer.group_name}: "
                    f"{SQL_SUBSCRIPTIONS_MAX} are allowed",
                )
                return
        info = ClientChannelInfo(
            *(request.channel, data.client_id, request.client_language, request.client_version, now_ms),
            may_publish=request.access.may_publish,
        )
        fingerprint = data.heartbeat_fingerprint or 0
        # To a client that sends no fingerprint RocketMQ says that something changed, always.
        is_sub_change = not fingerprint
        for consumer in data.consumer_data_set:
            known = self._consumers.groups.get(consumer.group_name)
            if known is None:
                # Java answers false here as well, and then knows no subscription of the group until it changes.
                is_sub_change |= bool(data.without_sub)
            else:
                is_sub_change |= known.fingerprint not in (None, fingerprint)
            self._register_consumer(consumer, info, bool(data.without_sub), fingerprint)
        for producer in data.producer_data_set:
            self._producers.register_producer(producer.group_name, info)
        request.answer(
            ext_fields={
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true" if is_sub_change else "false",
            },
        )

    def _register_consumer(
        self, consumer: bodies.ConsumerData, info: ClientChannelInfo, is_without_sub: bool, fingerprint: int
    ) -> None:
        group = consumer.group_name
        config = self._groups.find(group, info.last_update_ms)
        if config is None:
            return
        topic = retry_topic(group)
        if config.retry_queue_nums > 0 and self._topics.select(topic) is None and self._is_serving():
            retry_config = self._topics.retry_topic_config(topic, config.retry_queue_nums)
            self._topics.create(retry_config, lambda is_created: None, info.last_update_ms)
        self._consumers.register_consumer(
            group,
            info,
            consume_type=consumer.consume_type,
            message_model=consumer.message_model,
            consume_from_where=consumer.consume_from_where,
            subscriptions=None
            if is_without_sub
            else [_subscription(item) for item in consumer.subscription_data_set],
            is_notify_enabled=config.notify_consumer_ids_changed_enable,
        )
        self._consumers.groups[group].fingerprint = fingerprint or None

    def unregister_client(self, request: Request[headers.UnregisterClientRequestHeader], now_ms: int) -> None:
        header = request.header
        if header.producer_group is not None:
            self._producers.unregister_producer(header.producer_group, request.channel.id)
        if header.consumer_group is not None:
            self._consumers.unregister_consumer(header.consumer_group, request.channel.id)
        request.answer()

    def check_client_config(
        self, request: Request[CommandHeader], body: bodies.CheckClientRequestBody, now_ms: int
    ) -> None:
        subscription = body.subscription_data
        expression_type = EXPRESSION_TYPE_TAG if subscription is None else subscription.expression_type
        if subscription is None or expression_type == EXPRESSION_TYPE_TAG:
            request.answer()
            return
        try:
            wanted = build_subscription(subscription.topic, subscription.sub_string, expression_type)
            allowed_filter(wanted, self.config, self._topics)
        except UnsupportedExpressionError as error:
            request.answer(ResponseCode.SYSTEM_ERROR, str(error))
        except SubscriptionParseError as error:
            request.answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        else:
            request.answer()


class ConsumerIdsNotifier:
    """Tells clients by NOTIFY_CONSUMER_IDS_CHANGED (40) that they should allocate queues again."""

    def __init__(self, client_requests: ClientRequests, *, is_enabled: bool) -> None:
        self._client_requests = client_requests
        self.is_enabled = is_enabled

    def __call__(self, group: str, channels: list[ClientChannelInfo]) -> None:
        if not self.is_enabled:
            return
        for info in channels:
            code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            self._client_requests.notify(info.channel, code, {"consumerGroup": group})


def _subscription(data: bodies.SubscriptionData) -> SubscriptionData:
    return SubscriptionData(
        topic=data.topic,
        sub_string=data.sub_string,
        tags_set=frozenset(data.tags_set),
        code_set=frozenset(data.code_set),
        expression_type=data.expression_type,
        sub_version=data.sub_version,
        class_filter_mode=data.class_filter_mode,
    )
