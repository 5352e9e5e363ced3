"""Pass 1: each byte of a unit is read once, and every check that needs the log's entries sees them go by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from verify import derived
from verify.history_check import Ack, FoundAcks, HistoryCheck
from verify.log.entry_scan import Rest, Run, scan, up_to
from verify.log.log_part import LogPart, LogPartMaker
from verify.work import DataRange

Part = LogPart | FoundAcks | derived.DerivedPart


class Consumer(Protocol):
    """Sees the sound entries of a unit, in order of position."""

    def feed(self, run: Run) -> None: ...

    def finish(self) -> Iterator[Part]: ...


@dataclass(frozen=True, slots=True)
class CheckUnit:
    """`read_to`: entries behind this index are left alone; None: there is no such limit."""

    number: int
    range: DataRange
    read_to: int | None = None
    acks: tuple[Ack, ...] = ()


def check_unit(unit: CheckUnit) -> Iterator[tuple[int, Part]]:
    """What the unit tells, each with the unit's number. Of a unit that cannot be read: that it must be looked at."""
    try:
        parts = list(_parts(unit))
    except OSError as error:
        base, start, end = unit.range.file.base, unit.range.start, unit.range.end
        unread = Rest(base + start, base + end, base + end)
        is_gone = isinstance(error, FileNotFoundError)
        parts = [LogPart(unit.range.replica.name, base, rests=[unread], is_gone=is_gone)]
    for part in parts:
        yield unit.number, part


def _parts(unit: CheckUnit) -> Iterator[Part]:
    """Raises OSError."""
    log = LogPartMaker(unit.range)
    consumers: list[Consumer] = [log, *derived.consumers(unit.range)]
    history = HistoryCheck(unit.range.replica.name, unit.acks)
    for found in scan(unit.range):
        if isinstance(found, Rest):
            log.rest(found)
            continue
        if unit.acks:
            # What was acknowledged is committed, whatever a running member's files say of that yet.
            history.feed(found)
        if (run := up_to(found, unit.read_to)) is not None:
            for consumer in consumers:
                consumer.feed(run)
    if unit.acks:
        yield from history.finish()
    for consumer in consumers:
        yield from consumer.finish()
