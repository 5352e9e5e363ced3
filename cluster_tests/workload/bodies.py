"""Bodies of a fault run: a message says whose it is, `producer/sequence` up to the first blank; the rest is filling.

Every recorder goes by it, whatever client it is made of.
"""

import re

from faults.history import Delivered
from message.decoder import MessageExt

_NAME = re.compile(rb"([\w.-]+)/(\d{1,12}) ")


def body_of(producer: str, sequence: int, size: int) -> bytes:
    """At least `size` bytes."""
    return f"{producer}/{sequence} ".encode().ljust(size, b".")


def name_in(body: bytes) -> tuple[str, int]:
    """("", -1): none of ours."""
    found = _NAME.match(body)
    return (found[1].decode(), int(found[2])) if found is not None else ("", -1)


def delivered(message: MessageExt) -> Delivered:
    producer, sequence = name_in(message.body)
    return Delivered(
        message.queue_offset, producer, sequence, message.uniq_key or "", message.store_timestamp
    )
