"""The filter of a subscription, where this broker and the topic have room for one of its type."""

from __future__ import annotations

from broker.config.broker_config import BrokerConfig
from broker.topics.topic_config_manager import TopicConfigManager
from message.tags import EXPRESSION_TYPE_TAG, SubscriptionData
from store.filter.message_filter import MessageFilter, UnsupportedExpressionError, filter_of


def allowed_filter(
    subscription: SubscriptionData, config: BrokerConfig, topics: TopicConfigManager
) -> MessageFilter | None:
    """Returns None where it wants all messages. Raises UnsupportedExpressionError, SubscriptionParseError."""
    if subscription.expression_type != EXPRESSION_TYPE_TAG:
        if not config.enable_property_filter:
            raise UnsupportedExpressionError(subscription.expression_type)
        entry = topics.entry(subscription.topic)
        if entry is not None and entry.is_batch:
            # Of a batch the record has no properties of its messages: none would ever match.
            raise UnsupportedExpressionError(
                subscription.expression_type,
                f" in topic {subscription.topic}, which has queue.type=BatchCQ: subscribe by tags",
            )
    return filter_of(subscription)
