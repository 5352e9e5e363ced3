"""Histories as a sound group under faults makes them, and the means to spoil them.

A model of a few queues, producers that retry, consumer groups that rebalance, and leaders; every draw comes from one
Random. What it does at random is all that a sound group may do: store a send whose end nobody knows, store a retried
one twice, refuse, elect, deliver again from what was committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from faults.history import (
    READ_BACK,
    AnyRecord,
    Assigned,
    Commit,
    CommitBegun,
    Committed,
    Delivered,
    FaultBegun,
    FaultEnded,
    FaultVerified,
    Healed,
    LeaderSeen,
    Phase,
    Poll,
    QueueEnd,
    Run,
    Send,
    SendBegun,
)

BROKER, TOPIC, GROUP = "a", "T", "g"
MEMBERS = ("n0", "n1", "n2")
MS = 1_000_000
Kind = TypeVar("Kind")


@dataclass
class _Sending:
    begun_ns: int
    producer: str
    sequence: int
    ends: str  # ok, fail, unknown, none
    is_stored: bool
    attempts: int
    queue_id: int
    offset: int = -1


@dataclass
class _Reader:
    consumer: str
    queue_id: int
    offset: int


@dataclass
class Model:
    dice: random.Random
    queue_count: int = 2
    producer_count: int = 3
    now_ns: int = 1_000 * MS
    records: list[AnyRecord] = field(default_factory=list)
    queues: list[list[tuple[str, int]]] = field(default_factory=list)
    sequences: dict[str, int] = field(default_factory=dict)
    sending: list[_Sending] = field(default_factory=list)
    readers: list[_Reader] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    commits: dict[int, CommitBegun] = field(default_factory=dict)
    term: int = 0
    fault: int = 0
    acknowledged_ns: int = 0

    def __post_init__(self) -> None:
        self.queues = [[] for _ in range(self.queue_count)]
        self.committed = [0] * self.queue_count
        self.note(
            Run(at_ns=self.now_ns, seed=1, minutes=0.0, target="ours", members=MEMBERS, groups=(GROUP,))
        )
        self.elect()
        for queue_id in range(self.queue_count):
            self.assign(queue_id)

    def note(self, record: AnyRecord) -> None:
        self.records.append(record)

    def pass_time(self, ms: int | None = None) -> None:
        self.now_ns += (self.dice.randint(1, 40) if ms is None else ms) * MS

    def run(self, steps: int) -> list[AnyRecord]:
        actions: list[Callable[[], None]] = [
            *[self.begin_send] * 8,
            *[self.end_send] * 10,
            *[self.poll] * 6,
            *[self.commit] * 3,
            self.ask_committed,
            self.rebalance,
            self.see_leader,
            self.fail_over,
        ]
        for _ in range(steps):
            self.pass_time()
            self.keep_up()
            self.dice.choice(actions)()
        return self.finish()

    def keep_up(self) -> None:
        """A group that leads acknowledges something now and then."""
        if self.now_ns - self.acknowledged_ns > 300 * MS:
            self.begin_send(ends="ok")
            self.pass_time()
            self.end_send(self.sending[-1])

    # Producers

    def begin_send(self, ends: str = "") -> None:
        producer = f"p{self.dice.randrange(self.producer_count)}"
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        ends = ends or self.dice.choices(("ok", "fail", "unknown", "none"), (20, 1, 2, 1))[0]
        is_stored = ends == "ok" or (ends != "fail" and self.dice.random() < 0.5)
        attempts = 1 + (ends == "ok" and self.dice.random() < 0.1)
        self.note(SendBegun(at_ns=self.now_ns, producer=producer, sequence=sequence, topic=TOPIC))
        self.sending.append(
            _Sending(
                self.now_ns,
                producer,
                sequence,
                ends,
                is_stored,
                attempts,
                self.dice.randrange(self.queue_count),
            )
        )

    def store(self, one: _Sending) -> None:
        if one.is_stored and one.offset < 0:
            queue = self.queues[one.queue_id]
            # The attempt before this one may have been stored.
            for _ in range(1 + (one.attempts > 1 and self.dice.random() < 0.5)):
                one.offset = len(queue)
                queue.append((one.producer, one.sequence))

    def end_send(self, one: _Sending | None = None) -> None:
        """Of the one that is given for sure."""
        if one is None:
            if not self.sending:
                return
            one = self.dice.choice(self.sending)
            self.store(one)
            if self.dice.random() < 0.3:
                return  # stored, and not told yet
        self.store(one)
        self.sending.remove(one)
        is_ok = one.ends == "ok"
        if is_ok:
            self.acknowledged_ns = self.now_ns
        if one.ends != "none":
            self.note(
                Send(
                    at_ns=self.now_ns,
                    begun_ns=one.begun_ns,
                    producer=one.producer,
                    sequence=one.sequence,
                    outcome=one.ends,  # type: ignore[arg-type]
                    topic=TOPIC,
                    broker=BROKER if is_ok else "",
                    queue_id=one.queue_id if is_ok else -1,
                    queue_offset=one.offset if is_ok else -1,
                    phy_offset=one.offset * 1000 + one.queue_id if is_ok else -1,
                    msg_id=f"{one.producer}-{one.sequence}",
                    attempts=one.attempts,
                )
            )

    # Consumers

    def assign(self, queue_id: int) -> None:
        """From where the group has committed: what was read beyond it is delivered again."""
        self.readers = [reader for reader in self.readers if reader.queue_id != queue_id]
        reader = _Reader(f"c{self.dice.randrange(3)}", queue_id, self.committed[queue_id])
        self.readers.append(reader)
        self.note(Assigned(at_ns=self.now_ns, offset=reader.offset, **self.at(reader)))

    def at(self, reader: _Reader, group: str = GROUP) -> dict[str, Any]:
        return {
            "group": group,
            "consumer": reader.consumer,
            "broker": BROKER,
            "topic": TOPIC,
            "queue_id": reader.queue_id,
        }

    def rebalance(self) -> None:
        queue_id = self.dice.randrange(self.queue_count)
        if queue_id not in self.commits:
            self.assign(queue_id)

    def poll(self) -> None:
        self.poll_as(self.dice.choice(self.readers), GROUP, self.dice.randint(1, 8))

    def poll_as(self, reader: _Reader, group: str, count: int) -> None:
        queue = self.queues[reader.queue_id]
        end = min(len(queue), reader.offset + count)
        messages = tuple(
            Delivered(offset, *queue[offset], f"{queue[offset][0]}-{queue[offset][1]}")
            for offset in range(reader.offset, end)
        )
        self.note(
            Poll(
                at_ns=self.now_ns,
                offset=reader.offset,
                next_offset=end,
                messages=messages,
                **self.at(reader, group),
            )
        )
        reader.offset = end

    def commit(self) -> None:
        """Begins one, or ends the one under way."""
        reader = self.dice.choice(self.readers)
        begun = self.commits.pop(reader.queue_id, None)
        if begun is None:
            begun = CommitBegun(at_ns=self.now_ns, offset=reader.offset, **self.at(reader))
            self.commits[reader.queue_id] = begun
            self.note(begun)
            return
        outcome = self.dice.choices(("ok", "fail", "unknown"), (6, 1, 1))[0]
        if outcome == "ok" or (outcome == "unknown" and self.dice.random() < 0.5):
            self.committed[reader.queue_id] = begun.offset
        self.note(
            Commit(
                at_ns=self.now_ns,
                begun_ns=begun.at_ns,
                offset=begun.offset,
                outcome=outcome,
                **self.at(reader),
            )
        )

    def ask_committed(self) -> None:
        reader = self.dice.choice(self.readers)
        begun_ns = self.now_ns
        self.pass_time()
        offset = self.committed[reader.queue_id]
        self.note(Committed(at_ns=self.now_ns, begun_ns=begun_ns, offset=offset, **self.at(reader)))

    # The group

    def elect(self) -> None:
        self.term += self.dice.randint(1, 3)
        self.leader = self.dice.choice(MEMBERS)
        self.see_leader()

    def see_leader(self) -> None:
        seen_by = self.dice.choice(MEMBERS)
        self.note(
            LeaderSeen(at_ns=self.now_ns, broker=BROKER, term=self.term, leader=self.leader, seen_by=seen_by)
        )

    def fail_over(self, *, nemesis: str = "kill", outage_ms: int | None = 3_000) -> None:
        """A fault that is verified, some seconds without an acknowledgement, another leader."""
        self.fault += 1
        begun = FaultBegun(
            at_ns=self.now_ns, fault=self.fault, nemesis=nemesis, target=self.leader, outage_ms=outage_ms
        )
        self.note(begun)
        self.pass_time()
        self.note(FaultVerified(at_ns=self.now_ns, fault=begun.fault, evidence=f"{self.leader} is gone"))
        for _ in range(self.dice.randrange(3)):
            self.pass_time()
            self.begin_send()
        self.pass_time(self.dice.randint(0, 2_000))
        self.elect()
        self.pass_time(self.dice.randint(0, 500))
        self.note(FaultEnded(at_ns=self.now_ns, fault=begun.fault))

    def finish(self) -> list[AnyRecord]:
        """Heals, lets sends end that end at all, and reads all back."""
        while self.sending:
            self.pass_time()
            self.end_send(self.dice.choice(self.sending))
            self.keep_up()
        self.pass_time()
        self.note(Phase(at_ns=self.now_ns, name="calm"))
        self.begin_send(ends="ok")
        self.pass_time()
        self.end_send(self.sending[-1])
        self.pass_time()
        self.note(Phase(at_ns=self.now_ns, name="drain"))
        for reader in self.readers:
            self.pass_time()
            self.poll_as(reader, GROUP, len(self.queues[reader.queue_id]))
        self.pass_time()
        self.note(Phase(at_ns=self.now_ns, name="level"))
        self.pass_time()
        self.note(Healed(at_ns=self.now_ns))
        for queue_id, queue in enumerate(self.queues):
            reader = _Reader("judge", queue_id, 0)
            while reader.offset < len(queue):
                self.pass_time()
                self.poll_as(reader, READ_BACK, self.dice.randint(1, 32))
            self.note(
                QueueEnd(at_ns=self.now_ns, min_offset=0, max_offset=len(queue), **self.at(reader, READ_BACK))
            )
        return self.records


def made_history(dice: random.Random, steps: int = 200) -> list[AnyRecord]:
    return Model(dice).run(steps)


def of_kind(records: Iterable[AnyRecord], kind: type[Kind]) -> list[Kind]:
    return [record for record in records if isinstance(record, kind)]


def changed(records: Iterable[AnyRecord], change: Callable[[AnyRecord], AnyRecord | None]) -> list[AnyRecord]:
    """`change` gives back what stands in a record's place; None: nothing."""
    return [new for record in records if (new := change(record)) is not None]


def without_messages(poll: Poll, is_gone: Callable[[Delivered], bool]) -> Poll:
    kept = tuple(delivered for delivered in poll.messages if not is_gone(delivered))
    return msgspec.structs.replace(poll, messages=kept)
