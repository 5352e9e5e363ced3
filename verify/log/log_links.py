"""How the segments of a log follow each other: indexes, terms, the chain; and which entry is to blame where they do
not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dledger.entry import GENESIS_CHAIN, chain_after, parse_header
from verify.findings import Finding, Kind
from verify.log.log_end import segment_before
from verify.log.log_part import Segment, is_chained
from verify.replica_log import ReplicaLog

_INDEX_AT: Final = 8
_WORDS: Final = {
    Kind.CHAIN_CRC: "the entry does not follow from the one before it: chain",
    Kind.DAMAGED_HEADER: "the header is not the one that was written:",
    Kind.NON_MONOTONIC_TERM: "terms never fall in a log:",
    Kind.GAP: "entries are missing:",
    Kind.DUPLICATE_INDEX: "indexes are there twice:",
    Kind.ORDER: "entries are not in the order of their indexes:",
}


class LinkJudge:
    """Is shown each segment once, in order of position; its findings go to `log`."""

    def __init__(self, log: ReplicaLog, segments: Sequence[Segment]) -> None:
        self._log = log
        self._all = segments
        self._before: list[Segment] = []
        self._named: set[int] = set()  # positions of entries that have their finding
        # First positions of segments whose link to the one before is accounted for.
        self._explained: set[int] = set()

    def judge(
        self, before: Segment | None, after: Segment, following: Segment | None, *, is_adjacent: bool
    ) -> None:
        """`following`: the segment behind `after` if nothing but a blank is between them; `is_adjacent`: likewise for
        the one before."""
        self._before.append(after)
        if after.said_index >= 0:
            self._name_index(after)
        if not after.first_header or after.first_pos in self._explained:
            return
        if not is_adjacent:
            # Entries between are lost; the terms can still be compared.
            if before is not None and after.first_index <= before.last_index:
                self._judge_indexes(before, after)
            elif before is not None and after.first_term < before.last_term:
                self._non_monotonic(before, after)
            return
        if before is None:
            before = self._virtual_start(after)
            if before is None:
                return
        is_alone = after.count == 1
        if after.first_index != before.last_index + 1:
            if is_alone and self._lies_about_index(before, after, following):
                after.right_index(before.last_index + 1)
                self._name_index(after)
            else:
                self._judge_indexes(before, after)
                if after.first_term < before.last_term:
                    self._non_monotonic(before, after)
            return
        if after.first_term < before.last_term:
            self._non_monotonic(before, after)
            return
        if is_chained(before.last_header, after.first_header):
            return
        if parse_header(before.last_header).pos in self._named:
            return  # it was changed, and what follows it goes on from what it was
        self._judge_chain(before, after, following if is_alone else None)

    def _judge_chain(self, before: Segment, after: Segment, following: Segment | None) -> None:
        """`following` if `after` is a single entry."""
        first = after.first_index
        if not after.has_crcs:
            reason = "its CRC fields are 0, those of the entry before are not"
            self._name(Kind.CHAIN_CRC, after.first_pos, first, after.last_index, reason)
            return
        stored = parse_header(after.first_header)
        computed = chain_after(after.first_header, parse_header(before.last_header).chain_crc)
        reason = f"{stored.chain_crc & 0xFFFFFFFF:#010x} stored, {computed & 0xFFFFFFFF:#010x} computed"
        if following is not None and following.has_crcs and following.first_index == first + 1:
            next_header = parse_header(following.first_header)
            if next_header.term < stored.term and next_header.term >= before.last_term:
                reason = f"term {stored.term} between terms {before.last_term} and {next_header.term}"
                self._name_entry(Kind.NON_MONOTONIC_TERM, after.first_header, first, reason)
                self._explained.add(following.first_pos)
                return
            if chain_after(following.first_header, computed) == next_header.chain_crc:
                # The next entry goes on over the value that should be here.
                self._explained.add(following.first_pos)
        self._name_entry(Kind.CHAIN_CRC, after.first_header, first, reason)

    def _lies_about_index(self, before: Segment, after: Segment, following: Segment | None) -> bool:
        expected = before.last_index + 1
        if after.has_crcs and before.has_crcs:
            header = after.first_header
            righted = header[:_INDEX_AT] + expected.to_bytes(8, "big") + header[_INDEX_AT + 8 :]
            chain = parse_header(before.last_header).chain_crc
            if chain_after(righted, chain) == parse_header(header).chain_crc:
                return True
            if is_chained(before.last_header, header):
                return False  # whoever wrote it meant it
        return following is None or following.first_index == expected + 1

    def _judge_indexes(self, before: Segment, after: Segment) -> None:
        first, expected = after.first_index, before.last_index + 1
        reason = f"entry {first} follows entry {before.last_index}"
        if first > expected:
            for start, end in _not_covered(expected, first - 1, self._all):
                self._name(Kind.GAP, after.first_pos, start, end, reason)
            return
        twice = [
            (max(first, other.first_index), min(after.last_index, other.last_index))
            for other in self._before[:-1]
            if other.first_index <= after.last_index and other.last_index >= first
        ]
        if twice:
            start, end = min(start for start, _ in twice), max(end for _, end in twice)
            self._name(Kind.DUPLICATE_INDEX, after.first_pos, start, end, reason)
        else:
            self._name(Kind.ORDER, after.first_pos, first, after.last_index, reason)

    def _non_monotonic(self, before: Segment, after: Segment) -> None:
        """Names the entries of the higher term or those of the lower one: the fewer, for the others need no excuse."""
        low, high = after.first_term, before.last_term
        low_last = next((index - 1 for term, index in after.term_begins if term >= high), after.last_index)
        high_first = before.term_begins[-1][1]
        high_count, low_count = before.last_index - high_first + 1, low_last - after.first_index + 1
        term_before = self._term_before_last_of(before)
        is_alone = high_count == 1 and not (before.has_crcs and before.count > 1)  # no chain vouches for it
        if term_before is not None and term_before <= low and (is_alone or high_count < low_count):
            first, last, raw_header = high_first, before.last_index, before.last_header
            reason = f"term {high} between terms {term_before} and {low}"
        else:
            first, last, raw_header = after.first_index, low_last, after.first_header
            reason = f"term {low} after term {high}"
        if first == last:
            self._name_entry(Kind.NON_MONOTONIC_TERM, raw_header, last, reason)
        else:
            pos = after.first_pos if first == after.first_index else parse_header(raw_header).pos
            self._name(Kind.NON_MONOTONIC_TERM, pos, first, last, reason)

    def _term_before_last_of(self, segment: Segment) -> int | None:
        """The term before that of the segment's last entry; None where no entry with one is known."""
        if len(segment.term_begins) > 1:
            return segment.term_begins[-2][0]
        before = [other for other in self._before[-3:] if other.next_pos <= segment.first_pos]
        return before[-1].last_term if before else None

    def _virtual_start(self, after: Segment) -> Segment | None:
        """The entry before the log's first one, where something says what it was."""
        replica, mark = self._log.replica, self._log.replica.mark
        if replica.begin_pos == 0:
            index, term, chain = -1, -1, GENESIS_CHAIN
        elif mark is not None and mark.before_begin_index == after.first_index - 1:
            index, term, chain = mark.before_begin_index, mark.before_begin_term, mark.before_begin_chain
        else:
            return None
        return segment_before(index, term, chain, has_crcs=after.has_crcs)

    def _name_index(self, segment: Segment) -> None:
        reason = f"it says index {segment.said_index}"
        self._name_entry(Kind.DAMAGED_HEADER, segment.first_header, segment.first_index, reason)
        self._log.disowned.add(segment.first_pos)

    def _name_entry(self, kind: Kind, raw_header: bytes, index: int, reason: str) -> None:
        """Of one entry whose header was changed: what is in it is not to be believed."""
        header = parse_header(raw_header)
        if header.pos in self._named:
            return
        self._named.add(header.pos)
        self._name(kind, header.pos, index, index, reason)
        self._log.damaged.append((header.pos, header.pos + header.size))

    def _name(self, kind: Kind, pos: int, first: int, last: int, reason: str) -> None:
        """A finding about entries that can be read; they take no part in the comparison."""
        self._log.findings.append(
            Finding(
                kind=kind,
                replica=self._log.replica.name,
                file=self._log.file_of(pos),
                first_index=first,
                last_index=last,
                count=last - first + 1,
                sentence=f"{_WORDS[kind]} {reason} at position {pos}",
            )
        )
        if kind is not Kind.DUPLICATE_INDEX:
            self._log.lost.append((first, last))


def _not_covered(first: int, last: int, segments: Sequence[Segment]) -> Iterator[tuple[int, int]]:
    """Which of the indexes are in no segment."""
    for segment in sorted(segments, key=lambda segment: segment.first_index):
        if segment.last_index < first or segment.first_index > last:
            continue
        if segment.first_index > first:
            yield first, segment.first_index - 1
        first = segment.last_index + 1
    if first <= last:
        yield first, last
