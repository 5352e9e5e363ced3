"""Filters by tags: `A || B`. The unit has the hash of the message's tags."""

from message.tags import SubscriptionData


class TagFilter:
    """Invariant: reads no record. Hashes collide: the client compares the tags themselves."""

    by_record = None

    def __init__(self, subscription: SubscriptionData) -> None:
        self.by_unit = subscription.matches
