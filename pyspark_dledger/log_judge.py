"""What is wrong with the log of one replica, seen as a whole: its segments, the links between them, its holes, its end.

Names each fault once, at the entry that has it. What another fault explains is not a finding of its own: an entry that
cannot be read leaves no gap in the indexes and breaks no chain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dledger.entry import ENTRY_HEADER, ENTRY_HEADER_SIZE, GENESIS_CHAIN, chain_after, parse_header
from pyspark_dledger.entry_faults import Examined, Fault
from pyspark_dledger.findings import Finding, Kind
from pyspark_dledger.log_layout import Hole, LogLine, neighbours
from pyspark_dledger.log_part import Segment, is_chained, is_linked
from pyspark_dledger.replica import Layout, Replica
from pyspark_dledger.validation_report import DamagedRange, TermRun

_INDEX_AT: Final = 8
# What a crash can leave where entries were being written; a missing file is none of it.
_TORN_KINDS: Final = (Kind.BODY_CRC, Kind.DAMAGED_HEADER, Kind.WRONG_POS, Kind.BAD_BLANK)
_SAYS: Final = {
    Kind.BODY_CRC: "body is not the one that was written",
    Kind.DAMAGED_HEADER: "header is no entry's",
    Kind.WRONG_POS: "header says another position than its own",
}


@dataclass(slots=True)
class ReplicaLog:
    """The verdict, and what the comparison with other replicas needs to know.

    `lost`: ordinals (indexes; positions in a CommitLog), inclusive, of entries that a finding already names: they take
    no part in the comparison. `disowned`: positions of entries that say the index of another one. `damaged`: byte
    ranges that should be entries and are none.
    """

    replica: Replica
    begin_index: int = 0
    end_index: int = -1
    begin_pos: int = 0
    end_pos: int = 0
    chain_crc: int = 0
    entry_count: int = 0
    message_count: int = 0
    bytes_read: int = 0
    term_runs: list[TermRun] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    disowned: set[int] = field(default_factory=set)
    damaged: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_ordered_by_index(self) -> bool:
        return self.replica.layout is Layout.DLEDGER

    @property
    def first_ordinal(self) -> int:
        return self.begin_index if self.is_ordered_by_index else self.begin_pos

    @property
    def last_ordinal(self) -> int:
        return self.end_index if self.is_ordered_by_index else self.end_pos - 1

    @property
    def end_term(self) -> int:
        return self.term_runs[-1].term if self.term_runs else -1

    def term_at(self, index: int) -> int:
        number = bisect_right(self.term_runs, index, key=lambda run: run.first_index) - 1
        return self.term_runs[number].term if number >= 0 else -1

    @property
    def damaged_ranges(self) -> tuple[DamagedRange, ...]:
        return tuple(
            DamagedRange(finding.first_index, finding.last_index, str(finding.kind))
            for finding in self.findings
            if finding.first_index is not None and finding.last_index is not None
        )


def judge_log(line: LogLine, examined: Sequence[Examined], *, read_to: int | None = None) -> ReplicaLog:
    """`read_to`: entries behind this index were not read (a live replica); None: all were."""
    return _Judge(line, {found.pos: found for found in examined}, read_to).judge()


def durable_index(replica: Replica) -> int:
    """What the replica's own small files say is surely in its log."""
    mark_index = replica.mark.index if replica.mark is not None else -1
    java_end = replica.java_end_index if replica.stopped_cleanly else -1
    return max(mark_index, replica.applied_index, replica.java_committed_index, java_end)


