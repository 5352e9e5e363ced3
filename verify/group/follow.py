"""Replicas of a group that runs, compared range by range as they commit.

Decides which entries are looked at next, and what is said of them. The caller owns time: each `look` takes what all
replicas know to be committed by then. Each entry is checked as in a validation and must follow the one before it; then
its digest must be the same in all replicas. What follows from the log, as ConsumeQueues, is left to a validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Final

from verify.findings import Finding, Kind
from verify.log.data_file import Layout
from verify.log.log_part import digests_of
from verify.log.log_walk import LogBrokenError, LogPlace, begin_of, place_after, walk_from
from verify.replica import Replica, ReplicaError, open_replicas

RANGE_ENTRIES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class ComparedRange:
    """Entries first_index .. last_index, and the replicas that have them. Without findings these are equal."""

    first_index: int
    last_index: int
    replicas: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()  # why a replica took no part, or entries were not compared


@dataclass(slots=True)
class _Reading:
    """Of one replica in a range: the digests of its entries, and how the reading ended."""

    replica: Replica
    place: LogPlace
    digests: list[int] = field(default_factory=list)
    broken: LogBrokenError | None = None


class GroupFollower:
    """Invariant: `proved_index` only grows, and all replicas that have an entry up to it, from `begin_index` on, had it
    equal when it was compared. These were two at least."""

    def __init__(
        self, directories: Sequence[str | Path], *, range_entries_max: int = RANGE_ENTRIES_MAX
    ) -> None:
        """Raises ReplicaError where they are not replicas of one group, which have a commit."""
        self._directories = directories
        self._range_entries_max = range_entries_max
        self._place: LogPlace | None = None  # behind what was compared
        self._apart: set[str] = set()  # replicas whose log is another one by now
        self._named: set[tuple[str, Kind, int | None]] = set()
        self.begin_index = 0
        self.proved_index = -1
        self.findings: list[Finding] = []
        self.held_up = ""  # why nothing is compared just now; "": all that is committed was
        replicas = open_replicas(directories)
        self.names = tuple(replica.name for replica in replicas)
        self.group = replicas[0].group
        for replica in replicas:
            if replica.layout is not Layout.DLEDGER:
                raise ReplicaError(f"{replica.directory} is a plain CommitLog, which has no commit to follow")
            if replica.group != self.group:
                raise ReplicaError(
                    f"{replicas[0].directory} belongs to group {self.group}, {replica.directory} to {replica.group}: "
                    "follow each group by itself"
                )

    @property
    def is_over(self) -> bool:
        """Nothing is left to compare: no two logs go on alike."""
        return len(self._apart) == len(self.names)

    @property
    def compared_index(self) -> int:
        return self._place.index if self._place is not None else -1

    def look(self) -> ComparedRange | None:
        """The next range, if there is one. What cannot be read just now, as a member begins anew or its oldest file has
        gone, is looked at again the next time."""
        if self.is_over:
            return None
        try:
            replicas = [
                replica for replica in open_replicas(self._directories) if replica.name not in self._apart
            ]
            return self._look(replicas)
        except (ReplicaError, OSError) as error:
            self.held_up = str(error)
            return None

    def _look(self, replicas: Sequence[Replica]) -> ComparedRange | None:
        begins = {replica.name: begin_of(replica) for replica in replicas}
        remarks: list[str] = []
        place = self._place
        if place is None or not any(_has(begin, place) for begin in begins.values()):
            place = self._begun(begins, remarks)
        if place is None:
            return None
        having = [replica for replica in replicas if _has(begins[replica.name], place)]
        if len(having) == 1:  # equal to none
            self.held_up = f"entry {place.index + 1:,} is in the log of {having[0].name} alone"
            return None
        last = self._last_index(having, place)
        if last <= place.index:
            return None
        remarks += [
            f"{replica.name} takes no part: its log begins later"
            for replica in replicas
            if replica not in having
        ]
        readings = [_read(replica, place, last) for replica in having]
        findings = [
            *self._new(_broken_findings(readings)),
            *self._new(self._differences(place.index, readings)),
        ]
        first_faults = [finding.first_index for finding in findings if finding.first_index is not None]
        sound = [reading for reading in readings if reading.replica.name not in self._apart]
        self._place = max(
            (reading.place for reading in sound), key=lambda reached: reached.index, default=place
        )
        if not self.findings:
            self.proved_index = min(first_faults, default=self._place.index + 1) - 1
        self.findings += findings
        names = tuple(replica.name for replica in having)
        if self._place.index == place.index and not findings:
            self.held_up = f"entry {place.index + 1:,} can be read in no replica"
            return None
        return ComparedRange(place.index + 1, self._place.index, names, tuple(findings), tuple(remarks))

    def _begun(self, begins: dict[str, LogPlace | None], remarks: list[str]) -> LogPlace | None:
        """The place in front of the oldest entry that all have; None where there is none yet."""
        places: list[LogPlace] = []
        for name, begin in begins.items():
            if begin is None:
                self.held_up = f"{name} holds no entry"
                return None
            places.append(begin)
        place = max(places, key=lambda begin: begin.index)
        if self._place is not None:
            remarks.append(
                f"entries {self._place.index + 1:,} .. {place.index:,} have expired before they were compared"
            )
        else:
            self.begin_index, self.proved_index = place.index + 1, place.index
        self._place = place
        return place

    def _last_index(self, replicas: Sequence[Replica], place: LogPlace) -> int:
        """Up to where all know the commit."""
        slowest = min(replicas, key=lambda replica: replica.known_committed_index)
        furthest = max(replica.known_committed_index for replica in replicas)
        committed = slowest.known_committed_index
        self.held_up = ""
        if committed <= place.index < furthest:
            state = "" if slowest.is_live else ", and does not run"
            self.held_up = f"{slowest.name} knows no commit behind entry {committed:,}{state}"
        return min(committed, place.index + self._range_entries_max)

    def _differences(self, index_before: int, readings: Sequence[_Reading]) -> Iterator[Finding]:
        """Behind the first entry that is not the same everywhere the logs are different ones: those that stand against
        a majority take no part any more."""
        columns = [reading.digests for reading in readings]
        if all(column == columns[0] for column in columns):
            return
        for index, digests in enumerate(zip_longest(*columns), index_before + 1):
            sides: dict[int, list[str]] = {}
            for reading, digest in zip(readings, digests, strict=True):
                if digest is not None:
                    sides.setdefault(digest, []).append(reading.replica.name)
            if len(sides) < 2:
                continue
            ranked = sorted(sides.values(), key=lambda names: (-len(names), names))
            has_majority = len(ranked[0]) > len(ranked[1])
            odd = [name for names in ranked[has_majority:] for name in names]
            self._apart.update(odd)
            told = " against ".join(" and ".join(names) for names in ranked)
            yield Finding(
                kind=Kind.COMMITTED_DIVERGENCE,
                replica=odd[0] if len(odd) == 1 else "",
                first_index=index,
                last_index=index,
                sentence=f"entry {index} is committed and is not the same: {told}. "
                f"{' and '.join(odd)}: compared no more",
            )
            return

    def _new(self, findings: Iterator[Finding]) -> Iterator[Finding]:
        for finding in findings:
            key = finding.replica, finding.kind, finding.first_index
            if key not in self._named:
                self._named.add(key)
                yield finding


def _has(begin: LogPlace | None, place: LogPlace) -> bool:
    return begin is not None and begin.index <= place.index


def _read(replica: Replica, place: LogPlace, last_index: int) -> _Reading:
    """Raises OSError."""
    reading = _Reading(replica, place)
    try:
        for run in walk_from(replica, place, last_index):
            reading.digests += digests_of(run)
            reading.place = place_after(run)
    except LogBrokenError as error:
        reading.broken = error
    return reading


def _broken_findings(readings: Sequence[_Reading]) -> Iterator[Finding]:
    for reading in readings:
        if (broken := reading.broken) is not None:
            yield Finding(
                kind=broken.kind,
                replica=broken.replica,
                file=broken.file,
                first_index=broken.index,
                last_index=broken.index,
                sentence=f"entry {broken.index} is committed and not sound: {broken.reason}",
            )
