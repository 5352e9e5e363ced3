"""Pops that found nothing and wait: woken by messages, by time, by a change of role.

A pop waits for any queue of its topic, or for one, and for what comes to its group's retry topics. A message wakes one
of each group: what that leaves, the next one is woken for. A pop that was woken runs as a whole again, and may wait
again. Notifications wait here, too; they take nothing, so each one in front of that pop is woken with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from broker.clients.client_channel import ClientChannel
from broker.waiting.waiting_room import CHECK_INTERVAL_MS, Arrivals
from store.dispatch_request import DispatchRequest
from store.filter.message_filter import MessageFilter

# RocketMQ's maxPopPollingSize and popPollingSize.
WAITING_MAX: Final = 100_000
WAITING_OF_QUEUE_MAX: Final = 1024
ANY_QUEUE: Final = -1


class WaitingPop(msgspec.Struct, eq=False):
    channel: ClientChannel
    group: str
    topic: str
    queue_id: int  # ANY_QUEUE: any of the topic's
    retry_topics: tuple[str, ...]
    wake_ms: int  # when it looks again in any case
    message_filter: MessageFilter | None  # None: any message of its topic wakes it
    wake: Callable[[int], None]  # takes now_ms
    takes: bool = True  # False: it only wants to know

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic, *self.retry_topics)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.group, self.topic, self.queue_id


class WaitingPops:
    """Invariant: a pop leaves the room exactly once, with a call of its `wake` or with its channel's end."""

    def __init__(self, look_message_by_offset: Callable[[int], bytes | None]) -> None:
        self._look_message_by_offset = look_message_by_offset
        # The oldest first, by topic.
        self._by_topic: dict[str, dict[WaitingPop, None]] = {}
        self._counts: dict[tuple[str, str, int], int] = {}
        self._count = 0
        self._next_wake_ms: int | None = None
        self._next_check_ms = 0

    def __len__(self) -> int:
        return self._count

    def count(self, group: str, topic: str, queue_id: int) -> int:
        return self._counts.get((group, topic, queue_id), 0)

    @property
    def due_ms(self) -> int | None:
        """When the first one looks again, at the earliest; None: none waits."""
        return self._next_wake_ms

    def is_full(self, group: str, topic: str, queue_id: int) -> bool:
        return self._count >= WAITING_MAX or self.count(group, topic, queue_id) >= WAITING_OF_QUEUE_MAX

    def hold(self, pop: WaitingPop) -> None:
        for topic in pop.topics:
            self._by_topic.setdefault(topic, {})[pop] = None
        self._counts[pop.key] = self._counts.get(pop.key, 0) + 1
        self._count += 1
        if self._next_wake_ms is None or pop.wake_ms < self._next_wake_ms:
            self._next_wake_ms = pop.wake_ms

    def on_arriving(self, arrived: Iterable[DispatchRequest], now_ms: int) -> None:
        for messages in arrived:
            topic = messages.topic.decode()
            if topic in self._by_topic:
                self._wake(self._wanted(topic, messages), now_ms)

    def _wanted(self, topic: str, messages: DispatchRequest) -> list[WaitingPop]:
        """Of each group the first one that takes messages, and all in front of it that take none."""
        arrivals = Arrivals(messages, self._look_message_by_offset)
        wanted: list[WaitingPop] = []
        groups: set[str] = set()
        for pop in self._by_topic[topic]:
            if pop.group in groups or not pop.channel.is_open:
                continue
            if topic != pop.topic or (
                pop.queue_id in (ANY_QUEUE, messages.queue_id)
                and arrivals.may_have_wanted(pop.message_filter)
            ):
                wanted.append(pop)
                if pop.takes:
                    groups.add(pop.group)
        return wanted

    def wake_one(self, group: str, topic: str, now_ms: int) -> None:
        """There is more for the group, or may be: for one that takes it, and all in front of that which take none."""
        found: list[WaitingPop] = []
        for pop in self._by_topic.get(topic, {}):
            if pop.group == group and pop.channel.is_open:
                found.append(pop)
                if pop.takes:
                    break
        self._wake(found, now_ms)

    def wake_topic(self, topic: str, now_ms: int) -> None:
        """A group's offset was moved, or the topic is another one."""
        self._wake(list(self._by_topic.get(topic, {})), now_ms)

    def wake_all(self, now_ms: int) -> None:
        """The role changed or the broker stops: clients that wait must look elsewhere."""
        self._wake(list(self._all()), now_ms)

    def tick(self, now_ms: int) -> None:
        """Wakes those whose time has come, and every 5 s one of each group and queue, whatever has happened."""
        is_check_due = now_ms >= self._next_check_ms
        if not is_check_due and (self._next_wake_ms is None or now_ms < self._next_wake_ms):
            return
        woken = {pop for pop in self._all() if pop.wake_ms <= now_ms}
        if is_check_due:
            self._next_check_ms = now_ms + CHECK_INTERVAL_MS
            woken |= set({(pop.key, pop.takes): pop for pop in self._all()}.values())
        self._wake([pop for pop in self._all() if pop in woken], now_ms)
        self._next_wake_ms = min((pop.wake_ms for pop in self._all()), default=None)

    def channel_closed(self, channel_id: int) -> None:
        for pop in [pop for pop in self._all() if pop.channel.id == channel_id]:
            self._remove(pop)

    def _all(self) -> Iterator[WaitingPop]:
        return (pop for topic, pops in self._by_topic.items() for pop in pops if pop.topic == topic)

    def _wake(self, pops: list[WaitingPop], now_ms: int) -> None:
        for pop in pops:
            self._remove(pop)
        for pop in pops:
            pop.wake(now_ms)

    def _remove(self, pop: WaitingPop) -> None:
        for topic in pop.topics:
            pops = self._by_topic[topic]
            del pops[pop]
            if not pops:
                del self._by_topic[topic]
        self._count -= 1
        self._counts[pop.key] -= 1
        if not self._counts[pop.key]:
            del self._counts[pop.key]
