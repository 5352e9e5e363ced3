"""Queues of topics and ranges of their offsets, as driver and workers exchange them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Queue(NamedTuple):
    topic: str
    broker: str  # name of the replica group
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} at {self.broker}"


class QueueRange(NamedTuple):
    """Messages of a queue from offset `start` to below `end`: committed, so they never change."""

    queue: Queue
    start: int
    end: int


class QueueJsonError(ValueError):
    """A text or value is no table of queues. The message shows the part that is wrong."""


def queues_from_json(value: Any) -> dict[Queue, int]:
    """`{"T": {"broker": {"0": 23}}}` -> numbers by queue. Raises QueueJsonError."""
    numbers = {}
    for topic, brokers in _items(value, "topics"):
        for broker, queues in _items(brokers, f"brokers of {topic}"):
            for queue_id, number in _items(queues, f"queues of {topic} at {broker}"):
                if not queue_id.isdecimal() or not isinstance(number, int) or isinstance(number, bool):
                    raise QueueJsonError(f"{queue_id!r}: {number!r} is no queue id with a number")
                numbers[Queue(topic, broker, int(queue_id))] = number
    return numbers


def queues_to_json(numbers: Mapping[Queue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """The same, in one order whatever that of `numbers` is."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(numbers):
        found.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = numbers[queue]
    return found


def _items(value: Any, what: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise QueueJsonError(
            f'{value!r} is no object with {what}: write {{"topic": {{"broker": {{"0": 23}}}}}}'
        )
    return list(value.items())
