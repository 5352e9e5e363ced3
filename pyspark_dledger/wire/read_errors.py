"""Why messages cannot be read or sent. What may pass by itself is waited for, and is none of these."""

from __future__ import annotations

from pyspark_dledger.wire.queue_range import Queue


class ReadError(Exception):
    """Base of what a read or write over the wire ends in."""


class AccessError(ReadError):
    """A server does not let this client in, or the files with its key or its certificates cannot be used."""


class PullRefusedError(ReadError):
    """A broker answers that this will never be read, in its own words."""


class ReadTimeoutError(ReadError):
    """No message and no end came for `pollTimeoutMs`. The text has the last trouble."""


class DataLossError(ReadError):
    """What was there is gone. `reason` says how; the range of offsets or indexes is from `start` to below `end`."""

    def __init__(self, reason: str, where: object, start: int, end: int, advice: str) -> None:
        super().__init__(reason, where, start, end, advice)
        self.reason = reason
        self.start = start
        self.end = end
        self._where = where
        self._advice = advice

    def __str__(self) -> str:
        unit = "message" if isinstance(self._where, Queue) else "entry"
        units = {"message": "messages", "entry": "entries"}[unit]
        count = self.end - self.start
        lost = f"1 {unit}, {self.start}" if count == 1 else f"{count} {units}, {self.start} to {self.end - 1}"
        return f"{self.reason}: {self._where} has lost {lost}: {self._advice}"


class LogRewrittenError(ReadError):
    """An entry that was committed has become another: what was read before belongs to another log."""


class CorruptBodyError(ReadError):
    """A body is not of the format, and no column was asked for to keep it."""


class RowError(ReadError):
    """A row cannot be a message. The text says which row, and why."""


class SendRefusedError(ReadError):
    """A broker answers that it will never take this message, in its own words."""


class MissingMessagesError(ReadError):
    """A broker gave fewer messages than a range of a queue has, or others: not a loss that brokers know of."""
