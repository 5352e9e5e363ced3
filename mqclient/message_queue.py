"""The address of one queue: topic, broker (replica group) name, queue id."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """Orders as Java's MessageQueue does (topic, broker name, queue id): every member of a group must sort the queues
    alike, or two of them would read the same one."""

    topic: str
    broker_name: str
    queue_id: int
