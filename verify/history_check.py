"""A producer's record of its sends, held against the logs: what was acknowledged must be there.

JSON lines, one per send: {"outcome": "ok" | "fail" | "unknown", "broker": …, "topic": …, "queue_id": …,
"queue_offset": …, "phy_offset": …, "msg_id": …}. Only "ok" was promised anything; "unknown" may be there or not.
A line with a "kind" other than "send" is about something else (faults/history.py), and is passed over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson

from dledger.entry import ENTRY_HEADER_SIZE
from message.const import UNIQ_CLIENT_MESSAGE_ID_KEYIDX
from message.properties import find_property
from message.record_columns import read_records
from verify.findings import Finding, Kind
from verify.log.entry_scan import Run
from verify.work import DataRange

_UNIQ_KEY = UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode()


class HistoryError(Exception):
    """The history cannot be read. The text says in which line, and what was expected."""


class Ack(NamedTuple):
    """An acknowledged send. `number` is its place in the sorted history."""

    number: int
    phy_offset: int
    msg_id: str
    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class FoundAcks:
    """Of one unit: numbers of the acks whose message is there, and the indexes of the entries (-1: a CommitLog)."""

    replica: str
    numbers: tuple[int, ...]
    indexes: tuple[int, ...]


def read_history(path: Path, broker: str = "") -> list[Ack]:
    """The acknowledged sends, by physical offset. `broker`: of this one; "" if the history knows only one.

    Raises HistoryError, OSError.
    """
    rows: list[tuple[int, str, str, int, int]] = []
    brokers: set[str] = set()
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                send = orjson.loads(line)
                if send.get("kind", "send") != "send":
                    continue
                outcome = send["outcome"]
                if outcome in ("fail", "unknown"):
                    continue
                if outcome != "ok":
                    raise ValueError(f"outcome {outcome!r} is none of ok, fail, unknown")
                seen_broker = str(send.get("broker", ""))
                row = (
                    _number(send["phy_offset"]),
                    str(send["msg_id"]),
                    str(send["topic"]),
                    _number(send["queue_id"]),
                    _number(send["queue_offset"]),
                )
            except (AttributeError, ValueError, KeyError, TypeError) as error:
                if not line.endswith(b"\n"):
                    break  # its writer was killed
                raise HistoryError(
                    f"{path}:{number} is no send: expected a JSON object with outcome, topic, queue_id, queue_offset, "
                    f"phy_offset and msg_id ({error!r})"
                ) from error
            brokers.add(seen_broker)
            if broker in ("", seen_broker):
                rows.append(row)
    if not broker and len(brokers) > 1:
        raise HistoryError(f"{path} has sends to {', '.join(sorted(brokers))}: say whose replicas these are")
    if broker and brokers and broker not in brokers:
        raise HistoryError(f"{path} has no send to {broker}, only to {', '.join(sorted(brokers))}")
    return [Ack(number, *row) for number, row in enumerate(sorted(rows))]


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise ValueError(f"{value!r} is no integer of 64 bits")
    return value


def acks_of(acks: Sequence[Ack], unit: DataRange) -> tuple[Ack, ...]:
    """Those whose entry begins in the unit."""
    shift = unit.replica.layout.record_shift
    start, end = unit.file.base + unit.start + shift, unit.file.base + unit.end + shift
    first = bisect_left(acks, start, key=_phy_offset)
    return tuple(acks[first : bisect_left(acks, end, lo=first, key=_phy_offset)])


class HistoryCheck:
    """A consumer of pass 1."""

    def __init__(self, replica: str, acks: Sequence[Ack]) -> None:
        self._replica = replica
        self._acks = acks
        self._next = 0
        self._numbers: list[int] = []
        self._indexes: list[int] = []

    def feed(self, run: Run) -> None:
        shift = run.record_shift
        first = bisect_left(self._acks, run.first_pos + shift, lo=self._next, key=_phy_offset)
        self._next = bisect_left(self._acks, run.next_pos + shift, lo=first, key=_phy_offset)
        at_entries: list[tuple[Ack, int]] = []
        for ack in self._acks[first : self._next]:
            offset = ack.phy_offset - shift - run.first_pos + run.offsets[0]
            place = bisect_left(run.offsets, offset)
            if place < run.count and run.offsets[place] == offset:
                at_entries.append((ack, place))
        records = read_records(run.buffer, [run.offsets[place] for _, place in at_entries], shift=shift)
        for (ack, place), properties in zip(at_entries, records.properties, strict=True):
            # A batch is acknowledged with the ids of all its messages, at the place of the first.
            wanted = ack.msg_id.partition(",")[0].encode()
            if properties is not None and find_property(properties, _UNIQ_KEY) == wanted:
                self._numbers.append(ack.number)
                self._indexes.append(run.first_index + place if run.first_index >= 0 else -1)

    def finish(self) -> Iterator[FoundAcks]:
        yield FoundAcks(self._replica, tuple(self._numbers), tuple(self._indexes))


def lost_messages(
    acks: Sequence[Ack], found: Iterable[FoundAcks], end_positions: Mapping[str, int], *, committed_index: int
) -> Iterator[Finding]:
    """Acks whose message is neither in a replica's committed prefix nor in a majority of the logs.

    `end_positions`: where each replica's log ends. What a majority holds may be committed without the files saying so.
    """
    majority = len(end_positions) // 2 + 1
    missing = set(range(len(acks)))
    holders: Counter[int] = Counter()
    for part in found:
        for number, index in zip(part.numbers, part.indexes, strict=True):
            if acks[number].phy_offset - ENTRY_HEADER_SIZE < end_positions[part.replica]:
                holders[number] += 1
                if index <= committed_index or holders[number] >= majority:
                    missing.discard(number)
    for number in sorted(missing):
        ack = acks[number]
        where = (
            "only in an entry that is not committed"
            if number in holders
            else f"in no replica's log at physical offset {ack.phy_offset}"
        )
        yield Finding(
            kind=Kind.LOST_MESSAGE,
            topic=ack.topic,
            queue_id=ack.queue_id,
            first_offset=ack.queue_offset,
            last_offset=ack.queue_offset,
            sentence=f"message {ack.msg_id} was acknowledged, and is {where}",
        )


def _phy_offset(ack: Ack) -> int:
    return ack.phy_offset
