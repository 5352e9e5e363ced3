"""Clients of the simulated group: they put, read and propose, and remember what they were told.

A client never repeats a message: an outcome that it does not learn stays unknown for ever.
"""

import struct
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from dledger.entry import Index
from message.const import KEYS, TAGS
from message.decoder import decode_message
from message.properties import encode_properties
from message.tags import tags_code
from simulator.harness.options import DELAY_LEVELS, Options
from simulator.harness.oracle import Acknowledged, Oracle, body_with, key_of, uid_of, uids_with_key_of
from simulator.invariants.invariant import ViolationError
from simulator.world.event_loop import EventLoop
from simulator.world.process import Process
from simulator.world.sim_member import SimMember
from simulator.world.timers import Timers
from simulator.world.transactions import Transactions
from store.errors import MessageDamagedError, UnitDamagedError
from store.get_message import GetMessageStatus
from store.put_message import PutBatch, PutMessage, PutRefusal, PutStatus
from store.services.delayed_message import delayed
from store.services.half_message import HALF_TOPIC_BYTES
from store.state.state_proposals import ProposeStatus
from store.state.table import StateChange
from store.state.table_configs import TopicConfig
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.topic_config_table import PutTopicConfig

TOPICS = (b"orders", b"payments")
_TAGS = ("paid", "open", "late")
_GROUPS = ("billing", "audit")
_BORN_HOST = struct.pack(">4BI", 127, 0, 0, 1, 40_000)
_UID_SIZE = 12
_READ_COUNT = 8
_QUERY_COUNT = 64
_CONNECTION_COUNT = 4  # to each member
_LATE_MS = 1 << 62


@dataclass(slots=True)
class Outcomes:
    """Messages by what their client was told in the end."""

    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    read: int = 0
    found_by_key: int = 0
    proposals_applied: int = 0


