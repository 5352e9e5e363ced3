"""Acknowledges popped messages, changes their invisible time, and forwards them to the dead letter topic.

Requests go to the leader of the broker that a handle names. A handle has all that they need, so it does not matter
which proxy gave it to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from message.pop_handle import PopHandle
from mqclient.answer import Answer
from mqclient.errors import BrokerResponseError, MQClientError
from mqclient.popped_messages import Request, ack_request, change_request, changed_handle
from proxy.brokers import Brokers
from proxy.messages.receipt_handle import NO_OFFSET, ReceiptHandle
from proxy.protocol.definition import Code
from proxy.status import StatusError
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.headers import ConsumerSendMsgBackRequestHeader, to_ext_fields

Failure = MQClientError | StatusError
FAILURES: Final = (MQClientError, StatusError)

# The broker has no such queue, or no such offset in it.
_NO_SUCH_MESSAGE: Final = frozenset({ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_MESSAGE})
_DEAD_LETTER_LEVEL: Final = -1


class PoppedMessages:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def ack(
        self, group: str, topic: str, handles: Sequence[PopHandle], timeout_s: float
    ) -> list[Failure | None]:
        """Acknowledge the messages, with one request to each broker. Returns for each handle the failure, or None."""
        by_broker: dict[str, list[PopHandle]] = {}
        for handle in handles:
            by_broker.setdefault(handle.broker_name, []).append(handle)
        results = await asyncio.gather(
            *(self._ack_at_broker(group, topic, of_broker, timeout_s) for of_broker in by_broker.values())
        )
        failures = dict(zip(by_broker, results, strict=True))
        return [failures[handle.broker_name] for handle in handles]

    async def _ack_at_broker(
        self, group: str, topic: str, handles: Sequence[PopHandle], timeout_s: float
    ) -> Failure | None:
        try:
            await self._tell(topic, handles[0].broker_name, ack_request(group, topic, handles), timeout_s)
        except FAILURES as error:
            return error
        return None

    async def change(
        self,
        group: str,
        topic: str,
        handle: PopHandle,
        invisible_ms: int,
        timeout_s: float,
        *,
        suspend: bool = False,
    ) -> PopHandle:
        """Make the message invisible for that time from now on. Returns its new handle. Raises Failure."""
        request = change_request(group, topic, handle, invisible_ms, suspend=suspend)
        return changed_handle(handle, await self._tell(topic, handle.broker_name, request, timeout_s))

    async def forward_to_dead_letters(
        self,
        group: str,
        topic: str,
        handle: ReceiptHandle,
        message_id: str,
        client_fields: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        """Copy the message to the group's dead letter topic, and acknowledge it. Raises Failure.

        `client_fields`: those of Access.client_fields().
        """
        if handle.commit_log_offset == NO_OFFSET:
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, "commit log offset is empty")
        until = asyncio.get_running_loop().time() + timeout_s
        header = ConsumerSendMsgBackRequestHeader(
            offset=handle.commit_log_offset,
            group=group,
            delay_level=_DEAD_LETTER_LEVEL,
            origin_msg_id=message_id,
            origin_topic=topic,
            max_reconsume_times=0,
            bname=handle.pop.broker_name,
        )
        await self._brokers.ask(
            topic,
            handle.pop.broker_name,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {**to_ext_fields(header), **client_fields},
            timeout_s=timeout_s,
        )
        left_s = until - asyncio.get_running_loop().time()
        await self._tell(topic, handle.pop.broker_name, ack_request(group, topic, [handle.pop]), left_s)

    async def _tell(self, topic: str, broker_name: str, request: Request, timeout_s: float) -> Answer:
        """Send a request that does no harm when it is carried out twice. Raises Failure."""
        code, fields, body = request
        try:
            return await self._brokers.ask(
                topic, broker_name, code, fields, body, timeout_s=timeout_s, repeat_unknown=True
            )
        except StatusError as error:
            message = f"cannot find broker {broker_name}"
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, message) from error
        except BrokerResponseError as error:
            if error.code in _NO_SUCH_MESSAGE:
                raise StatusError(Code.INVALID_RECEIPT_HANDLE, error.remark) from error
            raise