class _Judge:
    def __init__(self, line: LogLine, examined: Mapping[int, Examined], read_to: int | None) -> None:
        self._line = line
        self._replica = line.replica
        self._examined = examined
        self._read_to = read_to
        self._log = ReplicaLog(line.replica, bytes_read=line.bytes_read)
        self._segments: list[Segment] = []
        self._tail_is_damaged = False
        self._explained: set[int] = (
            set()
        )  # first positions of segments whose link to the one before is accounted for

    def judge(self) -> ReplicaLog:
        self._line.items[:] = self._joined_over_blanks()
        steps = self._without_stale(list(neighbours(self._line)))
        for number, (before, holes, after) in enumerate(steps):
            if after is None:
                self._judge_tail(before, holes)
                break
            if not self._judge_holes(before, holes, after):
                break  # the log was torn here: what lies behind does not count
            following = steps[number + 1] if number + 1 < len(steps) else (None, [], None)
            next_segment = following[2] if self._are_blanks(following[1]) else None
            self._judge_link(before, holes, after, next_segment)
            self._segments.append(after)
        self._summarize()
        self._judge_marks()
        self._log.findings = list(_grouped(self._log.findings))
        return self._log

    def _joined_over_blanks(self) -> list[Segment | Hole]:
        """A blank between entries that follow each other is nothing to speak of."""
        items: list[Segment | Hole] = []
        for item in self._line.items:
            if isinstance(item, Segment) and len(items) > 1 and isinstance(items[-1], Hole):
                before, hole = items[-2], items[-1]
                if (
                    isinstance(before, Segment)
                    and self._is_blank(hole)
                    and before.has_crcs is item.has_crcs
                    and is_linked(before, item)
                ):
                    before.take(item)
                    items.pop()
                    continue
            items.append(item)
        return items

    # -- links -------------------------------------------------------------------------------------------------

    def _judge_link(
        self, before: Segment | None, holes: Sequence[Hole], after: Segment, following: Segment | None
    ) -> None:
        if not after.first_header or after.first_pos in self._explained:
            return
        if not self._are_blanks(holes):
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
                index = before.last_index + 1
                reason = f"it says index {after.first_index}"
                self._name(Kind.DAMAGED_HEADER, after.first_pos, index, index, reason)
                self._log.disowned.add(after.first_pos)
                if following is not None:
                    self._explained.add(following.first_pos)
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
                self._name(Kind.NON_MONOTONIC_TERM, after.first_pos, first, first, reason)
                self._explained.add(following.first_pos)
                return
            if chain_after(following.first_header, computed) == next_header.chain_crc:
                # The next entry goes on over the value that should be here.
                self._explained.add(following.first_pos)
        self._name(Kind.CHAIN_CRC, after.first_pos, first, first, reason)

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
        if first > expected:
            for start, end in _not_covered(expected, first - 1, self._line.segments):
                reason = f"entry {first} follows entry {before.last_index}"
                self._name(Kind.GAP, after.first_pos, start, end, reason)
            return
        twice = [
            (max(first, other.first_index), min(after.last_index, other.last_index))
            for other in self._segments
            if other.first_index <= after.last_index and other.last_index >= first
        ]
        if twice:
            start, end = min(start for start, _ in twice), max(end for _, end in twice)
            reason = f"entry {first} follows entry {before.last_index}"
            self._name(Kind.DUPLICATE_INDEX, after.first_pos, start, end, reason)
        else:
            reason = f"entry {first} follows entry {before.last_index}"
            self._name(Kind.ORDER, after.first_pos, first, after.last_index, reason)

    def _non_monotonic(self, before: Segment, after: Segment) -> None:
        low = after.first_term
        if (
            not before.has_crcs
            and len(before.term_begins) > 1
            and before.term_begins[-1][1] == before.last_index
            and before.term_begins[-2][0] <= low
        ):
            # Without a chain: the single entry that stands out.
            index, pos = before.last_index, parse_header(before.last_header).pos
            reason = f"term {before.last_term} between terms {before.term_begins[-2][0]} and {low}"
            self._name(Kind.NON_MONOTONIC_TERM, pos, index, index, reason)
            return
        last = next(
            (index - 1 for term, index in after.term_begins if term >= before.last_term), after.last_index
        )
        reason = f"term {low} after term {before.last_term}"
        self._name(Kind.NON_MONOTONIC_TERM, after.first_pos, after.first_index, last, reason)

    def _virtual_start(self, after: Segment) -> Segment | None:
        """The entry before the log's first one, where something says what it was."""
        replica, mark = self._replica, self._replica.mark
        if replica.begin_pos == 0:
            index, term, chain = -1, -1, GENESIS_CHAIN
        elif mark is not None and mark.before_begin_index == after.first_index - 1:
            index, term, chain = mark.before_begin_index, mark.before_begin_term, mark.before_begin_chain
        else:
            return None
        crc = 1 if after.has_crcs else 0
        header = ENTRY_HEADER.pack(1, ENTRY_HEADER_SIZE, index, term, 0, 0, chain, crc, 0)
        begins = [(term, index)]
        return Segment(0, 0, index, index, 1, header, header, after.has_crcs, 0, begins, {})

    # -- holes -------------------------------------------------------------------------------------------------

    def _is_blank(self, hole: Hole) -> bool:
        examined = self._examined.get(hole.pos)
        return examined is not None and not examined.faults and examined.blank_pos == hole.pos

    def _are_blanks(self, holes: Sequence[Hole]) -> bool:
        return all(self._is_blank(hole) for hole in holes)

    def _judge_holes(self, before: Segment | None, holes: Sequence[Hole], after: Segment) -> bool:
        """False: the log ends here."""
        if self._are_blanks(holes):
            return True
        is_by_index = bool(after.first_header)
        first = before.last_index + 1 if before is not None else 0 if self._replica.begin_pos == 0 else -1
        last = after.first_index - 1
        if not is_by_index:
            first = last = -1
        faults = list(_filled(self._faults(holes, is_lossless=is_by_index and first > last), first, last))
        durable = durable_index(self._replica)
        torn = next((fault for fault in faults if self._is_torn(fault, durable)), None)
        if torn is not None and durable >= 0:
            self._torn(torn.pos, self._line.items[-1].end_pos, torn.first_index) if isinstance(
                self._line.items[-1], Hole
            ) else self._torn(torn.pos, self._line.items[-1].next_pos, torn.first_index)
            return False
        for fault in faults:
            self._report(fault)
        if is_by_index and 0 <= first <= last:
            self._log.lost.append((first, last))
        if not is_by_index:
            self._log.lost += [(fault.pos, fault.end_pos - 1) for fault in faults]
        return True

    def _faults(self, holes: Sequence[Hole], *, is_lossless: bool) -> Iterator[Fault]:
        """`is_lossless`: no entry is missing between the segments around."""
        for number, hole in enumerate(holes):
            examined = self._examined.get(hole.pos)
            following = holes[number + 1] if number + 1 < len(holes) else None
            is_cut = following is not None and following.short_file is not None
            if hole.file is None:
                if hole.short_file is None:
                    kind_of = "the file of this position is not there"
                    yield Fault(Kind.MISSING_FILE, hole.pos, hole.end_pos, -1, -1, kind_of)
                else:
                    size = hole.short_file.size
                    reason = f"the file ends at byte {size}, it should have {self._replica.data_file_size}"
                    start = (
                        holes[number - 1].pos
                        if number and not self._is_blank(holes[number - 1])
                        else hole.pos
                    )
                    yield Fault(Kind.MISSING_FILE, start, hole.end_pos, -1, -1, reason)
            elif examined is not None:
                # The entry that a file's early end cuts is part of what is missing.
                yield from examined.faults[:-1] if is_cut else examined.faults
            elif hole.is_zero and not is_cut:
                kind = Kind.DAMAGED_HEADER
                if is_lossless and hole.end_pos == hole.file.base + hole.file.size:
                    kind = Kind.BAD_BLANK
                size = hole.end_pos - hole.pos
                yield Fault(kind, hole.pos, hole.end_pos, -1, -1, f"{size} bytes are zero")

    def _judge_tail(self, before: Segment | None, holes: Sequence[Hole]) -> None:
        if self._read_to is not None and (before is None or before.last_index >= self._read_to):
            return
        if self._replica.is_live and self._replica.layout is Layout.COMMIT_LOG:
            return
        faults: list[Fault] = []
        for number, hole in enumerate(holes):
            examined = self._examined.get(hole.pos)
            if examined is not None and not self._is_blank(hole):
                faults += examined.faults
            elif hole.short_file is not None:
                faults += list(self._faults(holes[max(number - 1, 0) : number + 1], is_lossless=True))
            if hole.file is None and hole.short_file is None:
                # Files behind a missing one with nothing in them.
                faults += list(self._faults([hole], is_lossless=True))
        expected = before.last_index + 1 if before is not None else 0
        if before is not None and before.last_index < 0:
            expected = -1
        durable = durable_index(self._replica)
        for fault in _filled(faults, expected, -1):
            if self._read_to is not None and fault.first_index > self._read_to:
                continue
            if self._is_torn(fault, durable):
                self._torn(fault.pos, fault.end_pos, fault.first_index)
                return
            self._report(fault)
            if fault.kind in _TORN_KINDS and fault.kind is not Kind.BAD_BLANK:
                self._tail_is_damaged = True
                if fault.first_index >= 0:
                    self._log.lost.append((fault.first_index, max(fault.first_index, fault.last_index)))
                if before is not None and before.last_index < 0:
                    self._log.lost.append((fault.pos, fault.end_pos - 1))

    def _is_torn(self, fault: Fault, durable: int) -> bool:
        """What a crash leaves: above all that the replica itself says was durable."""
        return (
            not self._replica.stopped_cleanly
            and fault.kind in _TORN_KINDS
            and (fault.first_index < 0 or fault.first_index > durable)
        )

    def _torn(self, pos: int, end_pos: int, first_index: int) -> None:
        known = first_index if first_index >= 0 else None
        sentence = (
            f"The log ends at position {pos}; {end_pos - pos} bytes of a write that a crash cut off follow. "
            "The member cuts them when it starts."
        )
        self._log.findings.append(
            Finding(
                kind=Kind.TORN_TAIL,
                replica=self._replica.name,
                file=self._file_of(pos),
                first_index=known,
                last_index=known,
                sentence=sentence,
            )
        )
        self._log.damaged.append((pos, 2**63 - 1))

    def _without_stale(
        self, steps: list[tuple[Segment | None, list[Hole], Segment | None]]
    ) -> list[tuple[Segment | None, list[Hole], Segment | None]]:
        """Drops segments behind the end that cannot go on with the log: an earlier log's."""
        while len(steps) > 1:
            before, holes, after = steps[-2]
            if before is None or after is None or not after.first_header or self._are_blanks(holes):
                break
            is_older = after.first_term < before.last_term or after.first_index <= before.last_index
            if not is_older or any(hole.file is None for hole in holes):
                break
            reason = f"the log ends at {before.next_pos}, and an entry {after.first_index} of term {after.first_term}"
            self._report(
                Fault(
                    Kind.STALE_BYTES,
                    after.first_pos,
                    after.next_pos,
                    -1,
                    -1,
                    f"{reason} lies here",
                )
            )
            steps = [*steps[:-2], (before, [], None)]
        return steps

    # -- findings ----------------------------------------------------------------------------------------------

    def _report(self, fault: Fault) -> None:
        first = fault.first_index if fault.first_index >= 0 else None
        last = fault.last_index if fault.last_index >= 0 else first
        count = last - first + 1 if first is not None and last is not None else 1
        self._log.findings.append(
            Finding(
                kind=fault.kind,
                replica=self._replica.name,
                file=self._file_of(fault.pos),
                first_index=first if first is not None else last,
                last_index=last,
                count=max(count, 1),
                sentence=self._sentence(fault),
            )
        )
        if fault.kind not in (Kind.BAD_BLANK, Kind.STALE_BYTES):
            self._log.damaged.append((fault.pos, fault.end_pos))

    def _sentence(self, fault: Fault) -> str:
        if fault.kind in _SAYS:
            return f"At position {fault.pos} the {_SAYS[fault.kind]}: {fault.reason}."
        if fault.kind is Kind.BAD_BLANK:
            return f"The file's rest from position {fault.pos} on is no exact blank: {fault.reason}."
        if fault.kind is Kind.WRONG_FILE_BASE:
            return f"The file's name says position {fault.pos}, {fault.reason}."
        return f"Position {fault.pos}: {fault.reason}."

    def _name(self, kind: Kind, pos: int, first: int, last: int, reason: str) -> None:
        """A finding about entries that can be read; they take no part in the comparison."""
        words = {
            Kind.CHAIN_CRC: "The entry does not follow from the one before it: chain",
            Kind.DAMAGED_HEADER: "The header is not the one that was written:",
            Kind.NON_MONOTONIC_TERM: "Terms never fall in a log:",
            Kind.GAP: "Entries are missing:",
            Kind.DUPLICATE_INDEX: "Indexes are there twice:",
            Kind.ORDER: "Entries are not in the order of their indexes:",
        }
        self._log.findings.append(
            Finding(
                kind=kind,
                replica=self._replica.name,
                file=self._file_of(pos),
                first_index=first,
                last_index=last,
                count=last - first + 1,
                sentence=f"{words[kind]} {reason} at position {pos}.",
            )
        )
        if kind is not Kind.DUPLICATE_INDEX:
            self._log.lost.append((first, last))

    def _file_of(self, pos: int) -> str:
        files = self._replica.data_files
        number = bisect_right(files, pos, key=lambda file: file.base) - 1
        size = self._replica.data_file_size
        if number >= 0 and pos < files[number].base + size:
            return self._replica.relative(files[number].path)
        missing = pos - pos % size if size else pos
        return self._replica.relative(f"{self._replica.data_directory}/{missing:020d}")

    # -- summary -----------------------------------------------------------------------------------------------

    def _summarize(self) -> None:
        log, segments = self._log, self._segments
        if not segments:
            log.begin_pos = log.end_pos = self._replica.begin_pos
            return
        is_by_index = bool(segments[0].first_header)
        honest = [segment for segment in segments if segment.first_pos not in log.disowned] or segments
        log.begin_pos, log.end_pos = segments[0].first_pos, segments[-1].next_pos
        log.entry_count = sum(segment.count for segment in segments)
        log.message_count = sum(segment.message_count for segment in segments)
        if is_by_index:
            named = [last for _, last in log.lost]
            log.begin_index = min([honest[0].first_index, *(first for first, _ in log.lost)])
            log.end_index = max([honest[-1].last_index, *named])
            log.chain_crc = parse_header(segments[-1].last_header).chain_crc
            log.term_runs = _term_runs(honest, log.lost)
        if self._replica.begin_pos < log.begin_pos and log.lost:
            log.begin_pos = self._replica.begin_pos

    def _judge_marks(self) -> None:
        """What the replica's small files say must be in the log."""
        if self._replica.layout is Layout.COMMIT_LOG or self._tail_is_damaged:
            return
        durable, end = durable_index(self._replica), self._log.end_index
        if self._read_to is not None:
            durable = min(durable, self._read_to)
        if durable > end:
            self._log.findings.append(
                Finding(
                    kind=Kind.COMMIT_BEYOND_END,
                    replica=self._replica.name,
                    first_index=end + 1,
                    last_index=durable,
                    count=durable - end,
                    sentence=f"Its own files say that entries up to {durable} were there; the log ends at {end}.",
                )
            )
            self._log.damaged.append((self._log.end_pos, 2**63 - 1))