class Workload:
    """Invariant: each message handed in is acknowledged, refused or (still) unknown; `last_acknowledged_us` never
    falls.
    """

    def __init__(
        self,
        loop: EventLoop,
        members: list[SimMember],
        oracle: Oracle,
        options: Options,
        random: Random,
        delays: Random,
        queries: Random,
        sends: Random,
        transactions: Transactions,
        timers: Timers,
    ) -> None:
        """`delays` says what is delayed, `queries` which keys are asked for, `sends` which connections send what: runs
        without stay what they were.
        """
        self.outcomes = Outcomes()
        self.last_acknowledged_put_us = -1  # when the newest batch that is acknowledged was put
        self.is_running = True
        self._loop = loop
        self._members = members
        self._oracle = oracle
        self._options = options
        self._random = random
        self._delays = delays
        self._queries = queries
        self._sends = sends
        self._transactions = transactions
        self._timers = timers
        self._next_uid = 0
        self._sent_count = 0
        # By connection: the number of a message among all that were sent, and its phy_offset.
        self._last_acknowledged: dict[tuple[Process, int], tuple[int, int]] = {}
        self._untold: dict[range, Process] = {}  # sends that have not been told their end

    def start(self) -> None:
        self._loop.call_later(0, self._act)

    def _act(self) -> None:
        if not self.is_running:
            return
        random, options = self._random, self._options
        self._loop.call_later(int(random.expovariate(1 / options.put_interval_us)) + 1, self._act)
        dice = random.random()
        if dice < 0.8:
            member = self._choose_member()
            self.put(member, random.randint(1, options.batch_count_max))
            # Other connections to the same member whose sends the same turn of its loop reads.
            for _ in range(self._sends.choice((0, 0, 0, 0, 1, 2))):
                self.put(member, 1)
        elif dice < 0.95:
            member = random.choice(self._members)
            member.call(self._read, member)
        else:
            self._propose(self._choose_member())

    def _choose_member(self) -> SimMember:
        """Mostly one that says it serves, of which there may be two; now and then just any."""
        serving = [
            member
            for member in self._members
            if member.process is not None and not member.is_paused and member.process.store.serving
        ]
        if serving and self._random.random() < 0.95:
            return self._random.choice(serving)
        return self._random.choice(self._members)

    # -- putting -----------------------------------------------------------------------------------------------

    def put(self, member: SimMember, count: int) -> None:
        process = member.process
        if process is None or process.is_stopping:
            return
        uids = range(self._next_uid, self._next_uid + count)
        self._next_uid += count
        messages = [self._message(member, uid) for uid in uids]
        if self._delays.random() < self._options.delayed:
            level = self._delays.choice(tuple(DELAY_LEVELS))
            messages = [delayed(message, level, max(DELAY_LEVELS)) for message in messages]
        elif self._transactions.is_prepared():
            messages = self._transactions.prepared(uids, messages)
        elif self._timers.is_timed():
            messages = self._timers.timed(uids, messages, member.now_ms())
        member.call(self._put, member, process, uids, messages)

    def _message(self, member: SimMember, uid: int) -> PutMessage:
        random, options = self._random, self._options
        tag = random.choice(_TAGS)
        properties = {TAGS: tag, KEYS: key_of(uid)} if options.has_keys else {TAGS: tag}
        return PutMessage(
            random.choice(TOPICS),
            random.randrange(options.queue_count),
            body_with(uid, random.randint(_UID_SIZE, options.body_size_max)),
            encode_properties(properties),
            tags_code(tag),
            member.now_ms(),
            _BORN_HOST,
        )

    def _put(self, member: SimMember, process: Process, uids: range, messages: list[PutMessage]) -> None:
        """The messages are one or more requests, which one read of a connection brings."""
        self.outcomes.unknown += len(uids)
        put_us = self._loop.now_us
        self._oracle.put_us.update(dict.fromkeys(uids, put_us))
        starts = [0, *sorted(self._sends.sample(range(1, len(uids)), self._sends.randrange(len(uids))))]
        counts = [end - start for start, end in pairwise((*starts, len(uids)))]
        connection = self._sends.randrange(_CONNECTION_COUNT)
        first_sent = self._sent_count
        self._sent_count += len(uids)
        self._untold.update(
            {uids[start : start + count]: process for start, count in zip(starts, counts, strict=True)}
        )

        def ended(source: int, requests: range, outcome: PutBatch | PutRefusal, first_result: int) -> None:
            for request in requests:
                del self._untold[uids[starts[request] : starts[request] + counts[request]]]
            start, behind = starts[requests[0]], starts[requests[-1]] + counts[requests[-1]]
            status = outcome.status if isinstance(outcome, PutRefusal) else PutStatus.PUT_OK
            told = uids[start:behind]
            member.trace.add(self._loop.now_us, "{} put {} {}", member.member_id, told, status.name)
            if isinstance(outcome, PutRefusal):
                self._not_acknowledged(told, status)
            else:
                results = outcome.results[first_result : first_result + len(told)]
                self._check_order((process, connection), first_sent + start, results)
                last_index = Index(outcome.first_index + first_result + len(told) - 1)
                self._acknowledged(told, messages[start:behind], results, last_index)
                for uid, message, (phy_offset, _) in zip(told, messages[start:behind], results, strict=True):
                    if message.topic == HALF_TOPIC_BYTES and member.process is process:
                        self._transactions.acknowledged(member, uid, phy_offset)
                self.last_acknowledged_put_us = max(self.last_acknowledged_put_us, put_us)

        process.store.gather.add(connection, messages, range(len(counts)), counts, ended, member.now_ms())

    def _check_order(
        self, connection: tuple[Process, int], first: int, results: list[tuple[int, int]]
    ) -> None:
        """Raises ViolationError if the log has these messages, of which the first was the `first`th sent of all, before
        others that their connection sent earlier.
        """
        places = [
            self._last_acknowledged.get(connection, (-1, -1)),
            *enumerate((phy_offset for phy_offset, _ in results), first),
        ]
        for earlier, later in pairwise(places):
            if not (earlier[0] < later[0] and earlier[1] < later[1]):
                raise ViolationError(
                    "sent_in_order",
                    f"one connection's messages lie at (number, phy_offset) {earlier}, then {later}",
                )
        self._last_acknowledged[connection] = places[-1]

    def check_told(self) -> None:
        """Raises ViolationError if a process that still runs has left a send without an end. To be called when all have
        had time for that.
        """
        running = {member.process for member in self._members}
        untold = [uids for uids, process in self._untold.items() if process in running]
        if untold:
            raise ViolationError(
                "sends_are_told",
                f"nobody was told what became of {len(untold)} requests, {untold[0]} first",
                is_liveness=True,
            )

    def _not_acknowledged(self, uids: range, status: PutStatus) -> None:
        """Whatever else a client is told is definite, at once or later."""
        if status is not PutStatus.UNKNOWN:
            self.outcomes.unknown -= len(uids)
            self.outcomes.refused += len(uids)
            self._oracle.refused_uids.extend(uids)

    def _acknowledged(
        self,
        uids: range,
        messages: list[PutMessage],
        results: list[tuple[int, int]],
        last_index: Index,
    ) -> None:
        self.outcomes.unknown -= len(uids)
        self.outcomes.acknowledged += len(uids)
        places = [
            ((message.topic, message.queue_id), queue_offset, phy_offset)
            for message, (phy_offset, queue_offset) in zip(messages, results, strict=True)
        ]
        self._oracle.acknowledged.append(Acknowledged(last_index, uids, places))

    # -- reading -----------------------------------------------------------------------------------------------

    def _read(self, member: SimMember) -> None:
        process, random = member.process, self._random
        assert process is not None, "a step of a process"
        if process.is_stopping:
            return
        topic, queue_id = random.choice(TOPICS), random.randrange(self._options.queue_count)
        store = process.store
        offset = random.randint(0, max(store.reads.max_offset(topic.decode(), queue_id), 0))
        # A message that is damaged there is refused, and given to nobody as it is; so is a queue's damaged unit.
        with suppress(MessageDamagedError, UnitDamagedError):
            self.outcomes.read += read_and_compare(process, self._oracle, (topic, queue_id), offset)
        if self._options.has_keys and self._next_uid:
            uid = self._queries.randrange(self._next_uid)
            with suppress(MessageDamagedError):
                self.outcomes.found_by_key += query_and_compare(process, self._oracle, topic, uid)

    # -- proposing ---------------------------------------------------------------------------------------------

    def _propose(self, member: SimMember) -> None:
        process = member.process
        if process is not None and not process.is_stopping:
            change, waits = self._change(), self._random.random() < 0.5
            member.call(self._propose_at, member, process, change, waits)

    def _change(self) -> StateChange:
        random = self._random
        topic = random.choice(TOPICS).decode()
        if random.random() < 0.3:
            return PutTopicConfig(TopicConfig(topic, read_queue_nums=random.randint(1, 16)))
        queue_id = random.randrange(self._options.queue_count)
        return CommitOffset(random.choice(_GROUPS), topic, queue_id, random.randrange(10_000))

    def _propose_at(self, member: SimMember, process: Process, change: StateChange, waits: bool) -> None:
        process.store.propose(change, self._proposed if waits else None, member.now_ms())

    def _proposed(self, status: ProposeStatus) -> None:
        self.outcomes.proposals_applied += status is ProposeStatus.APPLIED


