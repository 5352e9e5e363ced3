"""UNIQ_KEYs for messages whose client gave none, in the clients' own form."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from ipaddress import ip_address

from message.message_id import UniqKey


class UniqueIdGenerator:
    """Invariant: ids of one generator repeat only after 65,536 of them in one millisecond of one month."""

    def __init__(self, ip: str, rng: random.Random) -> None:
        """`ip` is the broker's; the dice stand for the pid and class loader of a client."""
        self._ip = ip_address(ip).packed
        self._pid = rng.getrandbits(16)
        self._class_loader_hash = rng.getrandbits(31)
        self._counter = 0
        self._month_start_ms = 0
        self._month_end_ms = 0

    def next_id(self, now_ms: int) -> str:
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._enter_month(now_ms)
        self._counter = self._counter + 1 & 0xFFFF
        since_month_start = (now_ms - self._month_start_ms) & 0x7FFFFFFF
        key = UniqKey(self._ip, self._pid, self._class_loader_hash, since_month_start, self._counter)
        return key.encode()

    def _enter_month(self, now_ms: int) -> None:
        start = datetime.fromtimestamp(now_ms / 1000, UTC).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        year, month = (start.year + 1, 1) if start.month == 12 else (start.year, start.month + 1)
        self._month_start_ms = int(start.timestamp() * 1000)
        self._month_end_ms = int(start.replace(year=year, month=month).timestamp() * 1000)