def _filled(faults: Sequence[Fault] | Iterator[Fault], first: int, last: int) -> Iterator[Fault]:
    """Faults between two sound entries, with the indexes that follow from these: `first` .. `last` are missing.

    -1: not known. Two neighbours of which neither says where it meets the other are one.
    """
    if 0 <= last < first:
        first = last = -1  # no entry is missing
    merged: list[Fault] = []
    expected = first
    for fault in faults:
        if fault.kind in (Kind.BAD_BLANK, Kind.WRONG_FILE_BASE, Kind.STALE_BYTES):
            merged.append(fault)
            expected = expected if fault.kind is Kind.BAD_BLANK else -1
            continue
        if fault.first_index < 0 and expected >= 0 and (last < 0 or expected <= last):
            fault = replace(fault, first_index=expected)
        previous = merged[-1] if merged else None
        if (
            previous is not None
            and previous.kind is fault.kind is Kind.DAMAGED_HEADER
            and previous.last_index < 0
            and fault.first_index < 0
        ):
            merged[-1] = previous = replace(previous, end_pos=fault.end_pos, last_index=fault.last_index)
        else:
            merged.append(fault)
        expected = merged[-1].last_index + 1 if merged[-1].last_index >= 0 else -1
    following = last
    filled: list[Fault] = []
    for fault in reversed(merged):
        if fault.kind not in (Kind.BAD_BLANK, Kind.WRONG_FILE_BASE, Kind.STALE_BYTES):
            if fault.last_index < 0 and following >= max(fault.first_index, 0):
                fault = replace(fault, last_index=following)
            following = fault.first_index - 1 if fault.first_index >= 0 else -1
        filled.append(fault)
    yield from reversed(filled)


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


