"""The commit log of a broker: what is put becomes entries of the replicated log, which may be a plain CommitLog.

Appending is one synchronous step that ends with the batch in the local log, or with nothing done. Positions, queue
offsets and store timestamps are given here; replication, commit and the acknowledgement are the replica's.
"""

import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from disk.disk import DiskError
from dledger.core.refusal import Refusal, RefusalReason
from dledger.entry import EntryKind, Index, Pos, Term, entry_size_max
from dledger.errors import FaultyEntryError
from message.encoder import encode_record, record_size
from message.message_id import HOST_V6_SIZE
from message.names import SCHEDULE_TOPIC
from message.properties import PROPERTIES_LENGTH_MAX, pairs_of
from message.record_layout import (
    HOSTS_V6_MASK,
    RECORD_SIZE_MIN,
    SYS_FLAG_AT,
    TOPIC_LENGTH_MAX_V1,
    TOPIC_LENGTH_MAX_V2,
)
from message.sys_flag import (
    BORNHOST_V6_FLAG,
    INNER_BATCH_FLAG,
    STOREHOSTADDRESS_V6_FLAG,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
)
from store.dispatch_request import BatchDispatchRequest, DispatchRequest, QueueKey
from store.inner_batch import properties_at
from store.layout.consume_queue_unit import CQ_UNIT
from store.put_message import PutBatch, PutMessage, PutRefusal, PutStatus
from store.queues.consume_queue_store import ConsumeQueueStore
from store.replicated_log import OnAppended, ReplicatedLog
from store.services.timer_message import TIMER_TOPIC_BYTES, recalled_key
from store.store_config import StoreConfig
from store.system_message import (
    SystemMessage,
    kind_of_record,
    membership_message,
    no_op_message,
    state_message,
)

log = logging.getLogger(__name__)

# Of messages that get a second look; the bit for COMMIT is ROLLBACK's too.
_UNUSUAL_FLAGS: Final = HOSTS_V6_MASK | TRANSACTION_COMMIT_TYPE | INNER_BATCH_FLAG
# Of messages that do not take the next place in their queue as others do.
_PLACE_FLAGS: Final = TRANSACTION_PREPARED_TYPE | INNER_BATCH_FLAG
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_STORE_TIMESTAMP_AT: Final = 56
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_NOT_SERVING: Final = PutRefusal(PutStatus.SERVICE_NOT_AVAILABLE, "this member does not serve as leader now")
_TWO_KINDS: Final = "queue {} of topic {} is to take single messages and inner batches at once"


class _QueueTypeError(Exception):
    """A queue holds single messages or inner batches."""


class PendingDispatch(msgspec.Struct):
    """What the leader keeps of a batch until it is committed, instead of reading it back from the log."""

    first_index: Index
    last_index: Index
    end_pos: int  # byte behind the last entry
    requests: list[DispatchRequest]


