"""What pop consumers have in flight: messages that were given to one of them and are not acknowledged yet.

A check point is what one pop took of one queue. A handle names it by its start and its pop time, and so finds it at
whichever member leads (docs/adr/0012-pop-is-a-table-of-check-points.md). The pop offset is the group's ordinary offset,
which this table moves. The leader decides by its clock when a message has expired, and says so in a record.

A revival is one append: a record, and behind it, in the entries from `first_index` on, copies of the messages. Each
message ends when its copy is applied, as in ended_offsets_table.py.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Self

from dledger.entry import Index
from store.state.table import StateChange, Table
from store.state.table_configs import DataVersion
from store.state.tables.consumer_offset_table import ConsumerOffsetTable
from store.state.tables.order_info import OrderInfo
from store.state.tables.pop_queue import (
    NO_OFFSET,
    NO_TIME,
    CheckPoint,
    CheckPointKey,
    Due,
    PopQueue,
    QueueKey,
    bit_numbers,
    due_of,
    lowest_bit,
    pack_bits,
    unpack_bits,
)
from store.state.tables.subscription_group_table import DeleteSubscriptionGroup
from store.state.tables.topic_config_table import DeleteTopic

# The heap of times is made anew when it is longer than this and twice what is in flight: most of it is gone by then.
_GONE_COUNT_MIN: Final = 1024


class PoppedQueue(NamedTuple):
    """What a pop took of a queue. Bit i of `popped`: the message at offset start + i."""

    topic: str
    queue_id: int
    begin: int  # the group's offset, as the leader saw it; NO_OFFSET: it had none
    start: int
    next: int  # behind what was looked at
    popped: int


class Popped(NamedTuple):
    """Messages in flight, by bits as in PoppedQueue."""

    group: str
    topic: str
    queue_id: int
    start: int
    pop_time: int
    bits: int


class PopMessages(StateChange, frozen=True):
    """A queue whose offset is not `begin` any more is left as it is: the leader looks again. So is one of FIFO
    consumers if one of these messages has ended since the leader looked.
    """

    kind: ClassVar[int] = 22
    group: str
    pop_time: int
    invisible_ms: int
    queues: tuple[PoppedQueue, ...]
    is_order: bool = False
    attempt_id: str = ""

    def pack(self) -> list[Any]:
        queues = [(*queue[:5], pack_bits(queue.popped)) for queue in self.queues]
        return [self.group, self.pop_time, self.invisible_ms, queues, self.is_order, self.attempt_id]

    @classmethod
    def unpack(cls, values: list[Any]) -> Self:
        group, pop_time, invisible_ms, queues, is_order, attempt_id = values
        popped = tuple(
            PoppedQueue(topic, queue_id, begin, start, next_offset, unpack_bits(bits))
            for topic, queue_id, begin, start, next_offset, bits in queues
        )
        return cls(group, pop_time, invisible_ms, popped, is_order, attempt_id)


class AckMessages(StateChange, frozen=True):
    """What is not in flight any more is left as it is."""

    kind: ClassVar[int] = 23
    acked: tuple[Popped, ...]

    def pack(self) -> list[Any]:
        return [_pack_popped(self.acked)]

    @classmethod
    def unpack(cls, values: list[Any]) -> Self:
        (acked,) = values
        return cls(_unpack_popped(acked))


class ChangeInvisible(StateChange, frozen=True):
    """The message `popped`, one, is as if popped alone at `pop_time`. One of FIFO consumers stays in its pop.
    `suspend`: when it comes again, that is no further attempt; of FIFO consumers it is.
    """

    kind: ClassVar[int] = 24
    popped: Popped
    pop_time: int
    invisible_ms: int
    suspend: bool = False

    def pack(self) -> list[Any]:
        suspend = [True] if self.suspend else []  # members of an earlier release do not know it
        return [*_pack_popped((self.popped,)), self.pop_time, self.invisible_ms, *suspend]

    @classmethod
    def unpack(cls, values: list[Any]) -> Self:
        popped, *others = values
        return cls(_unpack_popped([popped])[0], *others)


class ReviveMessages(StateChange, frozen=True):
    """The entries from `first_index` on, right behind this record, are copies of the messages `revived`, each of them
    one message, in this order. Those `dropped` have none.
    """

    kind: ClassVar[int] = 25
    first_index: Index
    revived: tuple[Popped, ...]
    dropped: tuple[Popped, ...]

    def pack(self) -> list[Any]:
        return [self.first_index, _pack_popped(self.revived), _pack_popped(self.dropped)]

    @classmethod
    def unpack(cls, values: list[Any]) -> Self:
        first_index, revived, dropped = values
        return cls(first_index, _unpack_popped(revived), _unpack_popped(dropped))


class PopTable(Table):
    """Invariant: after settle(index) it is a function of the entries up to `index`. A message is in one check point of
    a group at most, and each check point has one.
    """

    name = "popped messages"
    changes = (PopMessages, AckMessages, ChangeInvisible, ReviveMessages)
    also_takes = (DeleteTopic, DeleteSubscriptionGroup)

    def __init__(self, offsets: ConsumerOffsetTable | None = None) -> None:
        super().__init__()
        self._offsets = offsets or ConsumerOffsetTable()
        self.queues: dict[QueueKey, PopQueue] = {}
        self.in_flight_count = 0  # messages of all groups
        self.check_point_counts: Counter[str] = Counter()  # those that check points have, by group
        self.check_point_count = 0  # of all groups
        self.under_way: ReviveMessages | None = None
        self._counted = 0  # messages of it that are applied
        self._due: list[Due] = []  # a heap, with what is gone meanwhile

    # -- looking -----------------------------------------------------------------------------------------------

    def rows(self) -> dict[QueueKey, list[Any]]:
        return {key: queue.pack() for key, queue in self.queues.items()}

    def in_flight(self, popped: Popped) -> list[Popped]:
        """Of the messages that a handle names, return those in flight, each under the handle that names it now."""
        queue = self.queues.get(popped[:3])
        if queue is None:
            return []
        found = [
            popped._replace(start=start, pop_time=pop_time, bits=bits)
            for (start, pop_time), bits in queue.find(popped.start, popped.pop_time, popped.bits)
        ]
        order = self.order_info(popped[:3])
        if found or order is None or order.pop_time != popped.pop_time:
            return found
        offsets = (offset - popped.start for offset in order.visible if offset >= popped.start)
        bits = sum(1 << number for number in offsets if popped.bits >> number & 1)
        return [popped._replace(bits=bits)] if bits else []

    def first_pop_time(self, popped: Popped) -> int:
        """Return when a message in flight was first popped. Changes of its invisible time do not alter that."""
        check_point = self.queues[popped[:3]].check_points.get((popped.start, popped.pop_time))
        if check_point is None or check_point.first_pop_time == NO_TIME:
            return popped.pop_time
        return check_point.first_pop_time

    def is_order(self, popped: Popped) -> bool:
        """Whether a handle, whose messages are in flight, was given to FIFO consumers."""
        return (popped.start, popped.pop_time) not in self.queues[popped[:3]].check_points

    def order_info(self, key: QueueKey) -> OrderInfo | None:
        """Return what FIFO consumers have of a queue. None: nothing, or the group's offset was moved since."""
        queue = self.queues.get(key)
        order = queue.order if queue is not None else None
        return order if order is not None and order.first == self._offsets.query(*key) else None

    def oldest(self) -> dict[QueueKey, int]:
        """Return for each queue the offset of the first message that a check point has in flight."""
        return {
            key: min(
                start + lowest_bit(check_point.waiting)
                for (start, _), check_point in queue.check_points.items()
            )
            for key, queue in self.queues.items()
            if queue.check_points
        }

    @property
    def next_due_ms(self) -> int | None:
        return self._due[0].visible_ms if self._due else None

    def take_due(self, now_ms: int) -> Iterator[Due]:
        """Yield what may have expired, the oldest first, each once. The caller puts back what stays in flight."""
        taken: set[tuple[QueueKey, int, int]] = set()
        while self._due and self._due[0].visible_ms <= now_ms:
            due = heapq.heappop(self._due)
            if due[1:] not in taken and self._is_there(due):
                taken.add(due[1:])
                yield due

    def put_back(self, due: Due, visible_ms: int) -> None:
        """Have take_due() yield it again at `visible_ms`."""
        heapq.heappush(self._due, due._replace(visible_ms=visible_ms))

    def offer_order(self, key: QueueKey, order: OrderInfo, now_ms: int) -> None:
        """Have take_due() yield what FIFO consumers have of a queue now, whatever its times are."""
        self._note_due(Due(now_ms, key, NO_OFFSET, order.pop_time))

    def put_all_back(self) -> None:
        """Have take_due() yield all that is in flight in its time, also what it has yielded before."""
        self._due = [due for key, queue in self.queues.items() for due in due_of(key, queue)]
        heapq.heapify(self._due)

    # -- changing ----------------------------------------------------------------------------------------------

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        for change in changes:
            match change:
                case DeleteTopic(topic):
                    self._forget([key for key in self.queues if key[1] == topic])
                    continue
                case DeleteSubscriptionGroup(group):
                    self._forget([key for key in self.queues if key[0] == group])
                    continue
                case PopMessages():
                    for popped in change.queues:
                        self._pop(change, popped, timestamp)
                case AckMessages(acked):
                    for each in acked:
                        self._end(each, timestamp)
                case ChangeInvisible():
                    self._change(change)
                case ReviveMessages():
                    self._begin(change, timestamp)
            self.data_version = self.data_version.next(timestamp)

    def _pop(self, pop: PopMessages, popped: PoppedQueue, timestamp: int) -> None:
        key = (pop.group, popped.topic, popped.queue_id)
        if self._offsets.query(*key) != popped.begin:
            return
        previous = self.order_info(key)
        if pop.is_order and previous is not None and previous.has_ended(popped.start, popped.popped):
            return
        queue = self.queues.setdefault(key, PopQueue())
        offset = popped.next
        self.in_flight_count -= queue.order_count
        queue.order = None
        if popped.popped:
            self._end_popped_before(key, queue, popped)
            queue.end = max(queue.end, popped.next)
        visible_ms = pop.pop_time + pop.invisible_ms
        if pop.is_order:
            offsets = [popped.start + number for number in bit_numbers(popped.popped)]
            order = OrderInfo.of_pop(previous, pop.pop_time, pop.attempt_id, visible_ms, offsets, popped.next)
            offset = order.first
            queue.order = order if not order.is_over else None
            self.in_flight_count += len(offsets)
            self._note_due(Due(visible_ms, key, NO_OFFSET, pop.pop_time))
        elif popped.popped:
            self._add(key, queue, (popped.start, pop.pop_time), popped.popped, visible_ms)
        if queue.is_empty:
            del self.queues[key]
        self._offsets.popped(*key, offset, timestamp)

    def _add(
        self,
        key: QueueKey,
        queue: PopQueue,
        check_point_key: CheckPointKey,
        bits: int,
        visible_ms: int,
        *,
        suspend: bool = False,
    ) -> None:
        """Add messages in flight. Their check point exists already if a clock was set back."""
        check_point = queue.check_points.setdefault(check_point_key, CheckPoint(0, visible_ms, suspend))
        check_point.waiting |= bits
        self._count(key[0], bits.bit_count())
        start, pop_time = check_point_key
        self._note_due(Due(check_point.visible_ms, key, start, pop_time))

    def _count(self, group: str, change: int) -> None:
        """Add `change`, which may be negative, to the count of messages that check points have in flight."""
        self.check_point_counts[group] += change
        if not self.check_point_counts[group]:
            del self.check_point_counts[group]
        self.check_point_count += change
        self.in_flight_count += change

    def _end_popped_before(self, key: QueueKey, queue: PopQueue, popped: PoppedQueue) -> None:
        """End earlier pops of messages that are popped again after the group's offset was set back."""
        if popped.start >= queue.end:
            return
        for (start, pop_time), check_point in list(queue.check_points.items()):
            distance = popped.start - start
            if -popped.popped.bit_length() < distance < check_point.waiting.bit_length():
                bits = popped.popped << distance if distance >= 0 else popped.popped >> -distance
                self._end_bits(key, queue, (start, pop_time), bits)

    def _end_bits(self, key: QueueKey, queue: PopQueue, check_point_key: CheckPointKey, bits: int) -> None:
        self._count(key[0], -queue.end_messages(check_point_key, bits))

    def _end(self, popped: Popped, timestamp: int) -> None:
        key = popped[:3]
        for each in self.in_flight(popped):
            queue = self.queues[key]
            if self.is_order(each):
                self._end_order(key, queue, each, timestamp)
            else:
                self._end_bits(key, queue, (each.start, each.pop_time), each.bits)
            if queue.is_empty:
                del self.queues[key]

    def _end_order(self, key: QueueKey, queue: PopQueue, popped: Popped, timestamp: int) -> None:
        order = queue.order
        assert order is not None, "it has these messages"
        for number in bit_numbers(popped.bits):
            order.end(popped.start + number)
        offset = order.first
        if order.is_over:
            queue.order = None
        self.in_flight_count -= popped.bits.bit_count()
        self._offsets.popped(*key, offset, timestamp)

    def _change(self, change: ChangeInvisible) -> None:
        visible_ms = change.pop_time + change.invisible_ms
        for popped in self.in_flight(change.popped):
            key = popped[:3]
            queue = self.queues[key]
            offset = popped.start + popped.bits.bit_length() - 1
            if self.is_order(popped):
                assert queue.order is not None, "it has this message"
                queue.order.visible[offset] = visible_ms
                self._note_due(Due(visible_ms, key, NO_OFFSET, popped.pop_time))
                continue
            before = queue.check_points[popped.start, popped.pop_time]
            self._end_bits(key, queue, (popped.start, popped.pop_time), popped.bits)
            changed = (offset, change.pop_time)
            self._add(key, queue, changed, 1, visible_ms, suspend=change.suspend)
            queue.changed[offset] = changed
            is_first = before.first_pop_time == NO_TIME
            queue.check_points[changed].first_pop_time = (
                popped.pop_time if is_first else before.first_pop_time
            )

    def _forget(self, keys: Sequence[QueueKey]) -> None:
        for key in keys:
            queue = self.queues.pop(key)
            self.in_flight_count -= queue.order_count
            self._count(key[0], -queue.check_point_count)

    # -- revival -----------------------------------------------------------------------------------------------

    def _begin(self, change: ReviveMessages, timestamp: int) -> None:
        """Begin a revival, whose record is applied now, as all entries before it are."""
        self.settle(Index(change.first_index - 2))
        self.under_way, self._counted = change, 0
        for popped in change.dropped:
            self._end(popped, timestamp)
        self.settle(Index(change.first_index - 1))

    def settle(self, applied_index: Index) -> None:
        """End the messages of a revival whose copies are among the applied entries, those up to `applied_index`."""
        change = self.under_way
        if change is None:
            return
        count = len(change.revived)
        applied = min(max(applied_index + 1 - change.first_index, self._counted), count)
        for popped in change.revived[self._counted : applied]:
            self._end(popped, self.data_version.timestamp)
        self._counted = applied
        if applied == count:
            self.under_way = None

    def term_began(self, no_op_index: Index) -> None:
        """End a revival that is under way: entries behind the no-op are not those that the earlier leader announced."""
        self.settle(Index(no_op_index - 1))
        self.under_way = None

    # -- times -------------------------------------------------------------------------------------------------

    def _note_due(self, due: Due) -> None:
        if len(self._due) > _GONE_COUNT_MIN + 2 * self.in_flight_count:
            self.put_all_back()
        else:
            heapq.heappush(self._due, due)

    def _is_there(self, due: Due) -> bool:
        queue = self.queues.get(due.key)
        if queue is None:
            return False
        if due.start == NO_OFFSET:
            return queue.order is not None and queue.order.pop_time == due.pop_time
        return (due.start, due.pop_time) in queue.check_points

    # -- packing -----------------------------------------------------------------------------------------------

    def pack(self) -> list[Any]:
        change = self.under_way
        return [
            self.data_version.pack(),
            [[*key, *queue.pack()] for key, queue in self.queues.items()],
            [*change.pack(), self._counted] if change is not None else [],
        ]

    def unpack(self, values: list[Any]) -> None:
        version, queues, under_way = values
        self.data_version = DataVersion(*version)
        self.queues = {
            (group, topic, queue_id): PopQueue.unpack(packed) for group, topic, queue_id, *packed in queues
        }
        self.check_point_counts.clear()
        self.check_point_count = 0
        self.in_flight_count = sum(queue.order_count for queue in self.queues.values())
        for (group, _, _), queue in self.queues.items():
            self._count(group, queue.check_point_count)
        self.under_way, self._counted = None, 0
        if under_way:
            *change, self._counted = under_way
            self.under_way = ReviveMessages.unpack(change)
        self.put_all_back()


def _pack_popped(popped: Sequence[Popped]) -> list[Any]:
    return [(*each[:5], pack_bits(each.bits)) for each in popped]


def _unpack_popped(packed: Sequence[Any]) -> tuple[Popped, ...]:
    return tuple(
        Popped(group, topic, queue_id, start, pop_time, unpack_bits(bits))
        for group, topic, queue_id, start, pop_time, bits in packed
    )
