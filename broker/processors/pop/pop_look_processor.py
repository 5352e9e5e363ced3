"""What may be asked of a pop's queues and takes nothing: PEEK_MESSAGE (200052), NOTIFICATION (200054), POLLING_INFO
(200055).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.answers import Request, answer_error
from broker.config.broker_config import BrokerConfig
from broker.processors.pop.pop_queues import NO_REMARK, PopQueues, PopRefused
from broker.waiting.waiting_pops import WaitingPop, WaitingPops, wait_until_ms
from broker.waiting.waiting_room import let_wait
from disk.disk import DiskError
from remoting.codes import ResponseCode
from remoting.headers.headers import to_ext_fields
from remoting.headers.pop_headers import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)
from store.errors import StoreError
from store.get_message import GetMessageStatus

if TYPE_CHECKING:
    from store.message_store import MessageStore

COUNT_MAX: Final = 32
# Percent of the peeks look into the retry topic first.
RETRY_PROBABILITY: Final = 20


class PopLookProcessor:
    """Invariant: each request is answered once."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        queues: PopQueues,
        waiting_pops: WaitingPops,
    ) -> None:
        self._store = store
        self._queues = queues
        self._waiting_pops = waiting_pops
        self._table = store.tables.pop_table
        self._size_max = config.store.max_transfer_bytes_on_message_in_memory

    def peek(self, request: Request[PeekMessageRequestHeader], now_ms: int) -> None:
        """Answer the next messages of the group, which stay where they are."""
        header, reads = request.header, self._store.reads
        group, topic = header.consumer_group, header.topic
        nothing = to_ext_fields(PopMessageResponseHeader())
        try:
            self._queues.check_broker("peeking message")
            self._queues.check_topic(topic, header.queue_id, request.channel.remote_address)
            self._queues.check_group(group, now_ms)
        except PopRefused as refused:
            request.answer(refused.code, refused.remark, nothing)
            return
        records: list[bytes] = []
        size = rest = 0
        count_max = min(max(header.max_msg_nums, 1), COUNT_MAX)
        for name, queue_id in self._queues.queues_of(
            group, topic, header.queue_id, is_order=False, retry_probability=RETRY_PROBABILITY
        ):
            offset = self._queues.offset(group, name, queue_id, init_mode=0)
            room = count_max - len(records)
            if room > 0 and size < self._size_max:
                result = reads.get_message(name, queue_id, offset, room, self._size_max - size)
                records += result.buffers
                size += result.size
                offset = result.next_begin_offset
            rest += max(reads.max_offset(name, queue_id) - offset, 0)
        if records:
            fields = to_ext_fields(PopMessageResponseHeader(rest_num=rest))
            request.answer(ResponseCode.SUCCESS, GetMessageStatus.FOUND.name, fields, b"".join(records))
        else:
            request.answer(ResponseCode.PULL_NOT_FOUND, GetMessageStatus.NO_MESSAGE_IN_QUEUE.name, nothing)

    def notify(self, request: Request[NotificationRequestHeader], now_ms: int) -> None:
        """Answers as soon as the group has a message to pop, or when the time is over."""
        header = request.header
        self._notify(request, wait_until_ms(header.born_time, header.poll_time, now_ms), now_ms)

    def _notify(self, request: Request[NotificationRequestHeader], deadline_ms: int, now_ms: int) -> None:
        header = request.header
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        try:
            self._queues.check_broker("notification")
            self._queues.check_topic(topic, queue_id, request.channel.remote_address)
            self._queues.check_group(group, now_ms)
            message_ms = self._message_ms(header, now_ms)
        except PopRefused as refused:
            request.answer(refused.code, refused.remark)
            return
        except (StoreError, DiskError) as error:
            answer_error(request, error)
            return
        has_message = message_ms is not None and message_ms <= now_ms
        is_full = self._waiting_pops.is_full(group, topic, queue_id) or not let_wait(request.command)
        if has_message or deadline_ms <= now_ms or is_full or not request.channel.is_open:
            is_told_full = is_full and not has_message and deadline_ms > now_ms
            response = NotificationResponseHeader(has_msg=has_message, polling_full=is_told_full)
            request.answer(remark=NO_REMARK, ext_fields=to_ext_fields(response))
            return
        retry_topics = self._queues.retry_topics(group, topic, is_order=bool(header.order))
        waiting = WaitingPop(
            request.channel,
            group,
            topic,
            queue_id,
            retry_topics,
            min(deadline_ms, message_ms or deadline_ms),
            None,
            lambda now_ms: self._notify(request, deadline_ms, now_ms),
            takes=False,
        )
        self._waiting_pops.hold(waiting)

    def _message_ms(self, header: NotificationRequestHeader, now_ms: int) -> int | None:
        """Return when the group has a message to pop: now, or when a queue of FIFO consumers gives some again.

        None: that is not known. Raises UnitDamagedError, DiskError.
        """
        group, is_order = header.consumer_group, bool(header.order)
        times = []
        for topic, queue_id in self._queues.queues_of(
            group, header.topic, header.queue_id, is_order=is_order, retry_probability=0
        ):
            order = self._table.order_info((group, topic, queue_id)) if is_order else None
            if order is not None and order.is_blocked(header.attempt_id or "", now_ms):
                times.append(order.blocked_until_ms)
            elif self._store.reads.max_offset(topic, queue_id) > self._queues.offset(
                group, topic, queue_id, 0
            ):
                return now_ms
        return min(times, default=None)

    def count_waiting(self, request: Request[PollingInfoRequestHeader], now_ms: int) -> None:
        """Answer how many pops and notifications of the group wait for the queue."""
        header = request.header
        try:
            self._queues.check_broker("polling info")
            self._queues.check_topic(header.topic, header.queue_id, request.channel.remote_address)
            self._queues.check_group(header.consumer_group, now_ms)
        except PopRefused as refused:
            request.answer(refused.code, refused.remark)
            return
        count = self._waiting_pops.count(header.consumer_group, header.topic, header.queue_id)
        fields = to_ext_fields(PollingInfoResponseHeader(polling_num=count))
        request.answer(remark=NO_REMARK, ext_fields=fields)
