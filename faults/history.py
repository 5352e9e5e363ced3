"""What clients, consumers and faults did in a run: a JSON object per line, as `mq produce --history` begins it.

It is one format: `mq validate --history` reads these files too, and takes from them what was acknowledged. Each process
writes a file of its own; times are nanoseconds of the one monotonic clock that all processes of a host share. A line
leaves with one write, so a process that is killed leaves at most a part of its last line.

A message is named by its producer and its sequence there, from 0; both are in its body.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Annotated, Final, Literal

import msgspec

from verify.history_check import HistoryError

READ_BACK: Final = "read_back"  # the consumer group that reads every queue whole when all is healed

Outcome = Literal["ok", "fail", "unknown"]
Kind = Literal["transactions", "timers", "filters", "requests"]
# No run comes to more; what says so is read as an error, for a checker keeps something for each number below.
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]
Time = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
MaybeNumber = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 40)]


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="kind"):
    """`at_ns`: when it was written; within a file it never falls."""

    at_ns: int


class FilteredGroup(msgspec.Struct, frozen=True, gc=False):
    """A consumer group of a topic that is to be given the messages whose sequence, taken modulo `modulus`, is one of
    `remainders`, and no others.
    """

    group: str
    topic: str
    modulus: Annotated[int, msgspec.Meta(ge=1)]
    remainders: tuple[int, ...]

    def takes(self, sequence: int) -> bool:
        return sequence % self.modulus in self.remainders


class Run(Record, frozen=True, kw_only=True, gc=False, tag="run"):
    """The first line. `target`: whose brokers these are. `groups`: consumer groups that begin with the first message
    and go on until they have come to the ends of the queues, so that each message is to be given to each of them.
    `filtered`: groups that do the same with a part of the messages. `kinds`: of messages that the run is to have beside
    plain ones. `pairs`: how many pairs of its nemeses may be on at once; None: any two.
    """

    seed: int
    minutes: float
    target: str
    members: tuple[str, ...]
    revision: str = ""
    faults: int = 0  # in its schedule
    groups: tuple[str, ...] = ()
    filtered: tuple[FilteredGroup, ...] = ()
    kinds: tuple[Kind, ...] = ()
    pairs: int | None = None


class SendBegun(Record, frozen=True, kw_only=True, gc=False, tag="send_begun"):
    """Written before anything leaves: of a producer that dies, it says what may be stored."""

    producer: str
    sequence: Number
    topic: str


class Send(Record, frozen=True, kw_only=True, gc=False, tag="send"):
    """Its end. `ok`: acknowledged; `unknown`: may be stored or not; `fail`: surely not stored.

    `attempts` above 1: it was sent again after an attempt whose end nobody knows, and may be stored more than once.
    """

    begun_ns: int
    producer: str
    sequence: Number
    outcome: Outcome
    topic: str
    broker: str = ""
    queue_id: int = -1
    queue_offset: MaybeNumber = -1
    phy_offset: int = -1
    msg_id: str = ""
    attempts: int = 1
    reason: str = ""


class OfMessage(Record, frozen=True, kw_only=True, gc=False):
    """What happened to one message of another kind than the plain ones, which `send_begun` and `send` are about."""

    producer: str
    sequence: Number


class TransactionBegun(OfMessage, frozen=True, kw_only=True, gc=False, tag="transaction_begun"):
    """Written before its message leaves, which is to be prepared."""

    topic: str


class TransactionSaid(OfMessage, frozen=True, kw_only=True, gc=False, tag="transaction_said"):
    """Its producer says how it ends; written before the broker can know. `asked`: the broker had asked."""

    state: Literal["commit", "rollback", "unknown"]
    asked: bool = False


class Transaction(OfMessage, frozen=True, kw_only=True, gc=False, tag="transaction"):
    """Its end for the producer. `outcome` is of the prepared message, as of a Send. `is_ended`: the broker has said
    that the transaction has ended as it was told.
    """

    begun_ns: int
    topic: str
    outcome: Outcome
    attempts: int = 1
    is_ended: bool = False
    reason: str = ""


class TimerBegun(OfMessage, frozen=True, kw_only=True, gc=False, tag="timer_begun"):
    """Written before it leaves. `due_ns`: not to be delivered before. `due_ms`: the same by the wall clock that the
    producer began with, where it asks for a time of day; 0 where it asks for a delay.
    """

    topic: str
    due_ns: Time
    due_ms: Time = 0


class Timer(OfMessage, frozen=True, kw_only=True, gc=False, tag="timer"):
    """The end of its send, as of a Send. `recall_handle`: "" for delay levels, which cannot be recalled."""

    begun_ns: int
    topic: str
    outcome: Outcome
    attempts: int = 1
    recall_handle: str = ""
    reason: str = ""


class RecallBegun(OfMessage, frozen=True, kw_only=True, gc=False, tag="recall_begun"):
    """Written before it leaves."""


class Recall(OfMessage, frozen=True, kw_only=True, gc=False, tag="recall"):
    """Its end. `ok`: the broker has stored it."""

    begun_ns: int
    outcome: Outcome
    reason: str = ""


class Request(OfMessage, frozen=True, kw_only=True, gc=False, tag="request"):
    """The end of a request. `ok`: answered, and the reply said that it replies to the message that is named."""

    begun_ns: int
    outcome: Outcome
    reply_producer: str = ""
    reply_sequence: MaybeNumber = -1
    reason: str = ""


class Sent(OfMessage, frozen=True, kw_only=True, gc=False, tag="sent"):
    """The end of a send, as of a Send, of a client that is not told where its message lies."""

    begun_ns: int
    topic: str
    outcome: Outcome
    message_group: str = ""
    attempts: int = 1
    reason: str = ""


class Received(OfMessage, frozen=True, kw_only=True, gc=False, tag="received"):
    """A pop gave the message to a consumer of the group. `begun_ns`: when that was asked for."""

    begun_ns: int
    group: str
    topic: str
    message_group: str = ""
    attempt: Number = 1


class Acknowledgement(OfMessage, frozen=True, kw_only=True, gc=False, tag="acknowledgement"):
    """Its end. `unknown` also of a consumer that consumed the message, and tells nobody of its acknowledgement."""

    begun_ns: int
    group: str
    outcome: Outcome
    reason: str = ""


class Dead(OfMessage, frozen=True, kw_only=True, gc=False, tag="dead"):
    """The message was found in the group's dead letter topic."""

    group: str


