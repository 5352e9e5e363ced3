"""What the group has promised so far, put together from what its members said was committed.

The first member that commits an entry says what it is; everybody else, later on, must agree. Nothing here is taken from
the code under test but the bytes of its log.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from dledger.entry import ENTRY_HEADER_SIZE, EntryKind, Index, Term, parse_header
from message.const import DELAY_TIME_LEVEL, TIMER_DEL_UNIQKEY, TIMER_DELIVER_MS, TIMER_ROLL_TIMES
from message.decoder import decode_message
from message.names import (
    DLQ_GROUP_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    is_retry_or_dlq_topic,
)
from message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from message.tags import tags_code
from simulator.harness.access_log import AccessLog
from simulator.harness.options import DELAY_LEVELS
from simulator.invariants.invariant import MemberView

QueueKey = tuple[bytes, int]  # topic, queue id


@dataclass(frozen=True, slots=True)
class CommittedMessage:
    """A message as any reader must find it."""

    index: Index
    topic: bytes
    queue_id: int
    queue_offset: int
    phy_offset: int
    size: int
    tags_code: int  # of a message that waits: when it is due, ms
    uid: int  # that the client gave it
    store_timestamp: int = 0  # ms
    is_delivery: bool = False  # of a delayed message
    is_commit: bool = False  # of a transaction's message
    is_given_up: bool = False  # likewise, since no producer says anything of it
    deliver_ms: int = 0  # of a timer message: when it was asked for
    is_fired: bool = False  # a timer message, delivered


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Messages that a client was told are stored."""

    last_index: Index
    uids: Sequence[int]
    places: Sequence[tuple[QueueKey, int, int]]  # queue, queue offset, phy_offset


@dataclass(slots=True)
class ReadIndexRead:
    """What a client knew when it asked a member for the end of a queue, and what it was told."""

    member_id: str
    acknowledged_index: int  # of the log, to any client
    key: QueueKey
    acknowledged_end: int  # queue offset behind the last message of the queue that was
    is_told: bool = False
    applied_index: int = -1
    max_offset: int = 0


