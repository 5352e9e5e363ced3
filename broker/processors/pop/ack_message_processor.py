"""ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151), CHANGE_MESSAGE_INVISIBLETIME (200053): the end of popped messages,
and more time for one.

All acks of one turn of the event loop go into the log together. A handle may say nothing any more, for its message has
been acknowledged or has expired. Then an ack is answered as RocketMQ does, with success, and a change of invisible time
with NO_MESSAGE: its answer would be a new handle, and there is none. Nothing is written; but a majority confirms first
that this member leads, for it knows nothing of what was popped under the next leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from broker.answers import AnyRequest, Request, answer_all_applied, answer_applied, propose_each
from broker.processors.pop.pop_message_processor import COUNT_MAX, INVISIBLE_MS_MAX
from broker.processors.pop.pop_queues import NO_REMARK, NOT_SERVING
from broker.request_turns import CallSoon
from broker.topics.topic_config_manager import TopicConfigManager
from broker.waiting.waiting_pops import WaitingPops
from message.pop_handle import PopHandle, topic_of_mark
from remoting.bodies import pop_bodies
from remoting.codes import FAQ, ResponseCode
from remoting.headers.headers import CommandHeader, to_ext_fields
from remoting.headers.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from store.services.pop_revive_service import HeldPop
from store.state.state_proposals import ProposeStatus
from store.state.tables.pop_queue import unpack_bits
from store.state.tables.pop_table import AckMessages, ChangeInvisible, Popped

if TYPE_CHECKING:
    from store.message_store import MessageStore

# Check points of one change. A change must fit into a record of the log, whatever the names in it.
CHECK_POINTS_MAX: Final = 128
# More than lies between the first and the last message of a pop.
_DISTANCE_MAX: Final = 1 << 16


class _Gathered(msgspec.Struct):
    """Acks of one turn of the event loop."""

    acked: dict[tuple[str, str, int, int, int], int] = msgspec.field(
        default_factory=dict
    )  # Popped, and its bits
    held: list[HeldPop] = msgspec.field(default_factory=list)
    requests: list[AnyRequest] = msgspec.field(default_factory=list)


class AckMessageProcessor:
    """Invariant: each request is answered once."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        waiting_pops: WaitingPops,
        clock: Callable[[], int],
        call_soon: CallSoon,
    ) -> None:
        self._store = store
        self._topics = topics
        self._waiting_pops = waiting_pops
        self._clock = clock
        self._call_soon = call_soon
        self._table = store.tables.pop_table
        self._service = store.services.pop_revive_service
        self._gathered = _Gathered()

    # -- acks --------------------------------------------------------------------------------------------------

    def ack(self, request: Request[AckMessageRequestHeader], now_ms: int) -> None:
        popped = self._popped(request, is_end_allowed=True)
        if popped is None:
            return
        self._gather(request, [popped], now_ms)

    def batch_ack(
        self, request: Request[CommandHeader], body: pop_bodies.BatchAckMessageRequestBody, now_ms: int
    ) -> None:
        popped = [_popped_of(ack) for ack in body.acks]
        if not self._store.serving:
            request.answer(ResponseCode.SYSTEM_BUSY, NOT_SERVING)
        elif not popped:
            request.answer(ResponseCode.NO_MESSAGE, "the batch has no acks")
        elif (most := max(each.bits.bit_count() for each in popped)) > COUNT_MAX:
            remark = f"an ack of the batch names {most} messages, and a pop has {COUNT_MAX} at most"
            request.answer(ResponseCode.MESSAGE_ILLEGAL, remark)
        else:
            self._gather(request, popped, now_ms)

    def _gather(
        self, request: AnyRequest, popped: list[Popped], now_ms: int, *, is_sure: bool = False
    ) -> None:
        """Answer the request when those of `popped` in flight have ended. `is_sure`: the others have already."""
        gathered = self._gathered
        in_flight = [current for each in popped for current in self._table.in_flight(each)]
        if not is_sure and _count(in_flight) != _count(popped):
            self._when_sure(
                request, lambda: self._gather(request, popped, self._clock(), is_sure=True), now_ms
            )
            return
        if not in_flight:
            request.answer()
            return
        if not gathered.requests:
            self._call_soon(self._turn_ended)
        for each in in_flight:
            if each[:5] not in gathered.acked:
                gathered.held.append(self._service.hold(each))
            gathered.acked[each[:5]] = gathered.acked.get(each[:5], 0) | each.bits
        gathered.requests.append(request)

    def _turn_ended(self) -> None:
        if self._gathered.requests:
            self._propose(self._clock())

    def _propose(self, now_ms: int) -> None:
        gathered, self._gathered = self._gathered, _Gathered()
        acked = tuple(Popped(*key, bits) for key, bits in gathered.acked.items())
        # FIFO consumers may have waited for just that. A handle of this turn may have ended meanwhile.
        freed = {
            (each.group, each.topic)
            for each in acked
            if self._table.in_flight(each) and self._table.is_order(each)
        }

        def on_done(statuses: Sequence[ProposeStatus]) -> None:
            self._service.release(gathered.held)
            for group, topic in freed:
                self._waiting_pops.wake_one(group, topic, self._clock())
            for request in gathered.requests:
                answer_all_applied(request)(statuses)

        changes = [
            AckMessages(acked[begin : begin + CHECK_POINTS_MAX])
            for begin in range(0, len(acked), CHECK_POINTS_MAX)
        ]
        propose_each(self._store, changes, on_done, now_ms)

    # -- changes of invisible time -----------------------------------------------------------------------------

    def change_invisible_time(self, request: Request[ChangeInvisibleTimeRequestHeader], now_ms: int) -> None:
        header = request.header
        popped = self._popped(request, is_end_allowed=False)
        if popped is None:
            return
        if not 0 <= header.invisible_time <= INVISIBLE_MS_MAX:
            remark = f"invisibleTime={header.invisible_time}: allowed are 0 to {INVISIBLE_MS_MAX} ms"
            request.answer(ResponseCode.INVALID_PARAMETER, remark)
            return
        self._change(request, popped, now_ms)

    def _change(
        self,
        request: Request[ChangeInvisibleTimeRequestHeader],
        popped: Popped,
        now_ms: int,
        *,
        is_sure: bool = False,
    ) -> None:
        """Change the invisible time. `is_sure`: a message that is not in flight here has ended."""
        header = request.header
        handle = PopHandle.decode(header.extra_info)
        current = self._table.in_flight(popped)
        if not current and not is_sure:
            self._when_sure(
                request, lambda: self._change(request, popped, self._clock(), is_sure=True), now_ms
            )
            return
        if not current:
            remark = f"no message is in flight by the handle {header.extra_info}: it was acknowledged, or has expired"
            request.answer(ResponseCode.NO_MESSAGE, remark)
            return
        (popped,) = current
        # A message has another pop time after each change, whatever the clock does.
        pop_time, invisible_ms = max(now_ms, popped.pop_time + 1), header.invisible_time
        told_pop_time = handle.pop_time if handle.is_order else pop_time
        response = ChangeInvisibleTimeResponseHeader(
            pop_time=told_pop_time,
            invisible_time=pop_time + invisible_ms - told_pop_time,
            revive_qid=handle.revive_queue_id,
        )
        fields = to_ext_fields(response)
        self._turn_ended()  # an ack that came before goes before
        held = self._service.hold(popped)
        answer = answer_applied(request, lambda: request.answer(remark=NO_REMARK, ext_fields=fields))

        def on_done(status: ProposeStatus) -> None:
            self._service.release([held])
            answer(status)
            if handle.is_order:
                self._waiting_pops.wake_one(popped.group, popped.topic, self._clock())

        change = ChangeInvisible(popped, pop_time, invisible_ms, header.suspend)
        self._store.propose(change, on_done, now_ms)

    # -- both --------------------------------------------------------------------------------------------------

    def _when_sure(self, request: AnyRequest, look: Callable[[], None], now_ms: int) -> None:
        """Call `look` once this member has applied all that was committed when the request came."""

        def on_done(refusal: str | None) -> None:
            if refusal is None:
                look()
            else:
                remark = f"whether it is in flight is not known here: {refusal}"
                request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

        self._store.read_index_waits.ask(on_done, now_ms)

    def _popped(
        self,
        request: Request[AckMessageRequestHeader] | Request[ChangeInvisibleTimeRequestHeader],
        *,
        is_end_allowed: bool,
    ) -> Popped | None:
        """Return the message that the request names; None: the request was refused, and is answered."""
        header, reads = request.header, self._store.reads
        topic = self._topics.select(header.topic)
        if not self._store.serving:
            request.answer(ResponseCode.SYSTEM_BUSY, NOT_SERVING)
            return None
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            request.answer(ResponseCode.TOPIC_NOT_EXIST, remark)
            return None
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[{request.channel.remote_address}]"
            )
            request.answer(ResponseCode.MESSAGE_ILLEGAL, remark)
            return None
        low, high = (
            reads.min_offset(header.topic, header.queue_id),
            reads.max_offset(header.topic, header.queue_id),
        )
        if not low <= header.offset <= high or (header.offset == high and not is_end_allowed):
            remark = (
                f"offset is illegal, key:{header.topic}@{header.queue_id}, offset:{header.offset}, the queue has "
                f"{low} to {high}"
            )
            request.answer(ResponseCode.NO_MESSAGE, remark)
            return None
        try:
            handle = PopHandle.decode(header.extra_info)
        except ValueError as error:
            request.answer(ResponseCode.SYSTEM_ERROR, f"extraInfo is no handle of a popped message: {error}")
            return None
        start = header.offset if handle.is_order else handle.start
        distance = header.offset - start
        bits = 1 << distance if 0 <= distance < _DISTANCE_MAX else 0
        return Popped(header.consumer_group, header.topic, header.queue_id, start, handle.pop_time, bits)


def _popped_of(ack: pop_bodies.BatchAck) -> Popped:
    topic = topic_of_mark(ack.topic, ack.consumer_group, ack.retry)
    bits = ack.bit_set[: _DISTANCE_MAX // 8]
    return Popped(ack.consumer_group, topic, ack.queue_id, ack.start_offset, ack.pop_time, unpack_bits(bits))


def _count(popped: Sequence[Popped]) -> int:
    return sum(each.bits.bit_count() for each in popped)
