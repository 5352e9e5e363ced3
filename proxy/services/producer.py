"""SendMessage and RecallMessage.

The proxy chooses the queue: any for most messages, and by its message group for one that has its place in an order. A
broker that surely did not take a message is left for another one, or for its next leader; where that is unknown the
client is told so, and decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from message.message_id import decode_offset_message_id
from message.names import is_retry_or_dlq_topic
from message.recall_handle import RecallHandle
from mqclient.answer import Answer
from mqclient.errors import MQClientError
from mqclient.message_queue import MessageQueue
from mqclient.producer.broker_faults import BrokerFaults
from mqclient.producer.send_result import SendStatus
from mqclient.route.topic_route import TopicRoute
from proxy.brokers import Brokers, time_left_s, was_not_done
from proxy.config import ProxyConfig
from proxy.grpc.call import Call
from proxy.messages.consistent_hash import bucket_of
from proxy.messages.names import check_topic
from proxy.messages.outgoing import OutgoingMessage, check_type, outgoing_message
from proxy.messages.transaction_id import TransactionId
from proxy.metadata import MIXED, Metadata
from proxy.protocol.definition import Code, MessageType, Status
from proxy.protocol.service import (
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
)
from proxy.services.methods import check_count
from proxy.status import StatusError, status, status_of
from remoting.codes import RequestCode

_STORED: Final = frozenset(SendStatus)
_DOUBTED: Final = {
    SendStatus.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}
_PAUSE_S_MIN: Final = 0.02
_PAUSE_S_MAX: Final = 0.2


class ProducerService:
    def __init__(
        self,
        config: ProxyConfig,
        brokers: Brokers,
        metadata: Metadata,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._config = config
        self._brokers = brokers
        self._metadata = metadata
        self._now_ms = now_ms
        self._faults = BrokerFaults()
        self._turn = 0

    async def send_message(self, request: SendMessageRequest, call: Call) -> SendMessageResponse:
        if not request.messages:
            raise StatusError(Code.MESSAGE_CORRUPTED, "no message to send")
        check_count(len(request.messages), "messages")
        topic = check_topic(request.messages[0].topic)
        if any(message.topic != request.messages[0].topic for message in request.messages):
            raise StatusError(Code.MESSAGE_CORRUPTED, "topic in message is not same")
        now_ms = self._now_ms()
        messages = [
            outgoing_message(message, topic, call.peer, now_ms, self._config) for message in request.messages
        ]
        if self._config.enable_topic_message_type_check and not is_retry_or_dlq_topic(topic):
            topic_type = await self._metadata.topic_type(topic)
            for message in messages:
                check_type(message, topic_type)
        until = asyncio.get_running_loop().time() + time_left_s(call)
        if len(messages) == 1 or any(message.message_group for message in messages):
            entries = await self._sent_in_order(messages, until)
        else:
            entries = await asyncio.gather(*(self._sent(message, until) for message in messages))
        return SendMessageResponse(status=_common_status(entries), entries=entries)

    async def _sent_in_order(
        self, messages: Sequence[OutgoingMessage], until: float
    ) -> list[SendResultEntry]:
        """Send one after the other. After a failure nothing more of its message group is sent: the client sends that
        message again, and it must not come after its successors.
        """
        failed: dict[str, Status] = {}  # by message group
        entries = []
        for message in messages:
            if (of_group := failed.get(message.message_group)) is not None:
                entries.append(SendResultEntry(status=of_group))
                continue
            entry = await self._sent(message, until)
            if message.message_group and entry.status.code != Code.OK:
                failed[message.message_group] = entry.status
            entries.append(entry)
        return entries

    async def _sent(self, message: OutgoingMessage, until: float) -> SendResultEntry:
        try:
            queue, answer = await self._send(message, until)
            return _entry(message, queue, answer)
        except (MQClientError, StatusError) as error:
            return SendResultEntry(status=status_of(error))

    async def _send(self, message: OutgoingMessage, until: float) -> tuple[MessageQueue, Answer]:
        """The queue that the message was stored in, and what its broker answered. Raises MQClientError, StatusError."""
        loop = asyncio.get_running_loop()
        route = await self._brokers.routes.route(message.topic)
        pause_s = _PAUSE_S_MIN
        while True:
            queue = self._queue(route, message)
            fields = message.ext_fields(queue.broker_name, queue.queue_id)
            try:
                answer = await self._brokers.ask_once(
                    *(message.topic, queue.broker_name, RequestCode.SEND_MESSAGE_V2, fields, message.body),
                    timeout_s=until - loop.time(),
                    accept=_STORED,
                )
            except MQClientError as error:
                self._faults.failed(queue.broker_name, loop.time())
                if not was_not_done(error) or loop.time() + pause_s >= until:
                    raise
            else:
                self._faults.answered(queue.broker_name)
                return queue, answer
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)
            await self._brokers.look_for_leader(message.topic)
            route = await self._brokers.routes.route(message.topic)

    def _queue(self, route: TopicRoute, message: OutgoingMessage) -> MessageQueue:
        """Raises StatusError where the topic takes no messages."""
        queues: Sequence[MessageQueue] = route.write_queues
        if not queues:
            raise StatusError(Code.FORBIDDEN, f"no writable queue in topic {message.topic}")
        if message.message_group:
            # Of all queues, also of groups that elect: else the message group would move for that time.
            return queues[bucket_of(message.message_group, len(queues))]
        queues = self._faults.usable(route.publish_queues or queues, asyncio.get_running_loop().time())
        self._turn += 1
        return queues[self._turn % len(queues)]

    async def recall_message(self, request: RecallMessageRequest, call: Call) -> RecallMessageResponse:
        topic = check_topic(request.topic)
        topic_type = await self._metadata.topic_type(topic)
        if topic_type not in ("DELAY", MIXED):
            raise StatusError(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"topic {topic} is of type {topic_type}: messages of type DELAY can be recalled",
            )
        try:
            broker_name = RecallHandle.decode(request.recall_handle).broker_name
        except ValueError:
            raise StatusError(
                Code.INTERNAL_SERVER_ERROR, f"recall handle is invalid: {request.recall_handle!r:.80}"
            ) from None
        fields = {
            "producerGroup": topic,
            "topic": topic,
            "recallHandle": request.recall_handle,
            "bname": broker_name,
        }
        answer = await self._brokers.ask(
            *(topic, broker_name, RequestCode.RECALL_MESSAGE, fields),
            timeout_s=time_left_s(call),
            repeat_unknown=True,
        )
        return RecallMessageResponse(status=status(Code.OK), message_id=answer.fields.get("msgId", ""))


def _entry(message: OutgoingMessage, queue: MessageQueue, answer: Answer) -> SendResultEntry:
    """Raises BadAnswerError."""
    if answer.code in _DOUBTED:
        name = SendStatus(answer.code).name
        return SendResultEntry(
            status=status(_DOUBTED[SendStatus(answer.code)], f"send message failed, sendStatus={name}"),
            message_id=message.message_id,
        )
    offset = answer.number("queueOffset")
    entry = SendResultEntry(
        status=status(Code.OK),
        message_id=message.message_id,
        offset=offset,
        recall_handle=answer.fields.get("recallHandle", ""),
    )
    if message.type == MessageType.TRANSACTION:
        try:
            _, phy_offset = decode_offset_message_id(answer.fields.get("msgId", ""))
        except ValueError as error:
            raise answer.unreadable(str(error)) from error
        entry.transaction_id = TransactionId(
            queue.broker_name, offset, phy_offset, message.message_id
        ).encode()
    return entry


def _common_status(entries: Sequence[SendResultEntry]) -> Status:
    codes = {entry.status.code for entry in entries}
    return entries[0].status if len(codes) == 1 else status(Code.MULTIPLE_RESULTS)
