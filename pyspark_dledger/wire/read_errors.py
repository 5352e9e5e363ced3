"""Why messages of a range cannot be read. What may pass by itself is waited for, and none of these."""

from __future__ import annotations

from pyspark_dledger.wire.queue_range import Queue


class ReadError(Exception):
    """Base of what a read over the wire ends in."""


class PullRefusedError(ReadError):
    """A broker answers that this will never be read, in its own words."""


class ReadTimeoutError(ReadError):
    """No message and no end came for `pollTimeoutMs`. The text has the last trouble."""


class DataLossError(ReadError):
    """Messages that were there are gone. `reason` says how; the range is from `start` to below `end`."""

    def __init__(self, reason: str, queue: Queue, start: int, end: int, advice: str) -> None:
        super().__init__(reason, queue, start, end, advice)
        self.reason = reason
        self.queue = queue
        self.start = start
        self.end = end
        self.advice = advice

    def __str__(self) -> str:
        count = self.end - self.start
        return (
            f"{self.reason}: {self.queue} has lost {count} message{'' if count == 1 else 's'}, offsets {self.start} to "
            f"{self.end - 1}: {self.advice}"
        )


class MissingMessagesError(ReadError):
    """A broker gave fewer messages than a range of a queue has, or others: not a loss that brokers know of."""