class _Append(msgspec.Struct):
    """State records, then messages, on their way into entries together."""

    log: "DLedgerCommitLog"
    records: Sequence[SystemMessage]
    messages: Sequence[PutMessage]
    sizes: Sequence[int]  # of the records of all of them
    store_timestamp: int
    # Once it is filled:
    requests: dict[QueueKey, DispatchRequest] = {}
    results: list[tuple[int, int]] = []  # (phy_offset, queue_offset) of each message

    def fill(self, positions: Sequence[Pos]) -> list[bytes]:
        """Returns the records for entries at `positions`. Raises _QueueTypeError."""
        log, sizes, store_timestamp = self.log, self.sizes, self.store_timestamp
        requests, results = self.requests, self.results
        bodies: list[bytes] = []
        if self.records:
            count = len(self.records)
            for record, pos in zip(self.records, positions[:count], strict=True):
                bodies.append(record.encode(pos, store_timestamp))
            sizes, positions = sizes[count:], positions[count:]
        find, pack, encode = requests.get, CQ_UNIT.pack, encode_record
        store_host, host_flag, head_size = log.config.store_host, log.host_flag, log.head_size
        for message, size, pos in zip(self.messages, sizes, positions, strict=True):
            topic, queue_id, sys_flag = message.topic, message.queue_id, message.sys_flag
            phy_offset = pos + head_size
            properties = message.properties
            if sys_flag & _PLACE_FLAGS:
                if sys_flag & TRANSACTION_PREPARED_TYPE:
                    queue_offset = 0  # it gets no unit, so it takes no place in the queue
                else:
                    batch = self._batch_request(message)
                    queue_offset = batch.next_offset
                    batch.add(phy_offset, size, message.tags_code, store_timestamp, message.message_count)
                    properties = properties_at(properties, queue_offset)
            else:
                key = (topic, queue_id)
                request = find(key)
                if request is None:
                    request = requests[key] = DispatchRequest(
                        topic, queue_id, log.next_offset(key), store_timestamp
                    )
                elif request.is_batch:
                    raise _QueueTypeError(_TWO_KINDS.format(queue_id, topic.decode()))
                tags_code = message.tags_code
                units = request.units
                queue_offset = request.queue_offset + len(units)
                units.append(pack(phy_offset, size, tags_code))
                request.tags_codes.append(tags_code)
            bodies.append(
                encode(
                    topic,
                    queue_id,
                    message.flag,
                    queue_offset,
                    phy_offset,
                    sys_flag | host_flag,
                    message.born_timestamp,
                    message.born_host,
                    store_timestamp,
                    store_host,
                    message.reconsume_times,
                    message.prepared_transaction_offset,
                    message.body,
                    properties,
                )
            )
            results.append((phy_offset, queue_offset))
        return bodies

    def _batch_request(self, message: PutMessage) -> BatchDispatchRequest:
        key = message.topic, message.queue_id
        request = self.requests.get(key)
        if request is None:
            fault = self.log.queue_type_fault(message)
            if fault is not None:
                raise _QueueTypeError(fault)
            request = self.requests[key] = BatchDispatchRequest(*key, self.log.next_offset(key))
        if not isinstance(request, BatchDispatchRequest):
            raise _QueueTypeError(_TWO_KINDS.format(message.queue_id, message.topic.decode()))
        return request


