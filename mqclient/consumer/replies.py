"""Replies to requests that a consumer was handed: each goes to a broker of the request's topic, which pushes it.

A requester is connected to all of them. A reply may be sent more than once, for its requester drops the second one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import zlib
from collections.abc import Callable

from message import const
from message.decoder import MessageExt
from message.names import reply_topic
from message.properties import ttl_ms_of
from mqclient.answer import Answer
from mqclient.client_instance import ClientInstance, local_ip
from mqclient.errors import (
    NOT_NOW_CODES,
    UNKNOWN_CODES,
    MessageIllegalError,
    MQClientError,
    NoMasterError,
    SendError,
)
from mqclient.message import Message
from mqclient.message_queue import MessageQueue
from mqclient.producer.pending_send import PendingSend
from mqclient.producer.uniq_key import UniqKeyGenerator
from remoting.codes import RequestCode, ResponseCode

COMPRESS_OVER = 4096  # bytes of a body
BODY_SIZE_MAX = 4 * 1024 * 1024  # bytes; the broker's default limit
QUEUE_NUMS = "1"
DEFAULT_TTL_MS = 3000  # of requests that do not say how long they wait
RETRY_PAUSE_S = 0.1
# No answer for so long: ask whether another member leads now.
STALLED_AFTER_S = 1.0
REPLY = "reply"


class ReplySender:
    def __init__(self, instance: ClientInstance, group: str, now_ms: Callable[[], int]) -> None:
        self._instance = instance
        self._group = group
        self._now_ms = now_ms
        discriminator = zlib.crc32(instance.client_id.encode()) >> 1
        self._keys = UniqKeyGenerator(socket.inet_aton(local_ip()), os.getpid(), discriminator)

    async def send(self, request: MessageExt, body: bytes, timeout_s: float | None) -> None:
        """Returns when the requester has taken the reply. Raises MessageIllegalError, SendError."""
        self._instance.check_open()
        reply = self._reply_to(request, body)
        loop = asyncio.get_running_loop()
        ttl_ms = ttl_ms_of(request.properties) or DEFAULT_TTL_MS
        deadline = loop.time() + (timeout_s or ttl_ms / 1000)
        while (remaining_s := deadline - loop.time()) > 0:
            try:
                answer = await self._attempt(request.topic, reply, remaining_s)
            except MQClientError as error:
                reply.refusal, reply.definite = str(error), reply.definite and error.definite
            else:
                reply.attempts += 1
                if answer.code == ResponseCode.SUCCESS:
                    return
                reply.refusal = f"{answer.address} answered {answer.code}: {answer.remark}"
                reply.refusal_code = answer.code
                reply.definite = reply.definite and answer.code not in UNKNOWN_CODES
                if answer.code not in NOT_NOW_CODES:
                    raise self._error(reply, reply.refusal)
            await asyncio.sleep(max(0.0, min(RETRY_PAUSE_S, deadline - loop.time())))
        raise self._error(
            reply, f"the requester did not take the reply in time; last trouble: {reply.refusal}"
        )

    def _reply_to(self, request: MessageExt, body: bytes) -> PendingSend:
        properties = request.properties
        cluster = properties.get(const.CLUSTER)
        wanted = (const.CORRELATION_ID, const.MESSAGE_REPLY_TO_CLIENT)
        if cluster is None or any(name not in properties for name in wanted):
            raise MessageIllegalError(
                f"message {request.uniq_key} is no request: it lacks one of the properties "
                f"{', '.join((const.CLUSTER, *wanted))}"
            )
        passed_on = {name: properties[name] for name in (*wanted, const.MESSAGE_TTL) if name in properties}
        now_ms = self._now_ms()
        return PendingSend(
            Message(reply_topic(cluster), body, properties={const.MSG_TYPE: REPLY, **passed_on}),
            self._keys.next_key(now_ms),
            now_ms,
            selector=None,
            compress_over=COMPRESS_OVER,
            body_size_max=BODY_SIZE_MAX,
            is_routed=False,
        )

    async def _attempt(self, topic: str, reply: PendingSend, timeout_s: float) -> Answer:
        """The broker answers when the requester has taken the reply, which may be long after it connects.

        Raises MQClientError, also where another member leads now.
        """
        routes = self._instance.routes
        route = await (routes.refresh(topic) if reply.refusal else routes.route(topic))
        masters = [
            (name, address) for name in sorted(route.brokers) if (address := route.master_address(name))
        ]
        if not masters:
            raise NoMasterError(f"no broker of topic {topic} has a leader now")
        broker_name, address = masters[reply.attempts % len(masters)]
        fields = reply.ext_fields(self._group, MessageQueue(reply.message.topic, broker_name, 0), QUEUE_NUMS)
        asking = self._instance.api.ask(
            address, RequestCode.SEND_REPLY_MESSAGE_V2, fields, reply.body, timeout_s=timeout_s
        )
        answer = asyncio.ensure_future(asking)
        try:
            while not (await asyncio.wait({answer}, timeout=STALLED_AFTER_S))[0]:
                if (await routes.refresh(topic)).master_address(broker_name) not in (None, address):
                    self._instance.remoting.abort_connection(address)
        finally:
            answer.cancel()
        return answer.result()

    def _error(self, reply: PendingSend, text: str) -> SendError:
        return SendError(
            text,
            definite=reply.definite,
            retriable=reply.refusal_code in NOT_NOW_CODES,
            attempts=reply.attempts,
            code=reply.refusal_code,
        )
