"""What one unit of work tells about the log: where its entries are, how they follow each other, what they add up to.

Small whatever the log holds: the entries stay where they were read. The driver puts the parts of a replica together
(log_layout.py) and compares replicas by their sums (compare.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import mmh3

from dledger.entry import ENTRY_HEADER_SIZE, EntryKind, chain_after, parse_header
from message.decoder import decode_message
from message.errors import MessageDecodeError
from verify.log.data_file import Layout
from verify.log.entry_scan import Rest, Run, is_javas
from verify.work import DataRange

_RANGE_BITS: Final = 10  # entries of one digest: 1,024
_POSITION_RANGE_BITS: Final = 20  # of a CommitLog, which has no indexes: those that begin in one MiB
SUM_MASK: Final = (1 << 128) - 1


def digest(data: bytes | memoryview) -> int:
    """128 bits of an entry as it lies."""
    return int(mmh3.mmh3_x64_128_uintdigest(data))


def range_bits(layout: Layout) -> int:
    """Ordinals (indexes, or positions in a CommitLog) shifted right by so many say to which range they belong."""
    return _RANGE_BITS if layout is Layout.DLEDGER else _POSITION_RANGE_BITS


@dataclass(slots=True)
class Segment:
    """Sound entries one behind the other, each linked to the one before it, over any number of windows and units."""

    first_pos: int
    next_pos: int
    first_index: int  # -1 in a CommitLog
    last_index: int
    count: int
    first_header: bytes
    last_header: bytes
    has_crcs: bool
    message_count: int
    term_begins: list[tuple[int, int]]  # (term, its first index here), both rising
    leader_hosts: dict[int, str]  # by term, as its no-op says
    said_index: int = -1  # of a single entry that says another index than the one that it must have

    @property
    def last_term(self) -> int:
        return self.term_begins[-1][0] if self.term_begins else -1

    @property
    def first_term(self) -> int:
        return self.term_begins[0][0] if self.term_begins else -1

    def goes_on_with(self, other: Segment) -> bool:
        """Whether `other` is the next part of this one."""
        return other.first_pos == self.next_pos and self.has_crcs is other.has_crcs and is_linked(self, other)

    def right_index(self, index: int) -> None:
        """It has one entry, and this is its index whatever it says."""
        self.said_index = self.first_index
        self.first_index = self.last_index = index
        self.term_begins = [(self.first_term, index)]

    def take(self, other: Segment) -> None:
        """`other` goes on where this one ends."""
        self.next_pos, self.last_index, self.last_header = other.next_pos, other.last_index, other.last_header
        self.count += other.count
        self.message_count += other.message_count
        self.term_begins += [begin for begin in other.term_begins if begin[0] != self.last_term]
        self.leader_hosts = other.leader_hosts | self.leader_hosts


@dataclass(slots=True)
class LogPart:
    """Of one unit. `sums`: by range of ordinals, the sum of the digests of its entries here, and their number.

    `is_gone`: the file was there when the validation began, and is no longer.
    """

    replica: str
    file_base: int
    segments: list[Segment] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)
    sums: dict[int, tuple[int, int]] = field(default_factory=dict)
    bytes_read: int = 0
    is_gone: bool = False


def is_linked(before: Segment, after: Segment) -> bool:
    """Index, term and chain of `after` are those of the entry behind `before`."""
    if not after.first_header:
        return True  # records of a CommitLog know nothing of each other
    return (
        after.first_index == before.last_index + 1
        and after.first_term >= before.last_term
        and is_chained(before.last_header, after.first_header)
    )


def is_chained(before: bytes, after: bytes) -> bool:
    """Of two headers. What follows an entry without CRCs cannot be told from headers, and is believed."""
    last = parse_header(before)
    first = parse_header(after)
    if is_javas(last):
        return True
    return not is_javas(first) and chain_after(after, last.chain_crc) == first.chain_crc


class LogPartMaker:
    """A consumer of pass 1: Runs and Rests of one unit in, its LogPart out."""

    def __init__(self, unit: DataRange) -> None:
        self._part = LogPart(unit.replica.name, unit.file.base, bytes_read=unit.end - unit.start)
        self._range_bits = range_bits(unit.replica.layout)

    def feed(self, run: Run) -> None:
        segment = _segment_of(run)
        segments = self._part.segments
        if segments and segments[-1].goes_on_with(segment):
            segments[-1].take(segment)
        else:
            segments.append(segment)
        self._add_digests(run)

    def rest(self, rest: Rest) -> None:
        self._part.rests.append(rest)

    def finish(self) -> Iterator[LogPart]:
        yield self._part

    def _add_digests(self, run: Run) -> None:
        digests = digests_of(run)
        sums, bits = self._part.sums, self._range_bits
        done = 0
        while done < len(digests):
            if run.record_shift:
                key = (run.first_index + done) >> bits
                stop = min(((key + 1) << bits) - run.first_index, len(digests))
            else:
                shift = run.first_pos - run.offsets[0]
                key = (run.offsets[done] + shift) >> bits
                stop = done + 1
                while stop < len(digests) and (run.offsets[stop] + shift) >> bits == key:
                    stop += 1
            total, count = sums.get(key, (0, 0))
            sums[key] = (total + sum(digests[done:stop])) & SUM_MASK, count + stop - done
            done = stop


def digests_of(run: Run) -> list[int]:
    """Of each entry, header included."""
    view, hash_of = memoryview(run.buffer), mmh3.mmh3_x64_128_uintdigest
    return [hash_of(view[start:end]) for start, end in zip(run.offsets, run.ends, strict=True)]


def digest_sum(run: Run, before: int = 0) -> int:
    """Of the entries of a run and those whose sum is `before`: the same however a range is cut into runs."""
    return (before + sum(digests_of(run))) & SUM_MASK


def _segment_of(run: Run) -> Segment:
    terms = run.terms
    term_begins: list[tuple[int, int]] = []
    if terms:
        term_begins.append((terms[0], run.first_index))
        if terms[-1] != terms[0]:
            for index, term in enumerate(terms, run.first_index):
                if term != term_begins[-1][0]:
                    term_begins.append((term, index))
    return Segment(
        first_pos=run.first_pos,
        next_pos=run.next_pos,
        first_index=run.first_index,
        last_index=run.last_index,
        count=run.count,
        first_header=run.first_header if run.record_shift else b"",
        last_header=run.last_header if run.record_shift else b"",
        has_crcs=run.has_crcs,
        message_count=run.kinds.count(EntryKind.MESSAGE) if run.record_shift else run.count,
        term_begins=term_begins,
        leader_hosts=_leader_hosts(run) if EntryKind.NO_OP in run.kinds else {},
    )


def _leader_hosts(run: Run) -> dict[int, str]:
    hosts: dict[int, str] = {}
    for number, kind in enumerate(run.kinds):
        if kind == EntryKind.NO_OP:
            try:
                record = decode_message(run.buffer, run.offsets[number] + ENTRY_HEADER_SIZE, read_body=False)
            except MessageDecodeError:
                continue  # no record of ours: whoever wrote it does not say where he was
            hosts.setdefault(run.terms[number], record.store_host)
    return hosts
