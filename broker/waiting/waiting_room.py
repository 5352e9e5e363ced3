"""Requests that found nothing and wait: woken by messages, by time, by a change of role.

The room does not know what kind of request waits. A waiting request costs nothing until something happens to its queue.
Woken, it runs as a whole again and is then answered whatever it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

import msgspec

from broker.clients.client_channel import ClientChannel
from disk.disk import DiskError
from remoting.frame.command import RemotingCommand
from store.dispatch_request import DispatchRequest
from store.errors import StoreError
from store.filter.message_filter import MessageFilter
from store.layout.consume_queue_unit import CQ_UNIT

CHECK_INTERVAL_MS = 5000
# Of more messages at once none is looked at for those that wait: their pulls do it, in turns.
RECORDS_LOOKED_AT_MAX = 16
WAITING_MAX: Final = 100_000
WAIT_MS_MAX: Final = 120_000  # whatever a client asks for; Java's ask for 30 s at most
FIELDS_LENGTH_MAX: Final = 8192  # characters of a request that waits
WAITING_OF_CHANNEL_MAX: Final = 8192  # a consumer has one for each queue of its topics

QueueKey = tuple[str, int]  # topic, queue id


# Answers requests of one kind, all that were woken together; takes now_ms as well.
Wake = Callable[[list[Any], int], None]


def let_wait(command: RemotingCommand) -> bool:
    """Whether a request, whose header has been read, is short enough to be kept. What nobody reads any more of one that
    is kept is let go of.
    """
    if sum(map(len, command.ext_fields.values())) > FIELDS_LENGTH_MAX:
        return False
    command.ext_fields, command.body = {}, b""
    return True


class WaitingRequest(msgspec.Struct):
    channel: ClientChannel
    suspend_until_ms: int
    queue_offset: int  # what it waits for
    message_filter: MessageFilter | None  # None: any message wakes it
    request: object  # what `wake` needs to run it again
    wake: Wake


class WaitingRoom:
    """Invariants: a request leaves the table exactly once, with a call of its `wake` or with its channel's end.
    `_counts` has the number of requests of each channel that has any.
    """

    def __init__(
        self, max_offset: Callable[[str, int], int], look_message_by_offset: Callable[[int], bytes | None]
    ) -> None:
        """`max_offset(topic, queue_id)` and `look_message_by_offset(phy_offset)` are those of the store."""
        self._max_offset = max_offset
        self._look_message_by_offset = look_message_by_offset
        self._waiting: dict[QueueKey, list[WaitingRequest]] = {}
        self._counts: dict[int, int] = {}  # by channel
        self._count = 0
        self._next_check_ms = 0
        self._next_expiry_ms: int | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    @property
    def due_ms(self) -> int | None:
        """When the first request expires, at the earliest; None: none waits."""
        return self._next_expiry_ms

    def has_room(self, channel: ClientChannel) -> bool:
        """Whether one more request of this channel may be held. One that may not is answered with what there is."""
        return self._count < WAITING_MAX and self._counts.get(channel.id, 0) < WAITING_OF_CHANNEL_MAX

    def hold(self, topic: str, queue_id: int, request: WaitingRequest) -> None:
        self._waiting.setdefault((topic, queue_id), []).append(request)
        channel_id = request.channel.id
        self._counts[channel_id] = self._counts.get(channel_id, 0) + 1
        self._count += 1
        until = request.suspend_until_ms
        if self._next_expiry_ms is None or until < self._next_expiry_ms:
            self._next_expiry_ms = until

    def on_arriving(self, arrived: Iterable[DispatchRequest], now_ms: int) -> None:
        """Wakes those that wait for one of these messages, all at once: a client gets its answers in one write."""
        woken: list[WaitingRequest] = []
        for messages in arrived:
            key = messages.topic.decode(), messages.queue_id
            requests = self._waiting.get(key)
            if not requests:
                continue
            arrivals = Arrivals(messages, self._look_message_by_offset)
            kept = []
            for request in requests:
                is_ahead = request.queue_offset < messages.next_offset
                if is_ahead and arrivals.may_have_wanted(request.message_filter):
                    woken.append(request)
                else:
                    kept.append(request)
            self._keep(key, kept)
        self._wake_all(woken, now_ms)

    def tick(self, now_ms: int) -> None:
        """Wakes what has expired, and every 5 s whatever has messages to look at, wanted ones or not."""
        is_check_due = now_ms >= self._next_check_ms
        if not is_check_due and (self._next_expiry_ms is None or now_ms < self._next_expiry_ms):
            return
        if is_check_due:
            self._next_check_ms = now_ms + CHECK_INTERVAL_MS
        woken: list[WaitingRequest] = []
        self._next_expiry_ms = None
        for key, requests in list(self._waiting.items()):
            max_offset = self._max_offset(*key) if is_check_due else -1
            kept = []
            for request in requests:
                # Also where no tag matched: the client then goes on behind what it does not want.
                if request.suspend_until_ms <= now_ms or request.queue_offset < max_offset:
                    woken.append(request)
                else:
                    kept.append(request)
            self._keep(key, kept)
        for requests in self._waiting.values():
            until = min(request.suspend_until_ms for request in requests)
            if self._next_expiry_ms is None or until < self._next_expiry_ms:
                self._next_expiry_ms = until
        self._wake_all(woken, now_ms)

    def wake_queue(self, topic: str, queue_id: int, now_ms: int) -> None:
        """A group's offset was reset: its clients should hear of it now."""
        self._wake_all(self._waiting.pop((topic, queue_id), []), now_ms)

    def wake_all(self, now_ms: int) -> None:
        """The role changed or the broker stops: clients that wait must look elsewhere."""
        waiting, self._waiting = self._waiting, {}
        self._next_expiry_ms = None
        self._wake_all([request for requests in waiting.values() for request in requests], now_ms)

    def channel_closed(self, channel_id: int) -> None:
        count = self._counts.pop(channel_id, 0)
        if not count:
            return
        self._count -= count
        for key, requests in list(self._waiting.items()):
            self._keep(key, [request for request in requests if request.channel.id != channel_id])

    def _keep(self, key: QueueKey, requests: list[WaitingRequest]) -> None:
        if requests:
            self._waiting[key] = requests
        else:
            del self._waiting[key]

    def _wake_all(self, woken: Iterable[WaitingRequest], now_ms: int) -> None:
        """Those that have left the table."""
        by_kind: dict[Wake, list[Any]] = {}
        for waiting in woken:
            channel_id = waiting.channel.id
            self._count -= 1
            if (count := self._counts[channel_id] - 1) == 0:
                del self._counts[channel_id]
            else:
                self._counts[channel_id] = count
            by_kind.setdefault(waiting.wake, []).append(waiting.request)
        for wake, requests in by_kind.items():
            wake(requests, now_ms)


class Arrivals:
    """Messages that arrived in one queue. Their records are read once, for all who wait, and only if a filter asks."""

    def __init__(
        self, messages: DispatchRequest, look_message_by_offset: Callable[[int], bytes | None]
    ) -> None:
        self._messages = messages
        self._look_message_by_offset = look_message_by_offset
        self._codes = set(messages.tags_codes)  # none if they are not known

    def may_have_wanted(self, wanted: MessageFilter | None) -> bool:
        if wanted is None or not self._codes:
            return True
        if not any(map(wanted.by_unit, self._codes)):
            return False
        if wanted.by_record is None or self._records is None:
            return True
        return any(map(wanted.by_record, self._records))

    @cached_property
    def _records(self) -> list[bytes] | None:
        """None: they are too many, or one cannot be read. Whoever pulls them will see."""
        if len(self._messages.units) > RECORDS_LOOKED_AT_MAX:
            return None
        records = []
        for unit in self._messages.units:
            phy_offset, _, _ = CQ_UNIT.unpack(unit)
            try:
                record = self._look_message_by_offset(phy_offset)
            except (StoreError, DiskError):
                return None
            if record is None:
                return None
            records.append(record)
        return records