class DLedgerCommitLog:
    """Invariant: while serving, `_topic_queue_table` has for each queue in it the offset behind the last message in the
    log, committed or not; a queue that is not in it has no message behind what its ConsumeQueue holds.
    """

    def __init__(self, config: StoreConfig, replica: ReplicatedLog, queues: ConsumeQueueStore) -> None:
        self.config = config
        self._replica = replica
        self.head_size = replica.log.head_size
        # Of every record that is put here, beside what its message says.
        self.host_flag = STOREHOSTADDRESS_V6_FLAG if len(config.store_host) == HOST_V6_SIZE else 0
        self._record_size_min = record_size(0, 0, 0, store_v6=self.host_flag != 0)
        # It must fit into a data file beside the blank that ends it.
        self._record_size_max = entry_size_max(config.mapped_file_size_commit_log) - self.head_size
        self._queues = queues
        self._topic_queue_table: dict[QueueKey, int] = {}
        self._pending: deque[PendingDispatch] = deque()
        # Recalls of timer messages that are not dispatched yet: their queue offsets, and what they recall.
        self._recalls: deque[tuple[int, bytes]] = deque()
        self.serving_term: Term | None = None
        self.last_store_timestamp = 0  # ms; records never go back in time
        # Why messages are refused for want of space, before the disk is quite full.
        self.disk_full: str | None = None
        # Of the sends that wait in a PutGather, which keeps these two.
        self.gathered_size = 0
        self.gathered_count = 0

    # Leading

    def start_serving(self, term: Term) -> None:
        """This member leads, and everything in the log up to its own no-op has been dispatched here."""
        self.forget_topic_queue_table()
        self._pending.clear()
        self._recalls.clear()
        self.serving_term = term

    def stop_serving(self) -> None:
        """What is uncommitted may be cut now, so nothing kept of it counts. Reput reads the log from here on."""
        self.serving_term = None
        self._pending.clear()
        self._recalls.clear()

    def forget_topic_queue_table(self) -> None:
        """Forgets offsets of an earlier leadership. Each queue's next one is read from its ConsumeQueue on first use,
        which is right for as long as nobody but this member appends.
        """
        self._topic_queue_table.clear()

    # Appending

    def check_messages(
        self, messages: Sequence[PutMessage]
    ) -> tuple[list[int], dict[int, PutRefusal]] | PutRefusal:
        """Returns the size of each message's record, and by their number the faults of those that cannot be stored. Or
        why none can be stored now.
        """
        if self.serving_term is None:
            return _NOT_SERVING
        if self.disk_full is not None:
            return PutRefusal(PutStatus.SERVICE_NOT_AVAILABLE, self.disk_full)
        body_max, record_size_max = self.config.max_message_size, self._record_size_max
        size_min = self._record_size_min
        sizes: list[int] = []
        faults: dict[int, PutRefusal] = {}
        for message in messages:
            topic_length, body_length = len(message.topic), len(message.body)
            properties_length = len(message.properties)
            size = size_min + body_length + topic_length + properties_length
            if (
                body_length > body_max
                or properties_length > PROPERTIES_LENGTH_MAX
                or topic_length > TOPIC_LENGTH_MAX_V1
                or size > record_size_max
                or message.sys_flag & _UNUSUAL_FLAGS
                # Negative, or more than its field takes.
                or (message.queue_id | message.flag | message.reconsume_times | message.born_timestamp >> 32)
                >> 31
            ):
                size = self._record_size(message)
                fault = _fault_of(message, body_max, size, record_size_max) or self.queue_type_fault(message)
                if fault is not None:
                    faults[len(sizes)] = PutRefusal(PutStatus.MESSAGE_ILLEGAL, fault)
            sizes.append(size)
        return sizes, faults

    def check_room(self, size: int, count: int) -> PutRefusal | None:
        """Returns why `count` more records of `size` bytes together are not taken, beside those that are gathered."""
        count += self.gathered_count
        size += self.gathered_size + self.head_size * count
        refusal = self._replica.member.check_append(size, count)
        return None if refusal is None else _put_refusal(refusal)

    def append_messages(
        self,
        messages: Sequence[PutMessage],
        sizes: Sequence[int],
        on_done: OnAppended,
        now_ms: int,
    ) -> PutBatch | PutRefusal:
        """Appends all of `messages` or none, as they were checked. `on_done` is called once, later, unless this returns
        a refusal.
        """
        if self.serving_term is None:
            return _NOT_SERVING
        return self._append((), messages, sizes, on_done, now_ms)

    def deliver(
        self, announce: Callable[[Index], bytes], messages: Sequence[PutMessage], now_ms: int
    ) -> Index | None:
        """Appends a state record, announce(index of the first message), and `messages` right behind it: all of that or
        nothing. Returns the last index, None where it is refused now. Each message must fit.
        """
        if self.serving_term is None:
            return None
        record = self._state_message(announce(Index(self._replica.log.ledger_end_index + 2)))
        sizes = [record.size, *map(self._record_size, messages)]
        outcome = self._append([record], messages, sizes, None, now_ms)
        return None if isinstance(outcome, PutRefusal) else outcome.last_index

    def append_state(
        self, records: Sequence[bytes], on_done: OnAppended, now_ms: int
    ) -> PutBatch | PutRefusal:
        """Appends state records, all or none; a leader may before it serves."""
        entries = [self._state_message(record) for record in records]
        return self._append(entries, (), [entry.size for entry in entries], on_done, now_ms)

    def _append(
        self,
        records: Sequence[SystemMessage],
        messages: Sequence[PutMessage],
        sizes: Sequence[int],
        on_done: OnAppended | None,
        now_ms: int,
    ) -> PutBatch | PutRefusal:
        head_kind = None
        if records:
            if (refusal := self.check_room(sum(sizes), len(sizes))) is not None:
                return refusal
            head_kind = EntryKind.STATE if messages else None
        kind = EntryKind.MESSAGE if messages else EntryKind.STATE
        append = _Append(self, records, messages, sizes, max(now_ms, self.last_store_timestamp))
        try:
            batch = self._replica.append(sizes, append.fill, kind, on_done, now_ms, head_kind=head_kind)
        except _QueueTypeError as error:
            return PutRefusal(PutStatus.MESSAGE_ILLEGAL, str(error))
        except DiskError as error:
            # Zeroed again, but not durably: a power loss may leave what was written, for recovery to find.
            return PutRefusal(PutStatus.UNKNOWN, f"the log could not be written: {error}")
        if isinstance(batch, Refusal):
            return _put_refusal(batch)
        # Only now: a refusal must consume no queue offset.
        self.last_store_timestamp = append.store_timestamp
        is_delayed = False
        for key, request in append.requests.items():
            self._topic_queue_table[key] = request.next_offset
            is_delayed = is_delayed or key[0] == _SCHEDULE_TOPIC
            if key[0] == TIMER_TOPIC_BYTES:
                self._note_recalls(messages, append.results)
        # The tags code of a delayed message is its delivery time, which scan_records() knows to find.
        if append.requests and not is_delayed:
            self._pending.append(
                PendingDispatch(
                    Index(batch.first_index + len(records)),
                    batch.last_index,
                    append.results[-1][0] + sizes[-1],
                    list(append.requests.values()),
                )
            )
        return PutBatch(append.results, append.store_timestamp, batch.first_index, batch.last_index)

    def fits(self, message: PutMessage) -> bool:
        """Whether a message can be stored that has waited here for its time or end: with any body that an entry takes,
        and no inner batch, which do not wait.
        """
        size, size_max = self._record_size(message), self._record_size_max
        return (
            not message.sys_flag & INNER_BATCH_FLAG and _fault_of(message, size_max, size, size_max) is None
        )

    def no_op(self, term: Term) -> SystemMessage:
        """The entry that a new leader begins its term with."""
        self.last_store_timestamp = max(self.last_store_timestamp, self._store_timestamp_of_last_entry())
        return no_op_message(term, self.head_size, self.config.store_host, self.last_store_timestamp)

    def membership_entry(self, payload: bytes) -> SystemMessage:
        """The entry that says who the members are."""
        self.last_store_timestamp = max(self.last_store_timestamp, self._store_timestamp_of_last_entry())
        return membership_message(payload, self.head_size, self.config.store_host, self.last_store_timestamp)

    # Dispatching

    def pending_from(self, index: Index) -> PendingDispatch | None:
        """The first batch kept that ends at or behind `index`; those before it are forgotten."""
        pending = self._pending
        while pending and pending[0].last_index < index:
            pending.popleft()
        return pending[0] if pending else None

    def log_cut(self, from_index: Index) -> None:
        """Entries from `from_index` on are gone."""
        while self._pending and self._pending[-1].last_index >= from_index:
            self._pending.pop()

    def _note_recalls(self, messages: Sequence[PutMessage], results: Sequence[tuple[int, int]]) -> None:
        for message, (_, queue_offset) in zip(messages, results, strict=True):
            if message.topic == TIMER_TOPIC_BYTES:
                key = recalled_key(pairs_of(message.properties))
                if key is not None:
                    self._recalls.append((queue_offset, key))

    @property
    def recalls_under_way(self) -> set[bytes]:
        """What is called off by recalls that may not be dispatched yet."""
        return {key for _, key in self._recalls}

    def forget_recalls(self, dispatched_offset: int) -> None:
        """Those before this offset of the timer topic's queue are dispatched."""
        while self._recalls and self._recalls[0][0] < dispatched_offset:
            self._recalls.popleft()

    def next_offset(self, key: QueueKey) -> int:
        offset = self._topic_queue_table.get(key)
        return self._queues.max_offset(key) if offset is None else offset

    def queue_type_fault(self, message: PutMessage) -> str | None:
        """Why an inner batch cannot go to its queue: the queue has single messages, or is about to get some. They were
        stored before their topic took batches alone, or were delayed.
        """
        if not message.sys_flag & INNER_BATCH_FLAG:
            return None
        key = message.topic, message.queue_id
        queue = self._queues.find(*key)
        if queue is not None and not queue.is_empty:
            holds_single = not queue.is_batch
        else:
            requests = (request for pending in self._pending for request in pending.requests)
            holds_single = any(
                (request.topic, request.queue_id) == key and not request.is_batch for request in requests
            )
        if not holds_single:
            return None
        return (
            f"queue {key[1]} of topic {key[0].decode()} holds messages of queue.type=SimpleCQ, and this is a batch "
            "for BatchCQ: use a topic of another name"
        )

    def _record_size(self, message: PutMessage) -> int:
        return record_size(
            len(message.topic),
            len(message.properties),
            len(message.body),
            born_v6=message.sys_flag & BORNHOST_V6_FLAG != 0,
            store_v6=self.host_flag != 0,
        )

    def _state_message(self, record: bytes) -> SystemMessage:
        return state_message(record, self.head_size, self.config.store_host, self.last_store_timestamp)

    def _store_timestamp_of_last_entry(self) -> int:
        ledger = self._replica.log
        index = ledger.ledger_end_index
        if index < ledger.ledger_begin_index:
            return 0
        try:
            head = ledger.read(ledger.pos_at(index) + self.head_size, RECORD_SIZE_MIN)
        except FaultyEntryError:
            return 0  # its bytes say nothing; what was applied before it does
        return store_timestamp_of(head)


