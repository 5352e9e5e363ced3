"""Times of the v2 API as milliseconds."""

from __future__ import annotations

from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

TIMESTAMP_MS_MAX: Final = 253_402_300_799_999  # the last one of the year 9999, where a Timestamp ends


def duration_ms(duration: Duration) -> int:
    return duration.seconds * 1000 + duration.nanos // 1_000_000


def set_ms(value: Timestamp | Duration, ms: int) -> None:
    """Set a Timestamp to `ms` since the epoch, or a Duration to `ms`."""
    seconds, rest_ms = divmod(ms, 1000)
    value.seconds, value.nanos = seconds, rest_ms * 1_000_000
