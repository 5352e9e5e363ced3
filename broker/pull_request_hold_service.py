"""Pulls that found nothing and wait: woken by messages, by time, by a change of role.

A held pull costs nothing until something happens to its queue. Woken, it runs as a whole again and is then answered
whatever it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from broker.pull_turns import Pull
from store.dispatch_request import DispatchRequest

CHECK_INTERVAL_MS = 5000

QueueKey = tuple[str, int]  # topic, queue id


@dataclass(slots=True)
class PullRequest:
    pull: Pull
    suspend_until_ms: int
    queue_offset: int  # what it waits for
    code_set: frozenset[int] | None  # tag hashes that it wants; None for all


class PullRequestHoldService:
    """Invariant: a request leaves the table exactly once, with a call of `wake` or with its channel's end."""

    def __init__(
        self, wake: Callable[[Sequence[PullRequest], int], None], max_offset: Callable[[str, int], int]
    ) -> None:
        """`wake(requests, now_ms)` answers them; `max_offset(topic, queue_id)` is that of the store."""
        self._wake = wake
        self._max_offset = max_offset
        self._held: dict[QueueKey, list[PullRequest]] = {}
        self._next_check_ms = 0
        self._next_expiry_ms: int | None = None

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    @property
    def is_empty(self) -> bool:
        return not self._held

    def hold(self, topic: str, queue_id: int, request: PullRequest) -> None:
        self._held.setdefault((topic, queue_id), []).append(request)
        until = request.suspend_until_ms
        if self._next_expiry_ms is None or until < self._next_expiry_ms:
            self._next_expiry_ms = until

    def on_arriving(self, arrived: Iterable[DispatchRequest], now_ms: int) -> None:
        """Wakes those that wait for one of these messages, all at once: a client gets its answers in one write."""
        woken: list[PullRequest] = []
        for messages in arrived:
            key = messages.topic.decode(), messages.queue_id
            requests = self._held.get(key)
            if not requests:
                continue
            codes = set(messages.tags_codes)  # none if they are not known
            kept = []
            for request in requests:
                wanted = request.code_set
                is_wanted = wanted is None or not codes or not wanted.isdisjoint(codes)
                if request.queue_offset < messages.next_offset and is_wanted:
                    woken.append(request)
                else:
                    kept.append(request)
            self._keep(key, kept)
        if woken:
            self._wake(woken, now_ms)

    def tick(self, now_ms: int) -> None:
        """Wakes what has expired, and every 5 s whatever has messages before it, wanted ones or not."""
        is_check_due = now_ms >= self._next_check_ms
        if not is_check_due and (self._next_expiry_ms is None or now_ms < self._next_expiry_ms):
            return
        if is_check_due:
            self._next_check_ms = now_ms + CHECK_INTERVAL_MS
        woken: list[PullRequest] = []
        self._next_expiry_ms = None
        for key, requests in list(self._held.items()):
            max_offset = self._max_offset(*key) if is_check_due else -1
            kept = []
            for request in requests:
                # Also where no tag matched: the client then goes on behind what it does not want.
                if request.suspend_until_ms <= now_ms or request.queue_offset < max_offset:
                    woken.append(request)
                else:
                    kept.append(request)
            self._keep(key, kept)
        for requests in self._held.values():
            until = min(request.suspend_until_ms for request in requests)
            if self._next_expiry_ms is None or until < self._next_expiry_ms:
                self._next_expiry_ms = until
        if woken:
            self._wake(woken, now_ms)

    def wake_queue(self, topic: str, queue_id: int, now_ms: int) -> None:
        """A group's offset was reset: its clients should hear of it now."""
        self._wake(self._held.pop((topic, queue_id), []), now_ms)

    def wake_all(self, now_ms: int) -> None:
        """The role changed or the broker stops: whoever waits must look elsewhere."""
        held, self._held = self._held, {}
        self._next_expiry_ms = None
        self._wake([request for requests in held.values() for request in requests], now_ms)

    def channel_closed(self, channel_id: int) -> None:
        for key, requests in list(self._held.items()):
            self._keep(key, [request for request in requests if request.pull.channel.id != channel_id])

    def _keep(self, key: QueueKey, requests: list[PullRequest]) -> None:
        if requests:
            self._held[key] = requests
        else:
            del self._held[key]
