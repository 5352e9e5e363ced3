"""How fast a consumer pulls and consumes, by topic, for tools that ask (Java: ConsumerStatsManager)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from remoting.bodies.admin_bodies import ConsumeStatus

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
PART_COUNT = 12  # of a window: what is older than it is forgotten part by part


@dataclass(slots=True)
class _Part:
    number: int
    sum: int = 0
    times: int = 0


class _Window:
    """What was added in the last so many ms."""

    def __init__(self, span_ms: int) -> None:
        self._part_ms = span_ms // PART_COUNT
        self._parts: deque[_Part] = deque()

    def add(self, now_ms: int, value: int) -> None:
        number = now_ms // self._part_ms
        if not self._parts or self._parts[-1].number != number:
            self._parts.append(_Part(number))
        self._parts[-1].sum += value
        self._parts[-1].times += 1
        self._forget(number)

    def sum(self, now_ms: int) -> int:
        self._forget(now_ms // self._part_ms)
        return sum(part.sum for part in self._parts)

    def average(self, now_ms: int) -> float:
        return self.sum(now_ms) / max(1, sum(part.times for part in self._parts))

    def _forget(self, number: int) -> None:
        while self._parts and self._parts[0].number <= number - PART_COUNT:
            self._parts.popleft()


class TopicStats:
    """Rates and times are of the last minute; counts are of messages, times of pulls and of batches."""

    def __init__(self) -> None:
        self._pull_ms = _Window(MINUTE_MS)
        self._pulled = _Window(MINUTE_MS)
        self._consume_ms = _Window(MINUTE_MS)
        self._consumed = _Window(MINUTE_MS)
        self._failed = _Window(MINUTE_MS)
        self._failed_in_hour = _Window(HOUR_MS)

    def pulled(self, now_ms: int, count: int, spent_ms: int) -> None:
        self._pulled.add(now_ms, count)
        self._pull_ms.add(now_ms, spent_ms)

    def consumed(self, now_ms: int, count: int, failed_count: int, spent_ms: int) -> None:
        """Of `count` messages of a batch so many were sent back."""
        self._consumed.add(now_ms, count - failed_count)
        self._consume_ms.add(now_ms, spent_ms)
        if failed_count:
            self._failed.add(now_ms, failed_count)
            self._failed_in_hour.add(now_ms, failed_count)

    def status(self, now_ms: int) -> ConsumeStatus:
        seconds = MINUTE_MS / 1000
        return ConsumeStatus(
            pull_rt=self._pull_ms.average(now_ms),
            pull_tps=self._pulled.sum(now_ms) / seconds,
            consume_rt=self._consume_ms.average(now_ms),
            consume_ok_tps=self._consumed.sum(now_ms) / seconds,
            consume_failed_tps=self._failed.sum(now_ms) / seconds,
            consume_failed_msgs=self._failed_in_hour.sum(now_ms),
        )
