"""ForwardMessageToDeadLetterQueue: a consumer that could not do with a message after its last attempt gives it up."""

from __future__ import annotations

from proxy.brokers import time_left_s
from proxy.grpc.call import Call
from proxy.messages.names import check_group, check_topic
from proxy.messages.receipt_handle import ReceiptHandle
from proxy.popped import PoppedMessages
from proxy.protocol.definition import Code
from proxy.protocol.service import (
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
)
from proxy.renewals import Renewals
from proxy.status import StatusError, status


class DeadLetterService:
    def __init__(self, popped: PoppedMessages, renewals: Renewals) -> None:
        self._popped = popped
        self._renewals = renewals

    async def forward_message_to_dead_letter_queue(
        self, request: ForwardMessageToDeadLetterQueueRequest, call: Call
    ) -> ForwardMessageToDeadLetterQueueResponse:
        topic, group = check_topic(request.topic), check_group(request.group)
        try:
            handle = ReceiptHandle.decode(request.receipt_handle)
        except ValueError as error:
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, f"no receipt handle: {error}") from None
        lease = await self._renewals.take(group, topic, handle.pop)
        if lease is not None:
            handle = handle._replace(pop=lease.handle)
        try:
            await self._popped.forward_to_dead_letters(
                group, topic, handle, request.message_id, time_left_s(call)
            )
        except BaseException:
            self._renewals.put_back(lease)
            raise
        return ForwardMessageToDeadLetterQueueResponse(status=status(Code.OK))
