"""Times of the v2 API as milliseconds."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def duration_ms(duration: Duration) -> int:
    return duration.seconds * 1000 + duration.nanos // 1_000_000


def set_ms(timestamp: Timestamp, ms: int) -> None:
    """Sets it to so many since the epoch."""
    seconds, rest_ms = divmod(ms, 1000)
    timestamp.seconds, timestamp.nanos = seconds, rest_ms * 1_000_000