def read_and_compare(process: Process, oracle: Oracle, key: tuple[bytes, int], offset: int) -> int:
    """Pulls from a queue. Returns how many messages came, which are those that the oracle has there.

    Raises ViolationError.
    """
    topic, queue_id = key
    result = process.store.reads.get_message(topic.decode(), queue_id, offset, _READ_COUNT, 1 << 16)
    member_id = process.host.member_id
    deleted_count = oracle.deleted_count(key, process.replica.log.ledger_begin_index)
    if result.status is GetMessageStatus.OFFSET_FOUND_NULL or (
        result.status is GetMessageStatus.MESSAGE_WAS_REMOVING and offset >= deleted_count
    ):
        raise ViolationError(
            "visible_is_committed",
            f"{member_id} answers {result.status.value} for {key} {offset}; deleted are {deleted_count}",
        )
    expected = oracle.queues.get(key, [])
    # Those that were deleted are passed over.
    first_offset = result.next_begin_offset - len(result.buffers)
    if result.buffers and first_offset != max(offset, deleted_count):
        raise ViolationError(
            "visible_is_committed",
            f"{member_id} gives out {key} from {first_offset} on; asked was {offset}, deleted are {deleted_count}",
        )
    for number, buffer in enumerate(result.buffers, first_offset):
        record = decode_message(buffer)
        if number >= len(expected):
            raise ViolationError(
                "visible_is_committed", f"{member_id} gives out {record}, which is not committed"
            )
        wanted = expected[number]
        seen = (record.topic.encode(), record.queue_id, record.queue_offset, record.phy_offset)
        if seen != (topic, queue_id, number, wanted.phy_offset) or uid_of(record.body) != wanted.uid:
            raise ViolationError(
                "visible_is_committed",
                f"{member_id} gives out {record} at offset {number} of {key}, committed is {wanted}",
            )
    return len(result.buffers)


def query_and_compare(process: Process, oracle: Oracle, topic: bytes, uid: int) -> int:
    """Asks for the messages with that message's key. Returns how many came, which are those that the oracle has, as far
    as this member shows them. Raises ViolationError.
    """
    store = process.store
    begin_index, applied_index = process.replica.log.ledger_begin_index, store.reads.applied_index
    query = store.reads.query_message(topic.decode(), key_of(uid), _QUERY_COUNT, 0, _LATE_MS)
    while not query.is_done:
        query.look()
    found = {decode_message(record).phy_offset for record in query.records}
    wanted = {
        message.phy_offset
        for other in uids_with_key_of(uid)
        for message in oracle.messages_of_uid.get(other, ())
        if message.topic == topic and begin_index <= message.index <= applied_index
    }
    if not found <= wanted if query.is_incomplete else found != wanted:
        raise ViolationError(
            "found_by_key",
            f"{process.host.member_id} finds {sorted(found)} of {topic.decode()} with {key_of(uid)}, there are "
            f"{sorted(wanted)} from entry {begin_index} to {applied_index}",
        )
    return len(found)
