"""Pops that found nothing and wait: woken by messages, by time, by a change of role.

A pop waits for any queue of its topic, or for one, and for what comes to its group's retry topics. A message wakes one
of each group: what that leaves, the next one is woken for. A pop that was woken runs as a whole again, and may wait
again. Notifications wait here, too; they take nothing, so each one before that pop is woken with it.

What happens to one group or queue costs nothing for those of others that wait: up to 100,000 do.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Final

import msgspec

from broker.clients.client_channel import ClientChannel
from broker.waiting.waiting_room import CHECK_INTERVAL_MS, WAIT_MS_MAX, Arrivals
from store.dispatch_request import DispatchRequest
from store.filter.message_filter import MessageFilter

# RocketMQ's maxPopPollingSize and popPollingSize.
WAITING_MAX: Final = 100_000
WAITING_OF_QUEUE_MAX: Final = 1024
ANY_QUEUE: Final = -1
# The heap of times is made anew when it is longer than this and twice the pops that wait: most of it has left by then.
_GONE_COUNT_MIN: Final = 1024

Pops = dict["WaitingPop", None]  # the oldest first


def wait_until_ms(born_ms: int | None, poll_ms: int, now_ms: int) -> int:
    """Up to when a pop that was made at `born_ms` by its client's clock may wait."""
    return min((born_ms or now_ms) + poll_ms, now_ms + WAIT_MS_MAX)


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


class WaitingPops:
    """Invariant: a pop leaves the room exactly once, with a call of its `wake` or with its channel's end."""

    def __init__(self, look_message_by_offset: Callable[[int], bytes | None]) -> None:
        self._look_message_by_offset = look_message_by_offset
        self._all: Pops = {}
        # By topic and group, under each topic of a pop; then by the queue of its own topic that it asks for.
        self._by_topic: dict[str, dict[str, dict[int, Pops]]] = {}
        self._by_channel: dict[int, Pops] = {}
        # A heap of (wake_ms, number, pop), with some that have left.
        self._due: list[tuple[int, int, WaitingPop]] = []
        self._numbers = count()
        self._next_check_ms = 0

    def __len__(self) -> int:
        return len(self._all)

    def count(self, group: str, topic: str, queue_id: int) -> int:
        return len(self._queues(topic, group).get(queue_id, ()))

    @property
    def due_ms(self) -> int | None:
        """When the first one looks again; None: none waits."""
        return self._due[0][0] if self._due else None

    def is_full(self, group: str, topic: str, queue_id: int) -> bool:
        return len(self._all) >= WAITING_MAX or self.count(group, topic, queue_id) >= WAITING_OF_QUEUE_MAX

    def hold(self, pop: WaitingPop) -> None:
        self._all[pop] = None
        for topic in pop.topics:
            queues = self._by_topic.setdefault(topic, {}).setdefault(pop.group, {})
            queues.setdefault(pop.queue_id, {})[pop] = None
        self._by_channel.setdefault(pop.channel.id, {})[pop] = None
        heapq.heappush(self._due, (pop.wake_ms, next(self._numbers), pop))

    def on_arriving(self, arrived: Iterable[DispatchRequest], now_ms: int) -> None:
        for messages in arrived:
            topic = messages.topic.decode()
            if topic in self._by_topic:
                self._wake(self._wanted(topic, messages), now_ms)

    def _wanted(self, topic: str, messages: DispatchRequest) -> list[WaitingPop]:
        """Return, for each group, the first pop that takes messages, and the notifications before it."""
        arrivals = Arrivals(messages, self._look_message_by_offset)
        wanted: list[WaitingPop] = []
        for queues in self._by_topic[topic].values():
            wanted += _first_of(
                queues,
                lambda pop: (
                    topic != pop.topic
                    or (
                        pop.queue_id in (ANY_QUEUE, messages.queue_id)
                        and arrivals.may_have_wanted(pop.message_filter)
                    )
                ),
            )
        return wanted

    def wake_one(self, group: str, topic: str, now_ms: int) -> None:
        """Wake the group's first pop and the notifications before it, because there may be more messages for it."""
        self._wake(_first_of(self._queues(topic, group), lambda pop: True), now_ms)

    def wake_topic(self, topic: str, now_ms: int) -> None:
        """Wake all pops of the topic, because a group's offset was moved, or the topic has changed."""
        by_group = self._by_topic.get(topic, {})
        self._wake([pop for queues in by_group.values() for pops in queues.values() for pop in pops], now_ms)

    def wake_all(self, now_ms: int) -> None:
        """Wake all pops, because the role has changed or the broker stops: their clients must look elsewhere."""
        self._wake(list(self._all), now_ms)

    def tick(self, now_ms: int) -> None:
        """Wake pops whose time has come, and every 5 s one of each group and queue in any case."""
        woken: Pops = {}
        if now_ms >= self._next_check_ms:
            self._next_check_ms = now_ms + CHECK_INTERVAL_MS
            kinds = {(pop.group, pop.topic, pop.queue_id, pop.takes): pop for pop in reversed(self._all)}
            woken = dict.fromkeys(reversed(kinds.values()))
        while self._due and self._due[0][0] <= now_ms:
            _, _, pop = heapq.heappop(self._due)
            if pop in self._all:
                woken[pop] = None
        self._wake(list(woken), now_ms)

    def channel_closed(self, channel_id: int) -> None:
        for pop in list(self._by_channel.get(channel_id, ())):
            self._remove(pop)

    def _queues(self, topic: str, group: str) -> Mapping[int, Pops]:
        return self._by_topic.get(topic, {}).get(group, {})

    def _wake(self, pops: list[WaitingPop], now_ms: int) -> None:
        for pop in pops:
            self._remove(pop)
        for pop in pops:
            pop.wake(now_ms)

    def _remove(self, pop: WaitingPop) -> None:
        del self._all[pop]
        for topic in pop.topics:
            groups = self._by_topic[topic]
            queues = groups[pop.group]
            _remove_from(queues, pop.queue_id, pop)
            if not queues:
                del groups[pop.group]
            if not groups:
                del self._by_topic[topic]
        _remove_from(self._by_channel, pop.channel.id, pop)
        self._forget_gone()

    def _forget_gone(self) -> None:
        """Remove times of pops that have left: those in front of the first that waits, and all when they are many."""
        while self._due and self._due[0][2] not in self._all:
            heapq.heappop(self._due)
        if len(self._due) > _GONE_COUNT_MIN + 2 * len(self._all):
            self._due = [due for due in self._due if due[2] in self._all]
            heapq.heapify(self._due)


def _first_of(queues: Mapping[int, Pops], is_wanted: Callable[[WaitingPop], bool]) -> list[WaitingPop]:
    """Return the group's first wanted pop that takes messages, and the wanted notifications before it."""
    found: list[WaitingPop] = []
    for pops in queues.values():
        for pop in pops:
            if pop.channel.is_open and is_wanted(pop):
                found.append(pop)
                if pop.takes:
                    return found
    return found


def _remove_from(table: dict[int, Pops], key: int, pop: WaitingPop) -> None:
    pops = table[key]
    del pops[pop]
    if not pops:
        del table[key]
