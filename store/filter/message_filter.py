"""Which messages of a queue a reader wants, and one kind of filter per type of expression.

A pull without a filter gets all messages. A filter sees the unit of the ConsumeQueue first, and the record only where
the unit does not rule the message out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from message.tags import EXPRESSION_TYPE_SQL92, EXPRESSION_TYPE_TAG, SUB_ALL, SubscriptionData
from store.filter.tag_filter import TagFilter


class MessageFilter(Protocol):
    """Both say whether the message may be wanted: what one of them refuses, the reader does not get."""

    def by_unit(self, tags_code: int, /) -> bool: ...

    @property
    def by_record(self) -> Callable[[bytes], bool] | None:
        """None: the unit alone decides."""


class UnsupportedExpressionError(Exception):
    """There is no filter for expressions of this type, or it is turned off."""

    def __init__(self, expression_type: str, where: str = "") -> None:
        super().__init__(
            f"The broker does not support consumer to filter message by {expression_type}{where}"
        )


def _sql_filter(subscription: SubscriptionData) -> MessageFilter:
    # Most brokers never see such a subscription.
    from store.filter.sql_filter import sql_filter

    return sql_filter(subscription.sub_string)


# By the type of expression. None: all messages are wanted.
_FILTERS: dict[str, Callable[[SubscriptionData], MessageFilter | None]] = {
    EXPRESSION_TYPE_TAG: lambda subscription: (
        None if subscription.sub_string == SUB_ALL else TagFilter(subscription)
    ),
    EXPRESSION_TYPE_SQL92: _sql_filter,
}


def filter_of(subscription: SubscriptionData) -> MessageFilter | None:
    """Returns the filter of a subscription, None where it wants all.

    Raises UnsupportedExpressionError, SubscriptionParseError.
    """
    if subscription.expression_type not in _FILTERS:
        raise UnsupportedExpressionError(subscription.expression_type)
    return _FILTERS[subscription.expression_type](subscription)