def store_timestamp_of(head: bytes) -> int:
    """ms, from the first RECORD_SIZE_MIN bytes of a record."""
    shift = 12 if _INT32.unpack_from(head, SYS_FLAG_AT)[0] & BORNHOST_V6_FLAG else 0
    return int(_INT64.unpack_from(head, _STORE_TIMESTAMP_AT + shift)[0])


def _fault_of(message: PutMessage, body_max: int, size: int, size_max: int) -> str | None:
    """Why a message that looks unusual, with a record of `size`, cannot be stored; None if it can."""
    for what, length, limit in (
        ("body", len(message.body), body_max),
        ("properties", len(message.properties), PROPERTIES_LENGTH_MAX),
        ("topic", len(message.topic), TOPIC_LENGTH_MAX_V2),
        ("record", size, size_max),
    ):
        if length > limit:
            return f"the message's {what} has {length} bytes, the limit is {limit}"
    for number, bits in (
        (message.queue_id, 32),
        (message.flag, 32),
        (message.reconsume_times, 32),
        (message.born_timestamp, 64),
    ):
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            return f"{number} is no number of {bits} bits"
    born_host_size = 20 if message.sys_flag & BORNHOST_V6_FLAG else 8
    if message.sys_flag & STOREHOSTADDRESS_V6_FLAG or len(message.born_host) != born_host_size:
        born = len(message.born_host)
        return f"sysFlag {message.sys_flag:#x} contradicts the hosts: {born} bytes of born host"
    if message.sys_flag & INNER_BATCH_FLAG and not message.message_count:
        return f"sysFlag {message.sys_flag:#x} says that it is an inner batch: the broker makes those, of batch sends"
    if kind_of_record(message.sys_flag, message.topic) is not EntryKind.MESSAGE:
        return f"the topic {message.topic.decode()} is for the broker's own records"
    return None


def _put_refusal(refusal: Refusal) -> PutRefusal:
    is_busy = refusal.reason is RefusalReason.LEADER_PENDING_FULL
    return PutRefusal(PutStatus.SYSTEM_BUSY if is_busy else PutStatus.SERVICE_NOT_AVAILABLE, refusal.text)
