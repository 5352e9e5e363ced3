"""AckMessage and ChangeInvisibleDuration: a message is done, or its consumer asks for another invisible time.

The receipt handle names the broker. Any proxy takes it, and any leader of that broker's group.
"""

from __future__ import annotations

import time

from message.pop_handle import PopHandle
from proxy.brokers import time_left_s
from proxy.config import ProxyConfig
from proxy.grpc.call import Call
from proxy.messages.names import check_group, check_topic
from proxy.messages.receipt_handle import ReceiptHandle, check_receipt_handle
from proxy.messages.times import duration_ms
from proxy.popped import FAILURES, PoppedMessages
from proxy.protocol.definition import Code
from proxy.protocol.service import (
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
)
from proxy.renewals import Lease, Renewals
from proxy.services.methods import check_count
from proxy.status import StatusError, status, status_of


class AckService:
    def __init__(self, config: ProxyConfig, popped: PoppedMessages, renewals: Renewals) -> None:
        self._config = config
        self._popped = popped
        self._renewals = renewals

    async def ack_message(self, request: AckMessageRequest, call: Call) -> AckMessageResponse:
        """Acknowledge the messages. The answer has a status for each entry."""
        topic, group = check_topic(request.topic), check_group(request.group)
        if not request.entries:
            raise StatusError(Code.BAD_REQUEST, "no entries: name the messages to acknowledge")
        check_count(len(request.entries), "entries")
        statuses = [status(Code.OK)] * len(request.entries)
        taken: dict[int, tuple[PopHandle, Lease | None]] = {}
        try:
            for number, entry in enumerate(request.entries):
                try:
                    handle, lease = await self._take(group, topic, entry.receipt_handle)
                    pop = lease.handle if lease is not None else handle.pop
                    if lease is None and _has_expired(pop):
                        pop = await self._renewed(group, topic, pop, time_left_s(call))
                    taken[number] = pop, lease
                except FAILURES as error:
                    statuses[number] = status_of(error)
            handles = [handle for handle, _ in taken.values()]
            failures = await self._popped.ack(group, topic, handles, time_left_s(call))
        except BaseException:
            for _, lease in taken.values():
                self._renewals.put_back(lease)
            raise
        for (number, (_, lease)), failure in zip(taken.items(), failures, strict=True):
            if failure is not None:
                statuses[number] = status_of(failure)
                self._renewals.put_back(lease)
        is_same = len({each.code for each in statuses}) == 1
        return AckMessageResponse(
            status=statuses[0] if is_same else status(Code.MULTIPLE_RESULTS),
            entries=[
                AckMessageResultEntry(
                    message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=each
                )
                for entry, each in zip(request.entries, statuses, strict=True)
            ],
        )

    async def change_invisible_duration(
        self, request: ChangeInvisibleDurationRequest, call: Call
    ) -> ChangeInvisibleDurationResponse:
        """Answer the new handle; after a failure the one that came, since clients go on with what they get."""
        try:
            receipt_handle = await self._change(request, call)
        except FAILURES as error:
            return ChangeInvisibleDurationResponse(
                status=status_of(error), receipt_handle=request.receipt_handle
            )
        return ChangeInvisibleDurationResponse(status=status(Code.OK), receipt_handle=receipt_handle)

    async def _change(self, request: ChangeInvisibleDurationRequest, call: Call) -> str:
        """Change the invisible time. Returns the new handle. Raises Failure."""
        topic, group = check_topic(request.topic), check_group(request.group)
        invisible_ms, most = duration_ms(request.invisible_duration), self._config.max_invisible_time_ms
        if invisible_ms < 0:
            raise StatusError(Code.ILLEGAL_INVISIBLE_TIME, "the invisibleTime is too small. min is 0")
        if 0 < most < invisible_ms:
            message = f"the invisibleTime is too large. max is {most}"
            raise StatusError(Code.ILLEGAL_INVISIBLE_TIME, message)
        handle, lease = await self._take(group, topic, request.receipt_handle)
        if lease is None and _has_expired(handle.pop):
            raise _expired()  # brokers of RocketMQ would have the message come once more
        pop = lease.handle if lease is not None else handle.pop
        try:
            changed = await self._popped.change(
                group, topic, pop, invisible_ms, time_left_s(call), suspend=request.suspend
            )
        except BaseException:
            self._renewals.put_back(lease)
            raise
        return handle._replace(pop=changed).encode()

    async def _take(self, group: str, topic: str, receipt_handle: str) -> tuple[ReceiptHandle, Lease | None]:
        """Decode the handle, and end the lease of its message, if there is one: its handle may be newer.

        Raises StatusError for a handle that is invalid.
        """
        handle = check_receipt_handle(receipt_handle)
        return handle, await self._renewals.take(group, topic, handle.pop)

    async def _renewed(self, group: str, topic: str, handle: PopHandle, timeout_s: float) -> PopHandle:
        """Return a new handle of a message whose own handle has expired. Its broker knows whether it is still the
        client's, because another proxy has given it more time. Raises Failure.
        """
        try:
            return await self._popped.change(group, topic, handle, handle.invisible_ms, timeout_s)
        except StatusError as error:
            raise _expired() from error


def _has_expired(handle: PopHandle) -> bool:
    return handle.pop_time + handle.invisible_ms <= time.time_ns() // 1_000_000


def _expired() -> StatusError:
    return StatusError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
