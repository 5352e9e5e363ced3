"""What a serving broker counts for tools: messages in by topic, messages out by topic and group, pulls.

Messages in cost the hot path nothing: they are read off the queues' ends every SAMPLE_INTERVAL_MS. Pulls count
themselves. A rate is taken over samples, as RocketMQ does: of the last minute, hour and day.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from dledger.figures import Figures

SAMPLE_INTERVAL_MS = 10_000
_HOUR_SAMPLE_MS = 600_000
_DAY_SAMPLE_MS = 3_600_000
_DAY_MS = 86_400_000


class QueueEnd(Protocol):
    """What is read of a ConsumeQueue."""

    @property
    def topic(self) -> bytes: ...
    @property
    def max_offset(self) -> int: ...


class StatsSum(msgspec.Struct, frozen=True):
    """Of one stretch of time: what was counted, and per second."""

    sum: int = 0
    tps: float = 0.0


class StatsItem(msgspec.Struct):
    """One counter and its samples (ms, value): every 10 s for a minute, every 10 minutes for an hour, every hour for a
    day.
    """

    value: int = 0
    minute: deque[tuple[int, int]] = msgspec.field(default_factory=lambda: deque(maxlen=7))
    hour: deque[tuple[int, int]] = msgspec.field(default_factory=lambda: deque(maxlen=7))
    day: deque[tuple[int, int]] = msgspec.field(default_factory=lambda: deque(maxlen=25))

    def sample(self, now_ms: int) -> None:
        for samples, interval_ms in (
            (self.minute, 0),
            (self.hour, _HOUR_SAMPLE_MS),
            (self.day, _DAY_SAMPLE_MS),
        ):
            if not samples or now_ms - samples[-1][0] >= interval_ms:
                samples.append((now_ms, self.value))

    @property
    def last_sample(self) -> deque[tuple[int, int]]:
        """What over() takes for the time since the sample before the newest."""
        return deque(list(self.minute)[-2:])

    def over(self, samples: deque[tuple[int, int]]) -> StatsSum:
        """Between the oldest of the samples and the newest of all."""
        if not samples or not self.minute:
            return StatsSum()
        (from_ms, from_value), (to_ms, to_value) = samples[0], self.minute[-1]
        elapsed_ms = to_ms - from_ms
        if elapsed_ms <= 0:
            return StatsSum()
        count = to_value - from_value
        return StatsSum(count, count * 1000 / elapsed_ms)


class _QueuePulls(msgspec.Struct):
    """Of one group and queue since the last sample; `offset`: what is to be pulled next."""

    offset: int = 0
    found: int = 0
    missed: int = 0
    got: int = 0  # messages


class BrokerStats:
    """Invariant: counters only grow while this member serves, and begin anew when it begins to serve."""

    def __init__(self, queues: Callable[[], Iterable[QueueEnd]]) -> None:
        """`queues`: all that there are, each time the same objects."""
        self._queues = queues
        self._next_sample_ms = 0
        self._day = -1
        self.start_serving()

    def start_serving(self) -> None:
        self.put_nums: dict[str, StatsItem] = {}  # by topic
        self.get_nums: dict[str, StatsItem] = {}  # by "topic@group"
        self.put_total = StatsItem()
        self.got_total = StatsItem()
        self.found_pulls = StatsItem()
        self.missed_pulls = StatsItem()
        self.timers_delivered = StatsItem()
        # Totals at midnight (UTC): of today, and of the day before.
        self.put_at_midnight = self.put_before = 0
        self.got_at_midnight = self.got_before = 0
        self._pulls: dict[tuple[str, str, int], _QueuePulls] = {}  # group, topic, queue id
        self._sampled: tuple[list[QueueEnd], list[int]] | None = None  # queues, their ends
        self._next_sample_ms = 0

    def figures(self) -> Figures:
        """As of the last sample."""
        return {"messages_in_total": self.put_total.value, "messages_out_total": self.got_total.value}

    # From pulls

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int, count: int) -> None:
        """One pull, answered with `count` messages and where to go on. On the hot path: the rest is for samples."""
        pulls = self._pulls.get((group, topic, queue_id))
        if pulls is None:
            pulls = self._pulls[group, topic, queue_id] = _QueuePulls()
        pulls.offset = next_offset
        if count:
            pulls.found += 1
            pulls.got += count
        else:
            pulls.missed += 1

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Where the group's last pull of a queue ended; 0 for none."""
        pulls = self._pulls.get((group, topic, queue_id))
        return pulls.offset if pulls is not None else 0

    # Over time

    def tick(self, now_ms: int) -> None:
        """While serving."""
        if now_ms < self._next_sample_ms:
            return
        self._next_sample_ms = now_ms + SAMPLE_INTERVAL_MS
        self._count_puts(now_ms)
        self._count_pulls(now_ms)
        day = now_ms // _DAY_MS
        if day != self._day:
            if self._day >= 0:
                self.put_before, self.put_at_midnight = self.put_at_midnight, self.put_total.value
                self.got_before, self.got_at_midnight = self.got_at_midnight, self.got_total.value
            self._day = day
        for item in (
            self.put_total,
            self.got_total,
            self.found_pulls,
            self.missed_pulls,
            self.timers_delivered,
            *self.put_nums.values(),
            *self.get_nums.values(),
        ):
            item.sample(now_ms)

    def group_get_tps(self, topic: str, group: str) -> float:
        item = self.get_nums.get(f"{topic}@{group}")
        return item.over(item.minute).tps if item is not None else 0.0

    def topic_put_tps(self, topic: str) -> float:
        item = self.put_nums.get(topic)
        return item.over(item.minute).tps if item is not None else 0.0

    def forget_topic(self, topic: str) -> None:
        self.put_nums.pop(topic, None)
        for key in [key for key in self.get_nums if key.rpartition("@")[0] == topic]:
            del self.get_nums[key]
        for queue in [queue for queue in self._pulls if queue[1] == topic]:
            del self._pulls[queue]

    def forget_group(self, group: str) -> None:
        for key in [key for key in self.get_nums if key.rpartition("@")[2] == group]:
            del self.get_nums[key]
        for queue in [queue for queue in self._pulls if queue[0] == group]:
            del self._pulls[queue]

    def _count_puts(self, now_ms: int) -> None:
        """By how much the ends of the queues have moved since the last sample: of tens of thousands of queues, too."""
        queues = list(self._queues())
        ends = [queue.max_offset for queue in queues]
        if self._sampled is not None:
            before = self._ends_before(queues, *self._sampled)
            if ends != before:
                self._add_moved(queues, ends, before, now_ms)
        self._sampled = queues, ends

    def _ends_before(
        self, queues: list[QueueEnd], old_queues: list[QueueEnd], old_ends: list[int]
    ) -> list[int]:
        """Of `queues`: 0 for new ones."""
        if queues[: len(old_queues)] == old_queues:
            return old_ends + [0] * (len(queues) - len(old_queues))
        known = {id(queue): end for queue, end in zip(old_queues, old_ends, strict=True)}
        return [known.get(id(queue), 0) for queue in queues]

    def _add_moved(self, queues: list[QueueEnd], ends: list[int], before: list[int], now_ms: int) -> None:
        for queue, end, old_end in zip(queues, ends, before, strict=True):
            if end > old_end:
                topic = queue.topic.decode(errors="replace")
                _item(self.put_nums, topic, now_ms).value += end - old_end
                self.put_total.value += end - old_end

    def _count_pulls(self, now_ms: int) -> None:
        for (group, topic, _), pulls in self._pulls.items():
            if pulls.got:
                _item(self.get_nums, f"{topic}@{group}", now_ms).value += pulls.got
                self.got_total.value += pulls.got
            self.found_pulls.value += pulls.found
            self.missed_pulls.value += pulls.missed
            pulls.found = pulls.missed = pulls.got = 0


def _item(items: dict[str, StatsItem], key: str, now_ms: int) -> StatsItem:
    item = items.get(key)
    if item is None:
        # Known as 0 a sample ago, so that what came first counts too.
        item = items[key] = StatsItem()
        item.sample(now_ms - SAMPLE_INTERVAL_MS)
    return item
