"""Pops messages for a client that receives: from the first broker of the topic that has some."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from message.decoder import MessageExt, decode_messages
from message.pop_handle import PopHandle
from message.tags import SubscriptionData
from mqclient.errors import MQClientError
from mqclient.popped_messages import handle_of, popped_messages
from proxy.arrivals import Arrivals, Source
from proxy.brokers import Brokers
from proxy.popped import FAILURES, PoppedMessages
from proxy.protocol.definition import Code
from proxy.status import StatusError
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.headers import to_ext_fields
from remoting.headers.pop_headers import PopMessageRequestHeader

log = logging.getLogger(__name__)

COUNT_MAX: Final = 32  # of messages; brokers refuse more
_ANSWER_S_MIN: Final = 0.05
_ANSWER_S_MAX: Final = 3.0
_ANSWERS: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})
_INIT_MODE_MAX: Final = 1  # a new group begins at the end of its queues


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a client asks for. It waits for messages `until` then, and its answer must be there before `deadline`.

    Both are times of the event loop's clock.
    """

    group: str
    topic: str
    subscription: SubscriptionData
    count: int
    invisible_ms: int
    is_order: bool
    attempt_id: str
    broker_name: str  # is asked first
    only_that_broker: bool  # no other is asked
    until: float
    deadline: float


class Pops:
    """Invariant: a message that was popped is returned to the caller, or given back to its group."""

    def __init__(
        self, brokers: Brokers, arrivals: Arrivals, popped: PoppedMessages, give_back_ms: int
    ) -> None:
        self._brokers = brokers
        self._arrivals = arrivals
        self._popped = popped
        self._give_back_ms = give_back_ms
        self._round_robin = 0

    async def pop(self, wanted: Wanted) -> list[MessageExt]:
        """Return messages of one broker, as they are stored, with their handles in POP_CK; none if none came in time.

        A broker that cannot be asked counts as one without messages. Raises MQClientError if no broker can be asked,
        and StatusError.
        """
        loop = asyncio.get_running_loop()
        while True:
            sources = await self._sources(wanted)
            errors: list[MQClientError] = []
            for source in sources:
                try:
                    if messages := await self._pop_at(source, wanted):
                        return messages
                except MQClientError as error:
                    if not error.retriable:
                        raise
                    errors.append(error)
            if loop.time() >= wanted.until or self._arrivals.has_ended:
                if len(errors) == len(sources):
                    raise errors[0]
                return []
            async with self._arrivals.turn(sources, wanted.until) as turn:
                if turn is None and not errors:
                    return []
                if turn is not None and (messages := await self._pop_in_turn(turn.source, wanted)):
                    turn.has_found = True
                    return messages

    async def _sources(self, wanted: Wanted) -> list[Source]:
        """List the sources in the order in which they are asked.

        Raises StatusError where the topic may not be read, MQClientError where it is not known.
        """
        route = await self._brokers.routes.route(wanted.topic)
        names = list(dict.fromkeys(queue.broker_name for queue in route.subscribe_queues))
        if not names:
            raise StatusError(Code.FORBIDDEN, f"no readable queue of topic {wanted.topic}")
        self._round_robin += 1
        first = (
            names.index(wanted.broker_name) if wanted.broker_name in names else self._round_robin % len(names)
        )
        names = names[first:] + names[:first]
        if wanted.only_that_broker and wanted.broker_name in names:
            names = names[:1]
        return [Source(wanted.group, wanted.topic, name, wanted.is_order) for name in names]

    async def _pop_in_turn(self, source: Source, wanted: Wanted) -> list[MessageExt]:
        """Like _pop_at(), but after a retriable error return nothing: all sources are looked at again."""
        try:
            return await self._pop_at(source, wanted)
        except MQClientError as error:
            if not error.retriable:
                raise
            return []

    def give_back(self, wanted: Wanted, messages: Sequence[MessageExt]) -> None:
        """Give back messages that did not reach the client. The group gets them again soon; that is no attempt."""
        for message in messages:
            self._brokers.tasks.spawn(self._give_back(wanted, handle_of(message)))

    async def _give_back(self, wanted: Wanted, handle: PopHandle) -> None:
        try:
            await self._popped.change(
                wanted.group, wanted.topic, handle, self._give_back_ms, _ANSWER_S_MAX, suspend=True
            )
        except FAILURES as error:
            log.info("not given back handle=%s reason=%s", handle, error)

    async def _pop_at(self, source: Source, wanted: Wanted) -> list[MessageExt]:
        """Pop what the broker has now. If the client goes away meanwhile, that is given back. Raises MQClientError."""
        popping = asyncio.get_running_loop().create_task(self._request(source, wanted))
        try:
            return await asyncio.shield(popping)
        except asyncio.CancelledError:
            # The client is gone, and the broker does not know.
            self._brokers.tasks.spawn(self._give_back_popped(wanted, popping))
            raise

    async def _give_back_popped(self, wanted: Wanted, popping: asyncio.Task[list[MessageExt]]) -> None:
        with suppress(*FAILURES):
            self.give_back(wanted, await popping)

    async def _request(self, source: Source, wanted: Wanted) -> list[MessageExt]:
        """Send the POP_MESSAGE. Raises MQClientError."""
        header = PopMessageRequestHeader(
            consumer_group=wanted.group,
            topic=wanted.topic,
            queue_id=-1,
            max_msg_nums=wanted.count,
            invisible_time=wanted.invisible_ms,
            poll_time=0,
            born_time=0,  # now, by the broker's clock
            init_mode=_INIT_MODE_MAX,
            exp_type=wanted.subscription.expression_type,
            exp=wanted.subscription.sub_string,
            order=wanted.is_order,
            attempt_id=wanted.attempt_id,
            bname=source.broker_name,
        )
        left_s = wanted.deadline - asyncio.get_running_loop().time()
        answer = await self._brokers.ask_once(
            wanted.topic,
            source.broker_name,
            RequestCode.POP_MESSAGE,
            to_ext_fields(header),
            timeout_s=min(max(left_s, _ANSWER_S_MIN), _ANSWER_S_MAX),
            accept=_ANSWERS,
        )
        if answer.code != ResponseCode.SUCCESS:
            return []
        return popped_messages(answer, wanted.topic, source.broker_name, decode_messages)
