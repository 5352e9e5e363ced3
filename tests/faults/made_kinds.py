"""Histories of transactions, timers, filters and requests as a sound group under faults makes them.

Every draw comes from one Random. What it does at random is all that a sound group may do: prepare what nobody was told
of, and ask about it; store a message that was tried again twice; let a recall that came late, or whose end nobody
knows, count or not; leave a request without a reply.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from made_history import BROKER, GROUP, MEMBERS, MS
from told import in_order

from faults.history import (
    READ_BACK,
    AnyRecord,
    Delivered,
    FilteredGroup,
    Healed,
    Outcome,
    Phase,
    Poll,
    QueueEnd,
    Recall,
    RecallBegun,
    Request,
    Run,
    Send,
    SendBegun,
    Timer,
    TimerBegun,
    Transaction,
    TransactionBegun,
    TransactionSaid,
)

PLAIN, TRANSACTIONS, TIMERS = "Plain", "Transactions", "Timers"
FILTERED = FilteredGroup("sql", PLAIN, 10, (2, 3, 4))
WALL_MS = 1_795_000_000_000  # what the wall clock says when the monotonic one says 0
SPAN_MS = 30_000  # in which all is sent
END_MS = 70_000


@dataclass
class KindsModel:
    """Times are milliseconds of the monotonic clock."""

    dice: random.Random
    records: list[AnyRecord] = field(default_factory=list)
    stored: list[tuple[int, str, str, int]] = field(default_factory=list)  # when, topic, producer, sequence

    def run(self, count: int) -> list[AnyRecord]:
        """`count` of each kind."""
        first = Run(
            at_ns=0,
            seed=1,
            minutes=0.0,
            target="ours",
            members=MEMBERS,
            groups=(GROUP,),
            filtered=(FILTERED,),
            kinds=("transactions", "timers", "filters", "requests"),
        )
        for sequence in range(count):
            at_ms = 1 + self.dice.randrange(SPAN_MS)
            self.send(at_ms, sequence)
            self.transaction(at_ms, sequence)
            self.timer(at_ms, sequence)
            self.request(at_ms, sequence)
        last = self.read()
        return [first, *in_order(self.records), *last]

    def send(self, at_ms: int, sequence: int) -> None:
        outcome, attempts = self.outcome()
        about: dict[str, Any] = {"producer": "p", "sequence": sequence, "topic": PLAIN}
        self.records.append(SendBegun(at_ns=at_ms * MS, **about))
        # Not acknowledged by their places: these are about what consumers are given.
        outcome = "unknown" if outcome == "ok" else outcome
        end = Send(at_ns=(at_ms + 5) * MS, begun_ns=at_ms * MS, outcome=outcome, attempts=attempts, **about)
        self.records.append(end)
        self.store(at_ms + 2, PLAIN, "p", sequence, outcome, attempts)

    def outcome(self) -> tuple[Outcome, int]:
        """And the number of attempts."""
        outcomes: list[Outcome] = ["ok"] * 6 + ["unknown", "fail"]
        return self.dice.choice(outcomes), self.dice.choice((1, 1, 1, 2))

    def store(
        self, at_ms: int, topic: str, producer: str, sequence: int, outcome: Outcome, attempts: int
    ) -> None:
        """As often as may be after such an end of its send."""
        if outcome == "ok" or (outcome == "unknown" and self.dice.random() < 0.5):
            copies = 1 + (attempts > 1 and self.dice.random() < 0.5)
            self.stored += [
                (at_ms + self.dice.randrange(3), topic, producer, sequence) for _ in range(copies)
            ]

    def transaction(self, at_ms: int, sequence: int) -> None:
        outcome, attempts = self.outcome()
        name: dict[str, Any] = {"producer": "t", "sequence": sequence}
        about = {**name, "topic": TRANSACTIONS}
        state = self.dice.choice(("commit", "rollback"))
        is_at_once = self.dice.random() < 0.5
        self.records.append(TransactionBegun(at_ns=at_ms * MS, **about))
        end = Transaction(
            at_ns=(at_ms + 9) * MS, begun_ns=at_ms * MS, outcome=outcome, attempts=attempts, **about
        )
        self.records.append(end)
        said_ms = at_ms + 5
        if outcome == "ok":
            said = state if is_at_once else "unknown"
            self.records.append(TransactionSaid(at_ns=said_ms * MS, state=said, **name))
        is_prepared = outcome == "ok" or (outcome == "unknown" and self.dice.random() < 0.5)
        if is_prepared and not (outcome == "ok" and is_at_once):
            for _ in range(self.dice.randint(1, 2)):
                asked = TransactionSaid(at_ns=(said_ms + 2_000) * MS, state=state, asked=True, **name)
                self.records.append(asked)
            said_ms += 2_000
        if is_prepared and state == "commit":
            self.store(said_ms + 1, TRANSACTIONS, "t", sequence, "ok", attempts)

    def timer(self, at_ms: int, sequence: int) -> None:
        outcome, attempts = self.outcome()
        name: dict[str, Any] = {"producer": "d", "sequence": sequence}
        about = {**name, "topic": TIMERS}
        due_ms = at_ms + self.dice.randint(1_000, 20_000)
        asked_ms = WALL_MS + due_ms if self.dice.random() < 0.5 else 0
        self.records += [
            TimerBegun(at_ns=at_ms * MS, due_ns=due_ms * MS, due_ms=asked_ms, **about),
            Timer(at_ns=(at_ms + 9) * MS, begun_ns=at_ms * MS, outcome=outcome, attempts=attempts, **about),
        ]
        is_recalled = False
        if outcome == "ok" and self.dice.random() < 0.5:
            recall_ms = at_ms + self.dice.randint(20, due_ms - at_ms + 50)
            recall_outcome = self.dice.choice(("ok", "ok", "unknown"))
            self.records += [
                RecallBegun(at_ns=(recall_ms - 5) * MS, **name),
                Recall(at_ns=recall_ms * MS, begun_ns=(recall_ms - 5) * MS, outcome=recall_outcome, **name),
            ]
            in_time = recall_outcome == "ok" and recall_ms < due_ms
            is_recalled = in_time or self.dice.random() < 0.5
        if not is_recalled or attempts > 1:
            self.store(due_ms + self.dice.randrange(100), TIMERS, "d", sequence, outcome, attempts)

    def request(self, at_ms: int, sequence: int) -> None:
        outcome, _ = self.outcome()
        replied_to = ("r", sequence) if outcome == "ok" else ("", -1)
        self.records.append(
            Request(
                at_ns=(at_ms + 9) * MS,
                begun_ns=at_ms * MS,
                producer="r",
                sequence=sequence,
                outcome=outcome,
                reply_producer=replied_to[0],
                reply_sequence=replied_to[1],
            )
        )

    def read(self) -> list[AnyRecord]:
        """What is read back at the end. Groups are given each message when it is stored. A queue for each topic."""
        last: list[AnyRecord] = [Phase(at_ns=END_MS * MS, name="level"), Healed(at_ns=END_MS * MS)]
        for topic in (PLAIN, TRANSACTIONS, TIMERS):
            queue = sorted(one for one in self.stored if one[1] == topic)
            messages = [
                Delivered(offset, producer, sequence, store_ms=WALL_MS + at_ms)
                for offset, (at_ms, _, producer, sequence) in enumerate(queue)
            ]
            for message in messages:
                at_ns = (message.store_ms - WALL_MS) * MS
                self.records.append(self.poll(at_ns, topic, GROUP, [message]))
                if topic == PLAIN and FILTERED.takes(message.sequence):
                    self.records.append(self.poll(at_ns, topic, FILTERED.group, [message]))
            last.append(self.poll(END_MS * MS, topic, READ_BACK, messages))
            end = self.at(topic, READ_BACK)
            last.append(QueueEnd(at_ns=END_MS * MS, min_offset=0, max_offset=len(messages), **end))
        return last

    def poll(self, at_ns: int, topic: str, group: str, messages: list[Delivered]) -> Poll:
        first = messages[0].queue_offset if messages else 0
        return Poll(
            at_ns=at_ns,
            offset=first,
            next_offset=first + len(messages),
            messages=tuple(messages),
            in_order=group != FILTERED.group,
            **self.at(topic, group),
        )

    def at(self, topic: str, group: str) -> dict[str, Any]:
        return {"group": group, "consumer": "c", "broker": BROKER, "topic": topic, "queue_id": 0}


def made_kinds(dice: random.Random, count: int = 40) -> list[AnyRecord]:
    return KindsModel(dice).run(count)
