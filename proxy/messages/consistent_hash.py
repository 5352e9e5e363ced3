"""The queue of a message group: Guava's consistentHash of Java's hashCode, as in RocketMQ's proxy.

Clients hash as well, each language in its own way. Only a hash made by proxies keeps a message group on one queue.
"""

from __future__ import annotations

from typing import Final

from message.tags import java_hash

_MULTIPLIER: Final = 2862933555777941757
_MASK: Final = (1 << 64) - 1


def bucket_of(message_group: str, buckets: int) -> int:
    """Return a number from 0 to `buckets` - 1. With one bucket more, one group in `buckets` + 1 moves."""
    return consistent_hash(java_hash(message_group), buckets)


def consistent_hash(key: int, buckets: int) -> int:
    state = key & _MASK
    candidate = 0
    while True:
        state = (state * _MULTIPLIER + 1) & _MASK
        following = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if not 0 <= following < buckets:
            return candidate
        candidate = following