def _term_runs(segments: Sequence[Segment], lost: Sequence[tuple[int, int]]) -> list[TermRun]:
    """As the entries say that no finding names."""
    begins: list[tuple[int, int]] = []
    hosts: dict[int, str] = {}
    for segment in segments:
        hosts |= {term: host for term, host in segment.leader_hosts.items() if term not in hosts}
        for term, index in segment.term_begins:
            is_named = any(first <= index <= last for first, last in lost)
            if (not begins or term > begins[-1][0]) and not is_named:
                begins.append((term, index))
    ends = [index - 1 for _, index in begins[1:]] + [segments[-1].last_index]
    return [
        TermRun(term, first, last, hosts.get(term, ""))
        for (term, first), last in zip(begins, ends, strict=True)
    ]


def _grouped(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Findings of one kind that follow each other are one, with the sentence of the first."""
    kept: Finding | None = None
    for finding in findings:
        if (
            kept is not None
            and finding.kind is kept.kind
            and finding.first_index is not None
            and kept.last_index is not None
            and finding.last_index is not None
            and finding.file == kept.file
            and finding.first_index == kept.last_index + 1
        ):
            kept = replace(kept, last_index=finding.last_index, count=kept.count + finding.count)
            continue
        if kept is not None:
            yield kept
        kept = finding
    if kept is not None:
        yield kept
