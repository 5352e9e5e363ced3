"""Replicas of one group against each other: the entries that are not the same everywhere, and who agrees with whom.

The sums of log_part.py say in which ranges replicas differ. Only these are read again, entry by entry, and each is
judged as a whole by whoever holds its entries of all replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dledger.entry import ENTRY_HEADER_SIZE
from verify.log.entry_scan import Run, scan, up_to
from verify.log.log_part import digest, digests_of, range_bits
from verify.replica_log import ReplicaLog
from verify.work import DataRange

_CHAIN_AT = slice(36, 40)


class Row(NamedTuple):
    """An entry of a range that is compared."""

    ordinal: int  # its index; in a CommitLog its position
    pos: int
    term: int
    digest: int
    content: int  # the digest without the chain's value, which every change before it changes


Rows = tuple[str, tuple[Row, ...]]  # of a replica


@dataclass(frozen=True, slots=True)
class Holding:
    """What a replica can be asked about: ordinals first .. last, those in `lost` apart."""

    replica: str
    first: int
    last: int
    end_pos: int
    lost: tuple[tuple[int, int], ...]
    disowned: frozenset[int]


@dataclass(frozen=True, slots=True)
class Reread:
    """A unit of pass 2: `keys` are the ranges that differ and have entries in it."""

    range: DataRange
    keys: frozenset[int]
    read_to: int | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """The last ordinal of a range at which a majority holds one entry of the newest term."""

    ordinal: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Ordinals first .. last at which the replicas stand as `sides` say; each side holds one and the same entry.

    The largest side first. `positions`, `terms`: of each side's entry at `first`.
    """

    first: int
    last: int
    count: int
    is_chain_only: bool  # they differ in the chain's value alone, as all do behind a change that was sealed
    sides: tuple[tuple[str, ...], ...]
    positions: tuple[int, ...]
    terms: tuple[int, ...]


def reread(unit: Reread) -> Iterator[tuple[int, Rows]]:
    """Of a file that is gone, nothing: retention took it while the validation ran. Raises OSError."""
    bits = range_bits(unit.range.replica.layout)
    try:
        for run in scan(unit.range):
            cut = up_to(run, unit.read_to) if isinstance(run, Run) else None
            if cut is not None:
                yield from _rows(cut, unit.range.replica.name, unit.keys, bits)
    except FileNotFoundError:
        return


def _rows(run: Run, replica: str, keys: frozenset[int], bits: int) -> Iterator[tuple[int, Rows]]:
    shift = run.first_pos - run.offsets[0]
    is_entry = run.record_shift > 0
    ordinals: Sequence[int] = (
        range(run.first_index, run.last_index + 1) if is_entry else [offset + shift for offset in run.offsets]
    )
    if not any(ordinals[0] >> bits <= key <= ordinals[-1] >> bits for key in keys):
        return
    by_key: dict[int, list[Row]] = {}
    digests, ends = digests_of(run), run.ends
    for number, ordinal in enumerate(ordinals):
        if (key := ordinal >> bits) in keys:
            start = run.offsets[number]
            content = digests[number]
            if is_entry:
                header = bytearray(run.buffer[start : start + ENTRY_HEADER_SIZE])
                header[_CHAIN_AT] = bytes(4)
                content = digest(bytes(header) + run.buffer[start + ENTRY_HEADER_SIZE : ends[number]])
            term = run.terms[number] if is_entry else 0
            by_key.setdefault(key, []).append(Row(ordinal, start + shift, term, digests[number], content))
    for key, rows in by_key.items():
        yield key, (replica, tuple(rows))


