"""Which of a topic's queues a message goes to, where the application says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from message.tags import java_hash
from mqclient.message import Message
from mqclient.message_queue import MessageQueue

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""(the queues that can be written to now, the message) -> one of them."""


def by_sharding_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Equal keys, one queue: the one that Java's SelectMessageQueueByHash takes for the key as a String.

    While a group elects, its queues are not among those that can be written to, and keys move.
    """
    # Java's remainder has the dividend's sign, which is then dropped.
    return queues[abs(java_hash(message.sharding_key)) % len(queues)]


def always(queue: MessageQueue, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """The one queue, whether or not it is among those that can be written to."""
    return queue
