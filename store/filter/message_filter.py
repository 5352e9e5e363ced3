"""Which messages of a queue a reader wants, and one kind of filter per type of expression.

A pull without a filter gets all messages. A filter sees the unit of the ConsumeQueue first, and the record only where
the unit does not rule the message out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from message.tags import EXPRESSION_TYPE_TAG, SUB_ALL, SubscriptionData
from store.filter.tag_filter import TagFilter


class MessageFilter(Protocol):
    """Both say whether the message may be wanted: what one of them refuses, the reader does not get."""

    def by_unit(self, tags_code: int, /) -> bool: ...

    @property
    def by_record(self) -> Callable[[bytes], bool] | None:
        """None: the unit alone decides."""


class UnsupportedExpressionError(Exception):
    """There is no filter for expressions of this type."""


# By the type of expression. None: all messages are wanted.
_FILTERS: dict[str, Callable[[SubscriptionData], MessageFilter | None]] = {
    EXPRESSION_TYPE_TAG: lambda subscription: (
        None if subscription.sub_string == SUB_ALL else TagFilter(subscription)
    ),
}


def filter_of(subscription: SubscriptionData) -> MessageFilter | None:
    """Returns the filter of a subscription, None where it wants all. Raises UnsupportedExpressionError."""
    check_expression_type(subscription.expression_type)
    return _FILTERS[subscription.expression_type](subscription)


def check_expression_type(expression_type: str) -> None:
    """Raises UnsupportedExpressionError for a type that has no filter."""
    if expression_type not in _FILTERS:
        raise UnsupportedExpressionError(
            f"The broker does not support consumer to filter message by {expression_type}"
        )
