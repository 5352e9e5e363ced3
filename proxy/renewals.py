"""Renews the invisible time of messages that push consumers work on: their clients leave that to the proxy.

Leases are the only thing that no other proxy knows. If this one stops, a message comes again when its time is over,
unless it is acknowledged before that; an acknowledgement needs no lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from typing import Final, NamedTuple

from message.pop_handle import PopHandle
from mqclient.errors import MQClientError
from proxy.config import ProxyConfig
from proxy.popped import FAILURES, PoppedMessages
from proxy.tasks import Tasks

log = logging.getLogger(__name__)

# The invisible times that the first renewal of a message asks for, the second one and so on: RocketMQ's.
_SLICES_S: Final = (60, 180, 300, 600, 1800, 3600)
_TIMEOUT_S: Final = 3.0
_AT_ONCE_MAX: Final = 64  # requests to one broker


class MessageKey(NamedTuple):
    """A message that a group has popped."""

    group: str
    topic: str
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int | None


@dataclass(slots=True, eq=False)
class Lease:
    """A message that a client has. `handle` is its newest one; `renewing` is the task that renews it now.

    Times are of the event loop's clock.
    """

    key: MessageKey
    client_id: str
    handle: PopHandle
    first_pop_time: int
    renew_at: float
    until: float  # it is not renewed after that
    count: int = 0  # of renewals
    failures: int = 0  # since the last renewal
    renewing: asyncio.Task[None] | None = None


class Renewals:
    """Invariant: after `close` no message is renewed, and no task is left."""

    def __init__(self, config: ProxyConfig, popped: PoppedMessages) -> None:
        self._config = config
        self._popped = popped
        self._leases: dict[MessageKey, Lease] = {}
        self._tasks = Tasks()
        # By broker: what one that does not answer has to wait for must not run out at the others.
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_AT_ONCE_MAX)
        )

    def __len__(self) -> int:
        return len(self._leases)

    def start(self) -> None:
        self._tasks.spawn(self._renew_all())

    async def close(self) -> None:
        """Stop renewing. Clients keep their messages until the time is over: they may go on with another proxy."""
        await self._tasks.close()

    # -- what clients have -------------------------------------------------------------------------------------

    def hold(self, client_id: str, group: str, topic: str, handle: PopHandle) -> None:
        """Begin a lease: the client has the message from now on, at first for the time that the handle says."""
        now = asyncio.get_running_loop().time()
        key = _key(group, topic, handle)
        self._leases[key] = Lease(
            key,
            client_id,
            handle,
            handle.pop_time,
            now + self._renew_after_s(handle.invisible_ms / 1000),
            now + self._config.renew_max_time_ms / 1000,
        )

    async def take(self, group: str, topic: str, handle: PopHandle) -> Lease | None:
        """End the lease, and return it. Returns None if there is none, or the handle is of an earlier pop."""
        key = _key(group, topic, handle)
        lease = self._leases.get(key)
        if lease is None or handle.pop_time < lease.first_pop_time:
            return None
        del self._leases[key]
        if lease.renewing is not None:
            try:
                await asyncio.wait([lease.renewing])
            except asyncio.CancelledError:
                self.put_back(lease)
                raise
        return lease

    def put_back(self, lease: Lease | None) -> None:
        """Go on with a lease, because what it was taken for has failed."""
        if lease is not None:
            self._leases.setdefault(lease.key, lease)

    def client_gone(self, client_id: str) -> None:
        """Give back the messages that the client had, so that others get them soon."""
        for lease in [lease for lease in self._leases.values() if lease.client_id == client_id]:
            del self._leases[lease.key]
            self._tasks.spawn(self._give_back(lease))

    # -- renewing ----------------------------------------------------------------------------------------------

    def _renew_after_s(self, invisible_s: float) -> float:
        return max(invisible_s - self._config.renew_ahead_time_ms / 1000, 0.0)

    async def _renew_all(self) -> None:
        while True:
            await asyncio.sleep(self._config.renew_schedule_period_ms / 1000)
            now = asyncio.get_running_loop().time()
            for lease in list(self._leases.values()):
                if now >= lease.until:
                    del self._leases[lease.key]
                elif now >= lease.renew_at and lease.renewing is None:
                    lease.renewing = self._tasks.spawn(self._renew(lease))

    async def _renew(self, lease: Lease) -> None:
        slice_s = _SLICES_S[min(lease.count, len(_SLICES_S) - 1)]
        try:
            await self._change(lease, slice_s * 1000)
        except FAILURES as error:
            lease.failures += 1
            is_over = (
                not isinstance(error, MQClientError) or lease.failures >= self._config.max_renew_retry_times
            )
            log.info("not renewed message=%s over=%s reason=%s", lease.key, is_over, error)
            if is_over and self._leases.get(lease.key) is lease:
                del self._leases[lease.key]
        else:
            lease.failures = 0
            lease.count += 1
            lease.renew_at = asyncio.get_running_loop().time() + self._renew_after_s(slice_s)
        finally:
            lease.renewing = None

    async def _give_back(self, lease: Lease) -> None:
        if lease.renewing is not None:
            await asyncio.wait([lease.renewing])
        try:
            await self._change(lease, self._config.invisible_time_ms_when_clear)
        except FAILURES as error:
            log.info("not given back message=%s reason=%s", lease.key, error)

    async def _change(self, lease: Lease, invisible_ms: int) -> None:
        """Raises Failure."""
        async with self._turns[lease.key.broker_name]:
            lease.handle = await self._popped.change(
                lease.key.group, lease.key.topic, lease.handle, invisible_ms, _TIMEOUT_S
            )


def _key(group: str, topic: str, handle: PopHandle) -> MessageKey:
    return MessageKey(group, topic, handle.retry, handle.broker_name, handle.queue_id, handle.queue_offset)
