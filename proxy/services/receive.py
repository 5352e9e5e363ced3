"""ReceiveMessage: messages for a consumer, as soon as there are some.

All that it needs is in the request and in the group's configuration at the brokers. So a client may receive through a
proxy that has never heard of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from message.decoder import MessageExt
from message.errors import SubscriptionParseError
from message.pop_handle import PopHandle
from message.tags import EXPRESSION_TYPE_SQL92, EXPRESSION_TYPE_TAG, SubscriptionData, build_subscription
from mqclient.errors import MQClientError
from mqclient.popped_messages import handle_of
from proxy.config import ProxyConfig
from proxy.grpc.call import Call
from proxy.messages.names import check_group, check_topic
from proxy.messages.receipt_handle import ReceiptHandle
from proxy.messages.times import duration_ms, set_ms
from proxy.messages.v2_message import v2_message
from proxy.metadata import Metadata
from proxy.popped import FAILURES, PoppedMessages
from proxy.pops import COUNT_MAX, Pops, Wanted
from proxy.protocol.definition import Code, FilterExpression, FilterType
from proxy.protocol.service import ReceiveMessageRequest, ReceiveMessageResponse
from proxy.renewals import Renewals
from proxy.services.methods import client_id_of
from proxy.sessions import Sessions
from proxy.status import StatusError, status
from remoting.bodies.bodies import SubscriptionGroupConfig

log = logging.getLogger(__name__)

# Kept back of a client's deadline, so that it has an empty answer before it gives up.
_RESERVE_S: Final = 0.2
# What clients add to the time of their long poll to make the deadline of the call.
_REQUEST_TIMEOUT_S: Final = 3.0
_TIMEOUT_S: Final = 3.0  # of requests to brokers about messages that the client does not get
_PAUSE_S: Final = 0.2  # before the group's configuration is asked for again


class ReceiveService:
    def __init__(
        self,
        config: ProxyConfig,
        metadata: Metadata,
        pops: Pops,
        popped: PoppedMessages,
        renewals: Renewals,
        sessions: Sessions,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._pops = pops
        self._popped = popped
        self._renewals = renewals
        self._sessions = sessions

    async def receive_message(
        self, request: ReceiveMessageRequest, call: Call
    ) -> AsyncGenerator[ReceiveMessageResponse, None]:
        """Yield the status, the messages, and the time at which they left. Raises StatusError, MQClientError before."""
        until, deadline = self._times(request, call)
        topic = check_topic(request.message_queue.topic)
        group = check_group(request.group)
        is_renewed = request.auto_renew and self._config.enable_proxy_auto_renew
        if is_renewed:
            # The session of a client that is gone expires, and what the client had goes to others.
            self._sessions.seen(client_id_of(call), asyncio.get_running_loop().time())
        invisible_ms = self._config.default_invisible_time_ms if is_renewed else self._invisible_ms(request)
        subscription = _subscription(topic, request.filter_expression)
        group_config = await self._group_config(group, topic, until)
        wanted = Wanted(
            group=group,
            topic=topic,
            subscription=subscription,
            count=min(max(request.batch_size, 1), COUNT_MAX),
            invisible_ms=invisible_ms,
            is_order=bool(group_config.consume_message_orderly),
            attempt_id=request.attempt_id or uuid.uuid4().hex,
            broker_name=request.message_queue.broker.name,
            only_that_broker=request.auto_renew,
            until=until,
            deadline=deadline,
        )
        unsent = popped = await self._pops.pop(wanted)
        try:
            unsent = await self._deliverable(wanted, popped, group_config.retry_max_times + 1)
            if not unsent:
                reason = "no match message" if popped else "no new message"
                yield ReceiveMessageResponse(status=status(Code.MESSAGE_NOT_FOUND, reason))
            else:
                yield ReceiveMessageResponse(status=status(Code.OK))
            while unsent:
                message = unsent[0]
                handle = ReceiptHandle.of(message)
                yield ReceiveMessageResponse(message=v2_message(message, handle.encode()))
                del unsent[0]
                if is_renewed:
                    self._renewals.hold(client_id_of(call), group, topic, handle.pop)
        finally:
            self._pops.give_back(wanted, unsent)
        response = ReceiveMessageResponse()
        set_ms(response.delivery_timestamp, time.time_ns() // 1_000_000)
        yield response

    def _times(self, request: ReceiveMessageRequest, call: Call) -> tuple[float, float]:
        """Return until when the client waits, and when its answer must be there, by the event loop's clock."""
        now = asyncio.get_running_loop().time()
        wait_s_max = self._config.grpc_client_consumer_max_long_polling_timeout_ms / 1000
        deadline = now + wait_s_max + _REQUEST_TIMEOUT_S if call.deadline is None else call.deadline
        if request.HasField("long_polling_timeout"):
            wait_s = duration_ms(request.long_polling_timeout) / 1000
        else:
            wait_s = deadline - now - _REQUEST_TIMEOUT_S
        deadline -= _RESERVE_S
        return min(now + min(max(wait_s, 0.0), wait_s_max), deadline), deadline

    def _invisible_ms(self, request: ReceiveMessageRequest) -> int:
        """Return the invisible time that the client asks for. Raises StatusError if that is not allowed."""
        invisible_ms = duration_ms(request.invisible_duration)
        least, most = self._config.min_invisible_time_ms_for_recv, self._config.max_invisible_time_ms
        if invisible_ms < least:
            message = f"the invisibleTime is too small. min is {least}"
            raise StatusError(Code.ILLEGAL_INVISIBLE_TIME, message)
        if 0 < most < invisible_ms:
            message = f"the invisibleTime is too large. max is {most}"
            raise StatusError(Code.ILLEGAL_INVISIBLE_TIME, message)
        return invisible_ms

    async def _group_config(self, group: str, topic: str, until: float) -> SubscriptionGroupConfig:
        """Wait until a broker tells the group's configuration: a FIFO group must not be popped like another one.

        Raises MQClientError, StatusError.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await self._metadata.known_group_config(group, topic)
            except MQClientError as error:
                if not error.retriable or loop.time() + _PAUSE_S >= until:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _deliverable(
        self, wanted: Wanted, popped: Sequence[MessageExt], attempts_max: int
    ) -> list[MessageExt]:
        """Return the messages that the client is to get, and end the others.

        Brokers compare hashes of tags only, and RocketMQ's brokers leave it to the proxy to count attempts.
        """
        tags = wanted.subscription.tags_set
        deliverable: list[MessageExt] = []
        unwanted: list[PopHandle] = []
        for message in popped:
            if tags and message.tags not in tags:
                unwanted.append(handle_of(message))
            elif message.reconsume_times >= attempts_max:
                await self._to_dead_letters(wanted, message)
            else:
                deliverable.append(message)
        if unwanted:
            for failure in await self._popped.ack(wanted.group, wanted.topic, unwanted, _TIMEOUT_S):
                if failure is not None:
                    log.info("not acknowledged topic=%s reason=%s", wanted.topic, failure)
        return deliverable

    async def _to_dead_letters(self, wanted: Wanted, message: MessageExt) -> None:
        """Forward a message whose attempts are used up. If that fails, it comes again."""
        handle = ReceiptHandle.of(message)
        message_id = message.uniq_key or message.msg_id
        try:
            await self._popped.forward_to_dead_letters(
                *(wanted.group, wanted.topic, handle, message_id),
                {},  # the place in the log is the broker's word, not a client's
                _TIMEOUT_S,
            )
        except FAILURES as error:
            log.warning(
                "comes again after its last attempt topic=%s id=%s reason=%s", wanted.topic, message_id, error
            )


def _subscription(topic: str, expression: FilterExpression) -> SubscriptionData:
    """Raises StatusError."""
    kind = EXPRESSION_TYPE_SQL92 if expression.type == FilterType.SQL else EXPRESSION_TYPE_TAG
    try:
        return build_subscription(topic, expression.expression, kind)
    except SubscriptionParseError as error:
        raise StatusError(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
