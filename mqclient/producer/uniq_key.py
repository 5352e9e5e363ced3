"""UNIQ_KEY: the message id that a client gives before any broker has seen the message.

Layout (upper-case hex): IPv4 address, process id, a discriminator of the generator, milliseconds since the start of
the month, counter. A retried message keeps its key, which is how a reader recognises a duplicate.
"""

from __future__ import annotations

import datetime
import struct

FIXED = struct.Struct(">4sHi")  # address, process id, discriminator (Java: the class loader's hash)
MOVING = struct.Struct(">IH")  # ms since the start of the month, counter


class UniqKeyGenerator:
    """Invariant: 65536 successive keys differ, so two keys of one generator are equal only if 65536 were made within
    a millisecond or the clock was set back; Java's generator promises the same."""

    def __init__(self, ip: bytes, pid: int, discriminator: int) -> None:
        self._prefix = FIXED.pack(ip, pid & 0xFFFF, discriminator).hex().upper()
        self._month_begin_ms = 0
        self._month_end_ms = 0
        self._counter = 0

    def next_key(self, now_ms: int) -> str:
        if not self._month_begin_ms <= now_ms < self._month_end_ms:
            self._begin_month(now_ms)
        self._counter = (self._counter + 1) & 0xFFFF
        return self._prefix + MOVING.pack(now_ms - self._month_begin_ms, self._counter).hex().upper()

    def _begin_month(self, now_ms: int) -> None:
        now = datetime.datetime.fromtimestamp(now_ms / 1000).astimezone()
        begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        end = begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
        self._month_begin_ms = int(begin.timestamp() * 1000)
        self._month_end_ms = int(end.timestamp() * 1000)