@dataclass(frozen=True, slots=True)
class RangeJudge:
    """Judges one range, called with the rows of all replicas in it. Pickles."""

    holdings: tuple[Holding, ...]
    bits: int
    newest_term: int

    def __call__(self, key: int, values: list[Rows]) -> Iterator[Agreement | Difference]:
        rows = self._chosen(values)
        majority = len(self.holdings) // 2 + 1
        agreed = -1
        open_difference: Difference | None = None
        start, end = key << self.bits, (key + 1 << self.bits) - 1
        lost = {
            holding.replica: [(first, last) for first, last in holding.lost if first <= end and last >= start]
            for holding in self.holdings
        }
        for ordinal in sorted(set().union(*(of_replica.keys() for of_replica in rows.values()))):
            held = {
                holding.replica: rows[holding.replica].get(ordinal)
                for holding in self.holdings
                if holding.first <= ordinal <= holding.last and not _is_in(ordinal, lost[holding.replica])
            }
            sides: dict[int, list[str]] = {}
            for name, row in held.items():
                sides.setdefault(row.digest if row is not None else -1, []).append(name)
            ranked = sorted(sides.values(), key=lambda names: (-len(names), names))
            first_row = held[ranked[0][0]] if ranked else None
            if first_row is not None and len(ranked[0]) >= majority and first_row.term == self.newest_term:
                agreed = ordinal
            if len(ranked) < 2:
                if open_difference is not None:
                    yield open_difference
                    open_difference = None
                continue
            difference = self._difference(ordinal, ranked, held)
            if open_difference is not None and is_same(open_difference, difference):
                open_difference = join(open_difference, difference)
            else:
                if open_difference is not None:
                    yield open_difference
                open_difference = difference
        if open_difference is not None:
            yield open_difference
        if agreed >= 0:
            yield Agreement(agreed)

    def _chosen(self, values: Iterable[Rows]) -> dict[str, dict[int, Row]]:
        """One row per replica and ordinal. Where an index is there twice: the row that most others have too."""
        holdings = {holding.replica: holding for holding in self.holdings}
        listed: dict[str, dict[int, list[Row]]] = {name: {} for name in holdings}
        common: Counter[tuple[int, int]] = Counter()
        for name, rows in values:
            for row in rows:
                if row.pos in holdings[name].disowned or row.pos >= holdings[name].end_pos:
                    continue
                listed[name].setdefault(row.ordinal, []).append(row)
                common[row.ordinal, row.digest] += 1
        return {
            name: {
                ordinal: max(rows, key=lambda row: (common[row.ordinal, row.digest], -row.pos))
                for ordinal, rows in by_ordinal.items()
            }
            for name, by_ordinal in listed.items()
        }

    def _difference(
        self, ordinal: int, ranked: list[list[str]], held: Mapping[str, Row | None]
    ) -> Difference:
        firsts = [held[names[0]] for names in ranked]
        contents = {row.content if row is not None else -1 for row in firsts}
        return Difference(
            first=ordinal,
            last=ordinal,
            count=1,
            is_chain_only=len(contents) == 1,
            sides=tuple(tuple(names) for names in ranked),
            positions=tuple(row.pos if row is not None else -1 for row in firsts),
            terms=tuple(row.term if row is not None else -1 for row in firsts),
        )


def is_same(one: Difference, other: Difference) -> bool:
    """Whether `other` differs as `one` does, with the same sides."""
    return one.sides == other.sides and one.is_chain_only is other.is_chain_only


def join(one: Difference, other: Difference) -> Difference:
    """`other` follows `one`, and is_same()."""
    return replace(one, last=other.last, count=one.count + other.count)


def holding_of(log: ReplicaLog) -> Holding:
    return Holding(
        log.replica.name,
        log.first_ordinal,
        log.last_ordinal,
        log.end_pos,
        tuple(sorted(log.lost)),
        frozenset(log.disowned),
    )


class SumTable:
    """The sums of all replicas by range of ordinals, and which of them differ."""

    def __init__(self, holdings: Sequence[Holding], bits: int) -> None:
        self._holdings = holdings
        self._bits = bits
        self._sums: dict[str, dict[int, tuple[int, int]]] = {holding.replica: {} for holding in holdings}

    def add(self, replica: str, sums: Mapping[int, tuple[int, int]]) -> None:
        of_replica = self._sums[replica]
        for key, (total, count) in sums.items():
            before, counted = of_replica.get(key, (0, 0))
            of_replica[key] = (before + total) % (1 << 128), counted + count

    def differing(self) -> frozenset[int]:
        """Ranges that not all replicas that reach into them hold alike."""
        keys = set().union(*self._sums.values())
        return frozenset(
            key for key in keys if len({self._sum(name, key) for name in self._holders(key)}) > 1
        )

    def last_equal(self, logs: Mapping[str, ReplicaLog], newest_term: int) -> int:
        """The last ordinal of a range that a majority holds, all alike, with an entry of the newest term at its end;
        -1: there is none."""
        differing = self.differing()
        for key in sorted(set().union(*self._sums.values()) - differing, reverse=True):
            holders = self._holders(key)
            if len(holders) > len(self._holdings) // 2:
                last = min((key + 1 << self._bits) - 1, logs[holders[0]].last_ordinal)
                if logs[holders[0]].term_at(last) == newest_term:
                    return last
        return -1

    def _sum(self, replica: str, key: int) -> tuple[int, int]:
        return self._sums[replica].get(key, (0, 0))

    def _holders(self, key: int) -> list[str]:
        start, end = key << self._bits, (key + 1 << self._bits) - 1
        return [
            holding.replica for holding in self._holdings if holding.first <= end and holding.last >= start
        ]


def _is_in(ordinal: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= ordinal <= last for first, last in ranges)
