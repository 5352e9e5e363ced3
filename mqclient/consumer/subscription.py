"""What a consumer reads of a topic: all, messages of some tags, or those that an SQL92 expression selects."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from message.names import topic_fault
from message.tags import EXPRESSION_TYPE_SQL92, EXPRESSION_TYPE_TAG, SubscriptionData, build_subscription
from mqclient.client_instance import ClientInstance
from mqclient.errors import BrokerResponseError, MQClientError
from remoting.bodies.bodies import CheckClientRequestBody
from remoting.bodies.bodies import SubscriptionData as SubscriptionBody
from remoting.codes import RequestCode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MessageSelector:
    """An expression over the properties of messages, made by `sql`."""

    expression: str
    expression_type: str = EXPRESSION_TYPE_SQL92


Expression = str | MessageSelector
"""`*`, tags as in `TagA || TagB`, or what `sql` returns."""


def sql(expression: str) -> MessageSelector:
    """Messages whose properties match, such as `sql("price > 100 AND color IN ('red', 'blue')")`. TAGS and KEYS are
    properties as well. The broker selects them.

    What stands behind the longest expression counts for nothing, which is told as a warning in the log. Raises
    ValueError for what is no expression.
    """
    # Most programs never need it.
    from message.sql.parser import unread_warning

    if (warning := unread_warning(expression)) is not None:
        log.warning("%s", warning)
    return MessageSelector(expression)


def build_subscriptions(
    expressions: Mapping[str, Expression], sub_version: int
) -> dict[str, SubscriptionData]:
    """By topic. Raises ValueError for a name or an expression that is none."""
    subscriptions = {}
    for topic, expression in expressions.items():
        if (fault := topic_fault(topic)) is not None:
            raise ValueError(fault)
        if isinstance(expression, MessageSelector):
            text, expression_type = expression.expression, expression.expression_type
        else:
            text, expression_type = expression, EXPRESSION_TYPE_TAG
        subscriptions[topic] = build_subscription(topic, text, expression_type, sub_version)
    return subscriptions


def subscription_body(data: SubscriptionData) -> SubscriptionBody:
    """As requests carry it."""
    return SubscriptionBody(
        topic=data.topic,
        sub_string=data.sub_string,
        tags_set=sorted(data.tags_set),
        code_set=sorted(data.code_set),
        sub_version=data.sub_version,
        expression_type=data.expression_type,
    )


async def check_filters(
    instance: ClientInstance, group: str, subscriptions: Iterable[SubscriptionData]
) -> None:
    """Asks a broker of each topic with an SQL92 filter if it takes that: one that does not would refuse each pull.

    Raises BrokerResponseError. What cannot be asked now is left to the pulls.
    """
    for data in subscriptions:
        if data.expression_type == EXPRESSION_TYPE_TAG:
            continue
        body = CheckClientRequestBody(
            client_id=instance.client_id, group=group, subscription_data=subscription_body(data)
        )
        try:
            route = await instance.routes.route(data.topic)
            if route.subscribe_queues:
                address = await instance.master_address(route.subscribe_queues[0])
                await instance.api.call(address, RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())
        except BrokerResponseError:
            raise
        except MQClientError as error:
            log.info("filter not checked topic=%s reason=%s", data.topic, error)