class Oracle:
    """Invariant: entries 0 .. end_index are committed, and were said to be so by some member."""

    def __init__(self, access: AccessLog | None = None) -> None:
        """`access`: where anybody changes users and policies."""
        self.access = access
        self.chains: list[int] = []  # of committed entries, by index
        self.terms: list[Term] = []
        self.messages: list[CommittedMessage] = []  # in the order of the log
        self.queues: dict[QueueKey, list[CommittedMessage]] = {}
        self.first_message_at: list[
            int
        ] = []  # by index: number in `messages` of the first at or behind the entry
        self.index_of_uid: dict[int, Index] = {}  # of the message as its client put it
        self.messages_of_uid: dict[int, list[CommittedMessage]] = {}  # as put, and as delivered
        # In the schedule topic, delivered since or not; by uid.
        self.waiting: dict[int, CommittedMessage] = {}
        self.delivered_count = 0
        # In the timer topic, delivered since or not, by uid; and which entry recalls a message first.
        self.timers: dict[int, CommittedMessage] = {}
        self.recalls: dict[int, Index] = {}
        self.timers_left: set[int] = set()  # neither delivered nor recalled
        self.fired_count = 0
        # Popped messages that came again, and those that are dead: how often, by topic and uid.
        self.revived_count = 0
        self.dead: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.acknowledged: list[Acknowledged] = []
        self.read_index_reads: list[ReadIndexRead] = []  # that were answered, in this order
        self.refused_uids: list[int] = []
        # Transactions, by the uids of their messages: prepared; committed or given up; how they are to end, and whether
        # somebody was told to commit them, or a producer that they have ended.
        self.halves: dict[int, CommittedMessage] = {}
        self.committed: set[int] = set()
        self.given_up: set[int] = set()
        self.to_commit: set[int] = set()
        self.said_commit: set[int] = set()
        self.told_ended: set[int] = set()
        self.put_us: dict[int, int] = {}  # when a client first handed in a message, by uid
        # Highest index that was committed by then, by the term of the member that said so.
        self.committed_in_term: dict[Term, Index] = {}

    @property
    def end_index(self) -> Index:
        return Index(len(self.chains) - 1)

    def learn(self, member: MemberView) -> str | None:
        """Takes in what `member` has committed. Returns what contradicts what was known before."""
        committed_index = member.committed_index
        known = self.committed_in_term.get(member.curr_term, -1)
        if committed_index > known:
            self.committed_in_term[member.curr_term] = committed_index
        for entry in member.entries(Index(len(self.chains)), committed_index):
            fault = self._add(entry)
            if fault is not None:
                return fault
        return None

    def _add(self, entry: bytes) -> str | None:
        header = parse_header(entry)
        if header.index != len(self.chains):
            return f"entry {len(self.chains)} says that it is {header.index}"
        self.chains.append(header.chain_crc)
        self.terms.append(header.term)
        self.first_message_at.append(len(self.messages))
        if header.kind == EntryKind.STATE and self.access is not None:
            self.access.add(header.index, decode_message(entry, ENTRY_HEADER_SIZE).body)
        if header.kind != EntryKind.MESSAGE:
            return None
        record = decode_message(entry, ENTRY_HEADER_SIZE)
        level = int(record.properties.get(DELAY_TIME_LEVEL, "0"))
        is_waiting = record.topic == SCHEDULE_TOPIC
        deliver_ms = int(record.properties.get(TIMER_DELIVER_MS, "0"))
        code = tags_code(record.tags) if record.tags else 0
        # Of a popped message, which still has the marks of the message that it was.
        is_copy = is_retry_or_dlq_topic(record.topic)
        message = CommittedMessage(
            header.index,
            record.topic.encode(),
            record.queue_id,
            record.queue_offset,
            header.pos + ENTRY_HEADER_SIZE,
            record.store_size,
            record.store_timestamp + DELAY_LEVELS[level] if is_waiting else code,
            uid_of(record.body),
            record.store_timestamp,
            is_delivery=bool(level) and not is_waiting and not is_copy,
            is_commit=not is_copy and record.sys_flag & TRANSACTION_ROLLBACK_TYPE == TRANSACTION_COMMIT_TYPE,
            is_given_up=record.topic == TRANS_CHECK_MAX_TIME_TOPIC,
            deliver_ms=deliver_ms,
            is_fired=bool(deliver_ms) and record.topic != TIMER_TOPIC and not is_copy,
        )
        if record.phy_offset != message.phy_offset:
            return f"entry {header.index} at pos {header.pos} says phy_offset {record.phy_offset}"
        self.messages.append(message)
        self.queues.setdefault((message.topic, message.queue_id), []).append(message)
        if record.topic == TRANS_OP_HALF_TOPIC:
            return None
        self.messages_of_uid.setdefault(message.uid, []).append(message)
        if is_copy:
            if record.topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
                self.dead[record.topic][message.uid] += 1
            else:
                self.revived_count += 1
            return None
        if message.is_commit or message.is_given_up:
            (self.committed if message.is_commit else self.given_up).add(message.uid)
            return None
        if message.is_delivery:
            self.delivered_count += 1
            return None
        if record.topic == TRANS_HALF_TOPIC:
            self.halves[message.uid] = message
        if message.is_fired:
            self.fired_count += 1
            self.timers_left.discard(message.uid)
            return None
        if TIMER_ROLL_TIMES in record.properties:
            return None
        if deliver_ms:
            self._note_timer(message, record.properties.get(TIMER_DEL_UNIQKEY))
        if is_waiting:
            self.waiting[message.uid] = message
        if message.uid in self.index_of_uid:
            return f"message {message.uid} is in entries {self.index_of_uid[message.uid]} and {header.index}"
        self.index_of_uid[message.uid] = header.index
        return None

    def _note_timer(self, message: CommittedMessage, recalled: str | None) -> None:
        if recalled is None:
            self.timers[message.uid] = message
            if message.uid not in self.recalls:
                self.timers_left.add(message.uid)
        else:
            self.recalls.setdefault(int(recalled), message.index)
            self.timers_left.discard(int(recalled))

    def messages_between(self, first_index: int, last_index: int) -> Sequence[CommittedMessage]:
        """Messages in committed entries from one to the other."""
        if first_index > last_index:
            return ()
        behind = last_index + 1
        end = self.first_message_at[behind] if behind < len(self.first_message_at) else len(self.messages)
        return self.messages[self.first_message_at[first_index] : end]

    def deleted_count(self, key: QueueKey, begin_index: Index) -> int:
        """How many of a queue's messages lie before an entry."""
        return bisect_left(self.queues.get(key, []), begin_index, key=lambda message: message.index)

    def committed_before(self, term: Term) -> Index:
        """Highest index that a member of a term below `term` has committed."""
        return max(
            (index for earlier, index in self.committed_in_term.items() if earlier < term), default=Index(-1)
        )


_UID_DIGITS = 12
_UIDS_PER_KEY = 3


def body_with(uid: int, size: int) -> bytes:
    """A message body that says which message it is."""
    return (b"%0*d" % (_UID_DIGITS, uid)).ljust(size, b".")


def uid_of(body: bytes) -> int:
    """-1 for what no client has put: an op record of RocketMQ's transactions."""
    digits = body[:_UID_DIGITS]
    return int(digits) if digits.isdigit() else -1


def key_of(uid: int) -> str:
    """The key that a message is put with; neighbours share one."""
    return f"key{uid // _UIDS_PER_KEY}"


def uids_with_key_of(uid: int) -> range:
    first_uid = uid - uid % _UIDS_PER_KEY
    return range(first_uid, first_uid + _UIDS_PER_KEY)