class Delivered(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One message of a poll. A body that is not one of ours has producer "" and sequence -1. `store_ms`: when it was
    stored, by the clock of the leader that stored it; 0: not noted.
    """

    queue_offset: Number
    producer: str
    sequence: MaybeNumber
    msg_id: str = ""
    store_ms: int = 0


class AtQueue(Record, frozen=True, kw_only=True, gc=False):
    """What a consumer of a group did at one queue."""

    group: str
    consumer: str
    broker: str
    topic: str
    queue_id: int


class Assigned(AtQueue, frozen=True, kw_only=True, gc=False, tag="assigned"):
    """The consumer begins to read the queue at `offset`: by a rebalance, a start or a seek."""

    offset: Number


class Poll(AtQueue, frozen=True, kw_only=True, gc=False, tag="poll"):
    """What was asked from `offset` on; `next_offset` is where to go on. `in_order` is false of consumers that work on
    several messages of a queue at once: of these the order says nothing.
    """

    offset: Number
    next_offset: Number
    messages: tuple[Delivered, ...] = ()
    in_order: bool = True


class QueueEnd(AtQueue, frozen=True, kw_only=True, gc=False, tag="queue_end"):
    """The group has read the queue from `min_offset` to `max_offset`, which the broker says is its end."""

    min_offset: Number
    max_offset: Number


class CommitBegun(AtQueue, frozen=True, kw_only=True, gc=False, tag="commit_begun"):
    """Everything below `offset` is consumed."""

    offset: Number


class Commit(AtQueue, frozen=True, kw_only=True, gc=False, tag="commit"):
    """Its end. A one-way commit ends as unknown."""

    begun_ns: int
    offset: Number
    outcome: Outcome


class Committed(AtQueue, frozen=True, kw_only=True, gc=False, tag="committed"):
    """The broker's answer to the question what a group has committed; -1: nothing."""

    begun_ns: int
    offset: MaybeNumber


class LeaderSeen(Record, frozen=True, kw_only=True, gc=False, tag="leader"):
    """Who leads the Raft group `broker` in a term. `seen_by`: the member that says so, or whoever looked."""

    broker: str
    term: int
    leader: str
    seen_by: str


class FaultBegun(Record, frozen=True, kw_only=True, gc=False, tag="fault_begun"):
    """`outage_ms`: for how long after its begin, and after its end, it may keep the group from serving; None: for as
    long as it lasts, too. `while_leading`: all of it only while its target leads.
    """

    fault: int
    nemesis: str
    target: str
    outage_ms: int | None
    while_leading: bool = False


class FaultVerified(Record, frozen=True, kw_only=True, gc=False, tag="fault_verified"):
    """Something other than the command that began the fault says that it happened."""

    fault: int
    evidence: str


class FaultEnded(Record, frozen=True, kw_only=True, gc=False, tag="fault_ended"):
    fault: int


class Phase(Record, frozen=True, kw_only=True, gc=False, tag="phase"):
    """The run goes on to: faults; calm, for all of them have ended and are healed; draining, for producers are to end;
    levelling, for consumers have ended, of which none did so before.
    """

    name: Literal["faults", "calm", "drain", "level"]


class Standstill(Record, frozen=True, kw_only=True, gc=False, tag="standstill"):
    """From `begun_ns` until now the machine itself did not do what it does in milliseconds: the disk did not sync a
    sector, or no processor had a turn for a process that asks for next to nothing.
    """

    begun_ns: int
    of: Literal["disk", "processor"]


class Healed(Record, frozen=True, kw_only=True, gc=False, tag="healed"):
    """All faults have ended and all members are level; what follows is reading back."""


AnyRecord = (
    Run | SendBegun | Send | TransactionBegun | TransactionSaid | Transaction
    | TimerBegun | Timer | RecallBegun | Recall | Request
    | Sent | Received | Acknowledgement | Dead
    | Assigned | Poll | QueueEnd | CommitBegun | Commit | Committed
    | LeaderSeen | FaultBegun | FaultVerified | FaultEnded | Phase | Standstill | Healed
)  # fmt: skip

_DECODER: Final = msgspec.json.Decoder(AnyRecord)
_ENCODER: Final = msgspec.json.Encoder()


class HistoryWriter:
    """Use it as `with HistoryWriter(path) as history`. One process, one file, which must not be there yet."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._file = path.open("xb", buffering=0)

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()

    def note(self, record: AnyRecord) -> None:
        """In the page cache when this returns, so that what is killed afterwards does not take it along."""
        self._file.write(_ENCODER.encode(record) + b"\n")


def read_records(path: Path) -> Iterator[AnyRecord]:
    """Those of one file, one at a time. What a killed process left of its last line is passed over.

    Raises HistoryError with the line, OSError.
    """
    before_ns = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = _DECODER.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise HistoryError(f"{path}:{number} is no record of a run: {error}") from error
            if isinstance(record, Send) and record.outcome == "ok" and record.queue_offset < 0:
                raise HistoryError(f"{path}:{number} is no record of a run: acknowledged, and at no offset")
            if record.at_ns < before_ns:
                raise HistoryError(
                    f"{path}:{number} is older than the line before it: {record.at_ns} after {before_ns} ns"
                )
            before_ns = record.at_ns
            yield record


def read_history(paths: Iterable[Path]) -> Iterator[AnyRecord]:
    """The files of all processes of a run, in the order of time. Raises HistoryError, OSError."""
    return heapq.merge(*map(read_records, paths), key=_at_ns)


def _at_ns(record: Record) -> int:
    return record.at_ns
