"""Long polls of ReceiveMessage: when a group has messages, its waiting receives get a turn, one after the other.

For each group, topic and broker one NOTIFICATION waits at the broker, however many clients wait here. A NOTIFICATION
takes no messages. So a client that goes away while it waits leaves no pop behind that would take messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from mqclient.errors import MQClientError
from proxy.brokers import Brokers
from proxy.status import StatusError
from proxy.tasks import Tasks
from remoting.codes import RequestCode
from remoting.headers.headers import is_true, to_ext_fields
from remoting.headers.pop_headers import NotificationRequestHeader

log = logging.getLogger(__name__)

_HOLD_S: Final = 20.0
_ANSWER_S: Final = 5.0  # that the answer may take beyond _HOLD_S
# After a turn that found nothing: another proxy was faster, or the filter matches nothing.
_PAUSE_S: Final = 0.02
# After a broker that could not be asked.
_TROUBLE_PAUSE_S: Final = 0.2


class Source(NamedTuple):
    """Where messages of a topic come from."""

    group: str
    topic: str
    broker_name: str
    is_order: bool


class Turn:
    """The right of one client to pop at the source. The other clients wait until it is over."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.has_found = False
        self.over = asyncio.Event()


Waiters = dict[asyncio.Future[Turn | None], None]  # the one that came first is first


class Arrivals:
    """Invariant: while somebody waits for a source, it has one task, which gives one turn at a time."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._waiters: dict[Source, Waiters] = {}
        self._tasks = Tasks()
        self.has_ended = False

    @property
    def waiting_count(self) -> int:
        """How many clients wait, once for each source."""
        return sum(map(len, self._waiters.values()))

    def end_waiting(self) -> None:
        """End all waits, because the proxy stops."""
        self.has_ended = True
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def close(self) -> None:
        await self._tasks.close()

    @asynccontextmanager
    async def turn(self, sources: Sequence[Source], until: float) -> AsyncIterator[Turn | None]:
        """Wait for a turn at the first of the sources that has messages. Yields None if none has any `until` that time.

        `until` is a time of the event loop's clock.
        """
        if self.has_ended:
            yield None
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Turn | None] = loop.create_future()
        for source in sources:
            self._waiters_of(source)[waiter] = None
        try:
            await asyncio.wait([waiter], timeout=max(until - loop.time(), 0.0))
            yield waiter.result() if waiter.done() else None
        finally:
            for source in sources:
                self._waiters.get(source, {}).pop(waiter, None)
            if waiter.done() and (turn := waiter.result()) is not None:
                turn.over.set()

    def _waiters_of(self, source: Source) -> Waiters:
        waiters = self._waiters.get(source)
        if waiters is None:
            waiters = self._waiters[source] = {}
            self._tasks.spawn(self._watch(source, waiters))
        return waiters

    async def _watch(self, source: Source, waiters: Waiters) -> None:
        is_logged = False  # that the broker cannot be asked
        try:
            while waiters:
                try:
                    has_messages = await self._has_messages(source)
                except (MQClientError, StatusError) as error:
                    if not is_logged:
                        log.info("notification failed source=%s reason=%s", source, error)
                    is_logged = True
                    await asyncio.sleep(_TROUBLE_PAUSE_S)
                    await self._brokers.look_for_leader(source.topic)
                    continue
                is_logged = False
                if has_messages and not await self._give_turn(source, waiters):
                    await asyncio.sleep(_PAUSE_S)
        finally:
            del self._waiters[source]

    @staticmethod
    async def _give_turn(source: Source, waiters: Waiters) -> bool:
        """Give the first waiter a turn, and wait until it is over. Returns whether that client has found messages."""
        # A client that waits for several sources may have a turn at another one already.
        waiter = next((waiter for waiter in waiters if not waiter.done()), None)
        if waiter is None:
            return False
        turn = Turn(source)
        waiter.set_result(turn)
        await turn.over.wait()
        return turn.has_found

    async def _has_messages(self, source: Source) -> bool:
        """Ask the broker, which answers when it has messages or after _HOLD_S. Raises MQClientError, StatusError."""
        header = NotificationRequestHeader(
            consumer_group=source.group,
            topic=source.topic,
            queue_id=-1,
            poll_time=round(_HOLD_S * 1000),
            born_time=0,  # now, by the broker's clock
            order=source.is_order,
            bname=source.broker_name,
        )
        answer = await self._brokers.ask_once(
            source.topic,
            source.broker_name,
            RequestCode.NOTIFICATION,
            to_ext_fields(header),
            timeout_s=_HOLD_S + _ANSWER_S,
        )
        if is_true(dict(answer.fields), "pollingFull"):
            await asyncio.sleep(_TROUBLE_PAUSE_S)
        return is_true(dict(answer.fields), "hasMsg")
