"""POP_MESSAGE (200050): gives a consumer messages for a while, which it is to acknowledge one by one.

The leader looks into the queues, and what it found becomes a record of the log. The pop is answered when that is
applied, with those of its queues where the record has taken effect: elsewhere another pop, a commit or a reset came
first. Checks stand in the order of RocketMQ's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from broker.answers import Request, answer_applied, answer_error
from broker.broker_stats import BrokerStats
from broker.config.broker_config import BrokerConfig
from broker.processors.pop.pop_queues import PopQueues, PopRefused
from broker.processors.pop.popped_messages import PopLook, QueueLook, queue_offset_of, under_own_topic
from broker.waiting.waiting_pops import WaitingPop, WaitingPops, wait_until_ms
from broker.waiting.waiting_room import let_wait
from disk.disk import DiskError
from message.errors import SubscriptionParseError
from message.pop_handle import ORDER_REVIVE_QUEUE, msg_offset_info, order_count_info, start_offset_info
from message.tags import EXPRESSION_TYPE_TAG, build_subscription
from remoting.codes import ResponseCode
from remoting.headers.headers import to_ext_fields
from remoting.headers.pop_headers import PopMessageRequestHeader, PopMessageResponseHeader
from store.errors import StoreError
from store.filter.message_filter import MessageFilter, UnsupportedExpressionError, filter_of
from store.get_message import GetMessageStatus
from store.state.state_proposals import ProposeStatus
from store.state.tables.order_info import OrderInfo
from store.state.tables.pop_queue import NO_OFFSET, QueueKey
from store.state.tables.pop_table import PopMessages, Popped, PoppedQueue

if TYPE_CHECKING:
    from store.message_store import MessageStore

# Of one pop.
COUNT_MAX: Final = 32
# Queues whose offsets one record moves. A topic may have thousands.
QUEUES_MAX: Final = 128
# So often a pop looks into one queue for what its filter wants. Then its way so far becomes a record, and others have
# their turn.
LOOKS_MAX: Final = 8
# Bytes of messages whose pops are on their way into the log.
UNDER_WAY_SIZE_MAX: Final = 32 << 20
# After this time a queue of FIFO consumers is looked at again for which something is on its way into the log.
UNDER_WAY_PAUSE_MS: Final = 100
# An answer must reach the client before it gives up.
ANSWER_BEFORE_MS: Final = 50
LATE_MS: Final = 500
INVISIBLE_MS_MAX: Final = 366 * 24 * 3_600_000
ATTEMPT_ID_LENGTH_MAX: Final = 128  # kept with each queue that FIFO consumers pop; UUIDs have 36

_NOTHING: Final = to_ext_fields(PopMessageResponseHeader())
# The queue ends before the offset, or its messages there are gone: the pop goes on at another offset.
_MOVED: Final = frozenset(
    {
        GetMessageStatus.OFFSET_TOO_SMALL,
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        GetMessageStatus.OFFSET_FOUND_NULL,
        GetMessageStatus.MESSAGE_WAS_REMOVING,
    }
)


class _Pop(msgspec.Struct):
    """A request that was checked, and what it is answered from."""

    request: Request[PopMessageRequestHeader]
    message_filter: MessageFilter | None
    deadline_ms: int

    @property
    def header(self) -> PopMessageRequestHeader:
        return self.request.header


class PopMessageProcessor:
    """Invariant: a pop is answered once. The queues in `_under_way` have pops on their way into the log."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        queues: PopQueues,
        stats: BrokerStats,
        waiting_pops: WaitingPops,
        clock: Callable[[], int],
    ) -> None:
        self.config = config
        self._store = store
        self._queues = queues
        self._stats = stats
        self._waiting_pops = waiting_pops
        self._clock = clock
        self._table = store.tables.pop_table
        self._revive_service = store.services.pop_revive_service
        self._offsets = store.tables.consumer_offset_table
        self._groups_table = store.tables.subscription_group_table
        self._under_way: dict[QueueKey, list[PoppedQueue]] = {}  # in their order
        self._under_way_size = 0  # of their messages
        self._under_way_counts: Counter[str] = Counter()  # of those that are to be in check points, by group
        self._size_max = config.store.max_transfer_bytes_on_message_in_memory

    def pop(self, request: Request[PopMessageRequestHeader], now_ms: int) -> None:
        try:
            message_filter = self._check(request, now_ms)
        except PopRefused as refused:
            request.answer(refused.code, refused.remark, _NOTHING)
            return
        header = request.header
        deadline_ms = wait_until_ms(header.born_time, header.poll_time, now_ms) - ANSWER_BEFORE_MS
        self._look(_Pop(request, message_filter, deadline_ms), now_ms)

    # -- checks ------------------------------------------------------------------------------------------------

    def _check(self, request: Request[PopMessageRequestHeader], now_ms: int) -> MessageFilter | None:
        """Returns the filter. Raises PopRefused."""
        header, address = request.header, self.config.broker_ip1
        if now_ms - (header.born_time or now_ms) - header.poll_time > LATE_MS:
            remark = f"the broker[{address}] pop message is timeout too much"
            raise PopRefused(ResponseCode.POLLING_TIMEOUT, remark)
        self._queues.check_broker("pop message")
        if header.max_msg_nums > COUNT_MAX:
            remark = f"the broker[{address}] pop message's num is greater than {COUNT_MAX}"
            raise PopRefused(ResponseCode.INVALID_PARAMETER, remark)
        if header.max_msg_nums < 1 or not 0 <= header.invisible_time <= INVISIBLE_MS_MAX:
            remark = (
                f"maxMsgNums={header.max_msg_nums} invisibleTime={header.invisible_time}: allowed are 1 to {COUNT_MAX} "
                f"messages, and 0 to {INVISIBLE_MS_MAX} ms"
            )
            raise PopRefused(ResponseCode.INVALID_PARAMETER, remark)
        if len(header.attempt_id or "") > ATTEMPT_ID_LENGTH_MAX:
            remark = f"attemptId has {len(header.attempt_id or '')} characters: allowed are {ATTEMPT_ID_LENGTH_MAX}"
            raise PopRefused(ResponseCode.INVALID_PARAMETER, remark)
        self._queues.check_topic(header.topic, header.queue_id, request.channel.remote_address)
        self._queues.check_group(header.consumer_group, now_ms)
        message_filter = self._filter(header)
        if not header.order:
            self._check_room(header)
        if self._under_way_size > UNDER_WAY_SIZE_MAX:
            remark = f"pops of {self._under_way_size} bytes are on their way into the log, {UNDER_WAY_SIZE_MAX} may be"
            raise PopRefused(ResponseCode.SYSTEM_BUSY, remark)
        return message_filter

    def _check_room(self, header: PopMessageRequestHeader) -> None:
        """Raise PopRefused if the group would have more in flight than all groups leave free.

        So a group that takes all it can leaves others room. FIFO consumers have one pop of each queue at most, which
        needs no bound.
        """
        group = header.consumer_group
        in_flight = self._table.check_point_counts[group] + self._under_way_counts[group]
        free = (
            self.config.max_popped_messages - self._table.check_point_count - self._under_way_counts.total()
        )
        if in_flight + header.max_msg_nums > free:
            remark = (
                f"group {group} has {in_flight} popped messages that are not acknowledged. It may have as many as all "
                f"groups leave free of pyDLedgerMaxPoppedMessages={self.config.max_popped_messages}, which is {free}: "
                "acknowledge them, wait, or raise it"
            )
            raise PopRefused(ResponseCode.SYSTEM_BUSY, remark)

    def _filter(self, header: PopMessageRequestHeader) -> MessageFilter | None:
        """Raises PopRefused."""
        expression_type = header.exp_type or EXPRESSION_TYPE_TAG
        if not header.exp:
            return None
        try:
            if expression_type != EXPRESSION_TYPE_TAG and not self.config.enable_property_filter:
                raise UnsupportedExpressionError(expression_type)
            return filter_of(build_subscription(header.topic, header.exp, expression_type))
        except (SubscriptionParseError, UnsupportedExpressionError) as error:
            remark = f"parse the consumer's subscription failed: {error}"
            raise PopRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None

    # -- looking -----------------------------------------------------------------------------------------------

    def _look(self, pop: _Pop, now_ms: int) -> None:
        """Look into the queues, and pop what is found; wait if that is nothing."""
        if not pop.request.channel.is_open:
            return
        look = PopLook()
        try:
            for topic, queue_id in self._queues.queues_of(
                pop.header.consumer_group,
                pop.header.topic,
                pop.header.queue_id,
                is_order=bool(pop.header.order),
                retry_probability=self.config.pop_from_retry_probability,
            ):
                self._look_into(pop, topic, queue_id, look, now_ms)
        except (StoreError, DiskError) as error:
            answer_error(pop.request, error)
            return
        if look.queues:
            self._propose(pop, look, now_ms)
        else:
            self._wait(pop, look, now_ms)

    def _look_into(self, pop: _Pop, topic: str, queue_id: int, look: PopLook, now_ms: int) -> None:
        header, reads = pop.header, self._store.reads
        key = (header.consumer_group, topic, queue_id)
        begin = self._begin(key)
        offset = begin if begin != NO_OFFSET else self._queues.init_offset(topic, queue_id, header.init_mode)
        room = header.max_msg_nums - look.count
        if len(look.queues) == QUEUES_MAX:
            room = 0
        if room <= 0 or look.size >= self._size_max:
            look.rest += max(reads.max_offset(topic, queue_id) - offset, 0)
            return
        order = self._table.order_info(key) if header.order else None
        if header.order and key in self._under_way:
            look.block(now_ms + UNDER_WAY_PAUSE_MS)
            return
        if order is not None and self._revive_service.is_held(_pop_of(key, order)):
            look.block(now_ms + UNDER_WAY_PAUSE_MS)
            return
        if order is not None and order.is_blocked(header.attempt_id or "", now_ms):
            look.block(order.blocked_until_ms)
            return
        if order is not None and order.over(self._groups_table.attempts_max(header.consumer_group), now_ms):
            # The service is to end them first: popped once more, they would come after their end.
            self._table.offer_order(key, order, now_ms)
            look.block(now_ms + UNDER_WAY_PAUSE_MS)
            return
        message_filter = pop.message_filter if topic == header.topic else None
        for _ in range(LOOKS_MAX):
            start = offset
            result = reads.get_message(
                topic, queue_id, start, room, self._size_max - look.size, message_filter
            )
            offset = max(result.next_begin_offset, 0)
            if result.status not in _MOVED and (result.buffers or offset >= result.max_offset):
                break
            if offset == start:
                break
        look.rest += max(result.max_offset - offset, 0)
        records = [
            record for record in result.buffers if order is None or queue_offset_of(record) not in order.done
        ]
        if offset == begin and not records:
            return
        offsets = [queue_offset_of(record) for record in records]
        bits = sum(1 << each - start for each in offsets)
        look.add(QueueLook(PoppedQueue(topic, queue_id, begin, start, offset, bits), records, offsets))

    def _begin(self, key: QueueKey) -> int:
        """Return where the next pop of a queue begins: behind the pops that are on their way into the log.

        If the group's offset was moved meanwhile, none of them will take effect, and a pop behind them would not
        either: then it begins at the offset.
        """
        offset, under_way = self._offsets.query(*key), self._under_way.get(key, [])
        is_in_order = any(offset in (each.begin, each.next) for each in under_way)
        return under_way[-1].next if is_in_order else offset

    # -- popping -----------------------------------------------------------------------------------------------

    def _propose(self, pop: _Pop, look: PopLook, now_ms: int) -> None:
        header = pop.header
        held = []
        for queue in look.queues:
            key = (header.consumer_group, queue.popped.topic, queue.popped.queue_id)
            self._under_way.setdefault(key, []).append(queue.popped)
            if order := self._table.order_info(key):
                held.append(self._revive_service.hold(_pop_of(key, order)))
        self._under_way_size += look.size
        if not header.order:
            self._under_way_counts[header.consumer_group] += look.count
        change = PopMessages(
            header.consumer_group,
            now_ms,
            header.invisible_time,
            tuple(queue.popped for queue in look.queues),
            bool(header.order),
            header.attempt_id or "",
        )

        def on_done(status: ProposeStatus) -> None:
            self._revive_service.release(held)
            self._proposed(pop, look, now_ms, status)

        self._store.propose(change, on_done, now_ms)

    def _proposed(self, pop: _Pop, look: PopLook, pop_time: int, status: ProposeStatus) -> None:
        group = pop.header.consumer_group
        for queue in look.queues:
            key = (group, queue.popped.topic, queue.popped.queue_id)
            under_way = self._under_way[key]
            under_way.remove(queue.popped)
            if not under_way:
                del self._under_way[key]
        self._under_way_size -= look.size
        if not pop.header.order:
            self._under_way_counts[group] -= look.count
            if not self._under_way_counts[group]:
                del self._under_way_counts[group]
        if status is not ProposeStatus.APPLIED:
            answer_applied(pop.request)(status)
            return
        found = [
            queue
            for queue in look.queues
            if queue.popped.popped and self._is_popped(group, queue.popped, pop_time)
        ]
        if found:
            self._answer(pop, found, look.rest, pop_time)
        else:
            self._look_again(pop)

    def _look_again(self, pop: _Pop) -> None:
        """Look again, unless the client has given up by now."""
        now_ms = self._clock()
        if now_ms > pop.deadline_ms + LATE_MS:
            self._answer_nothing(pop, ResponseCode.POLLING_TIMEOUT, 0, now_ms)
        else:
            self._look(pop, now_ms)

    def _is_popped(self, group: str, queue: PoppedQueue, pop_time: int) -> bool:
        popped = Popped(group, queue.topic, queue.queue_id, queue.start, pop_time, queue.popped)
        return self._table.in_flight(popped) == [popped]

    def _wait(self, pop: _Pop, look: PopLook, now_ms: int) -> None:
        """Hold a pop that has found nothing, or answer that, if it may not wait."""
        header, request = pop.header, pop.request
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        is_full = self._waiting_pops.is_full(group, topic, queue_id) or not let_wait(request.command)
        if pop.deadline_ms <= now_ms or header.poll_time <= 0 or is_full or not request.channel.is_open:
            is_late = pop.deadline_ms <= now_ms or header.poll_time <= 0
            code = ResponseCode.POLLING_TIMEOUT if is_late else ResponseCode.POLLING_FULL
            self._answer_nothing(pop, code, look.rest, now_ms)
            return
        wake_ms = min(pop.deadline_ms, look.blocked_until_ms or pop.deadline_ms)
        waiting = WaitingPop(
            request.channel,
            group,
            topic,
            queue_id,
            self._queues.retry_topics(group, topic, is_order=bool(header.order)),
            wake_ms,
            pop.message_filter,
            lambda now_ms: self._woken(pop, now_ms),
        )
        self._waiting_pops.hold(waiting)

    def _woken(self, pop: _Pop, now_ms: int) -> None:
        """Check and look again: topic, group and role may have changed while the pop waited."""
        try:
            self._check(pop.request, min(now_ms, pop.deadline_ms))
        except PopRefused as refused:
            pop.request.answer(refused.code, refused.remark, _NOTHING)
            return
        self._look(pop, now_ms)

    # -- answering ---------------------------------------------------------------------------------------------

    def _answer_nothing(self, pop: _Pop, code: int, rest: int, now_ms: int) -> None:
        pop.request.answer(
            code, GetMessageStatus.NO_MESSAGE_IN_QUEUE.name, self._fields(pop, [], rest, now_ms)
        )

    def _answer(self, pop: _Pop, found: list[QueueLook], rest: int, pop_time: int) -> None:
        header, request = pop.header, pop.request
        records: list[bytes] = []
        for queue in found:
            popped = queue.popped
            records += (
                queue.records
                if popped.topic == header.topic
                else [
                    under_own_topic(
                        record,
                        header.topic,
                        popped.start,
                        pop_time,
                        header.invisible_time,
                        self.config.broker_name,
                    )
                    for record in queue.records
                ]
            )
            self._stats.pulled(
                header.consumer_group, popped.topic, popped.queue_id, popped.next, len(queue.records)
            )
        fields = self._fields(pop, found, rest, pop_time)
        request.answer(ResponseCode.SUCCESS, GetMessageStatus.FOUND.name, fields, b"".join(records))
        if rest:
            self._waiting_pops.wake_one(header.consumer_group, header.topic, self._clock())

    def _fields(self, pop: _Pop, found: list[QueueLook], rest: int, pop_time: int) -> dict[str, str]:
        header = pop.header
        response = PopMessageResponseHeader(
            pop_time=pop_time,
            invisible_time=header.invisible_time,
            revive_qid=ORDER_REVIVE_QUEUE if header.order else 0,
            rest_num=rest,
            start_offset_info=start_offset_info(
                {(queue.popped.topic, queue.popped.queue_id): queue.popped.start for queue in found}
            ),
            msg_offset_info=msg_offset_info(
                {(queue.popped.topic, queue.popped.queue_id): queue.offsets for queue in found}
            ),
            order_count_info=order_count_info(
                {(queue.popped.topic, queue.popped.queue_id): self._counts(pop, queue) for queue in found}
            )
            if header.order
            else None,
        )
        return to_ext_fields(response)

    def _counts(self, pop: _Pop, queue: QueueLook) -> dict[int, int]:
        popped = queue.popped
        order = self._table.order_info((pop.header.consumer_group, popped.topic, popped.queue_id))
        counts = order.counts if order is not None else {}
        return {offset: counts.get(offset, 0) for offset in queue.offsets}


def _pop_of(key: QueueKey, order: OrderInfo) -> Popped:
    """The pop that FIFO consumers have of a queue."""
    return Popped(*key, NO_OFFSET, order.pop_time, 0)
