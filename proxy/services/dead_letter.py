"""ForwardMessageToDeadLetterQueue: a consumer gives up a message after its last attempt."""

from __future__ import annotations

from proxy.access import Access
from proxy.brokers import time_left_s
from proxy.grpc.call import Call
from proxy.messages.names import check_group, check_topic
from proxy.messages.receipt_handle import check_receipt_handle
from proxy.popped import PoppedMessages
from proxy.protocol.definition import Code
from proxy.protocol.service import (
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
)
from proxy.renewals import Renewals
from proxy.status import status


class DeadLetterService:
    def __init__(self, popped: PoppedMessages, renewals: Renewals, access: Access) -> None:
        self._access = access
        self._popped = popped
        self._renewals = renewals

    async def forward_message_to_dead_letter_queue(
        self, request: ForwardMessageToDeadLetterQueueRequest, call: Call
    ) -> ForwardMessageToDeadLetterQueueResponse:
        topic, group = check_topic(request.topic), check_group(request.group)
        handle = check_receipt_handle(request.receipt_handle)
        lease = await self._renewals.take(group, topic, handle.pop)
        if lease is not None:
            handle = handle._replace(pop=lease.handle)
        try:
            await self._popped.forward_to_dead_letters(
                *(group, topic, handle, request.message_id),
                self._access.client_fields(call),
                time_left_s(call),
            )
        except BaseException:
            self._renewals.put_back(lease)
            raise
        return ForwardMessageToDeadLetterQueueResponse(status=status(Code.OK))
