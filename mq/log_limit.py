"""Keeps the log short when one cause has many connections: a port scan must not fill the disk with lines.

Lines about a single connection that anybody may open are logged with `extra={"per_connection": True}`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

INTERVAL_S = 10.0

log = logging.getLogger(__name__)


class ConnectionLogLimit(logging.Filter):
    """Lets one such line of a kind through per interval. How many it kept back it tells after the interval, with the
    next line of any kind.
    """

    def __init__(self, interval_s: float = INTERVAL_S, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._interval_s = interval_s
        self._clock = clock
        self._kept_back: dict[str, int] = {}  # by the line without its values
        self._ends: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock()
        # Other threads log as well, and so does the warning: either may have taken out what is iterated over here.
        for kind, end in list(self._ends.items()):
            if end > now or self._ends.pop(kind, None) is None:
                continue
            if count := self._kept_back.pop(kind, 0):
                log.warning("%d more lines in %.0f s like: %s", count, self._interval_s, kind)
        if not getattr(record, "per_connection", False):
            return True
        if record.msg in self._ends:
            self._kept_back[record.msg] = self._kept_back.get(record.msg, 0) + 1
            return False
        self._ends[record.msg] = now + self._interval_s
        return True
