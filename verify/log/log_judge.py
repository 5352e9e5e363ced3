"""What is wrong with the log of one replica, seen as a whole: its segments, the links between them, its holes, its end.

Names each fault once, at the entry that has it. What another fault explains is not a finding of its own: an entry that
cannot be read leaves no gap in the indexes and breaks no chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from dledger.entry import parse_header
from verify.findings import Finding, Kind
from verify.log.data_file import Layout
from verify.log.entry_faults import Examined, Fault
from verify.log.fault_ranges import grouped, with_indexes
from verify.log.log_end import ends_before, is_older, what_lies_behind
from verify.log.log_layout import Hole, LogLine, neighbours
from verify.log.log_links import LinkJudge
from verify.log.log_part import Segment, is_linked
from verify.replica import EVERYTHING
from verify.replica_log import ReplicaLog, durable_index
from verify.validation_report import TermRun

# What a crash can leave where entries were being written; a missing file is none of it.
_TORN_KINDS: Final = (Kind.BODY_CRC, Kind.DAMAGED_HEADER, Kind.WRONG_POS, Kind.BAD_BLANK)
_SAYS: Final = {
    Kind.BODY_CRC: "body is not the one that was written",
    Kind.DAMAGED_HEADER: "header is no entry's",
    Kind.WRONG_POS: "header says another position than its own",
}


def judge_log(line: LogLine, examined: Sequence[Examined], *, read_to: int | None = None) -> ReplicaLog:
    """`read_to`: entries behind this index were not read (a live replica); None: all were."""
    return _Judge(line, {found.pos: found for found in examined}, read_to).judge()


class _Judge:
    """Invariant: each fault is reported once; what it explains is put into `lost` and `damaged` of the log."""

    def __init__(self, line: LogLine, examined: Mapping[int, Examined], read_to: int | None) -> None:
        self._line = line
        self._replica = line.replica
        self._examined = examined
        self._read_to = read_to
        self._log = ReplicaLog(line.replica, bytes_read=line.bytes_read)
        self._segments: list[Segment] = []

    def judge(self) -> ReplicaLog:
        self._line.items[:] = self._joined_over_blanks()
        steps = list(neighbours(self._line))
        links = LinkJudge(self._log, self._line.segments)
        for number, (before, holes, after) in enumerate(steps):
            if after is None:
                self._judge_tail(before, holes)
                break
            if self._is_end(before, holes, after, steps[number + 1 :]):
                self._judge_end(before, holes, [step[2] for step in steps[number:] if step[2] is not None])
                break
            if not self._judge_holes(before, holes, after):
                break  # the log was torn here: what lies behind does not count
            following = steps[number + 1] if number + 1 < len(steps) else (None, [], None)
            next_segment = following[2] if self._are_blanks(following[1]) else None
            links.judge(before, after, next_segment, is_adjacent=self._are_blanks(holes))
            self._segments.append(after)
        self._summarize()
        self._judge_marks()
        self._judge_strays()
        self._log.findings = list(grouped(self._log.findings))
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
        first = before.last_index + 1 if before is not None else self._begin_index(holes)
        last = after.first_index - 1
        if not is_by_index:
            first = last = -1
        faults = list(
            with_indexes(self._faults(holes, is_lossless=is_by_index and first > last), first, last)
        )
        durable = durable_index(self._replica)
        torn = next((fault for fault in faults if self._is_torn(fault, durable)), None)
        if torn is not None and durable >= 0:
            last_item = self._line.items[-1]
            end_pos = last_item.end_pos if isinstance(last_item, Hole) else last_item.next_pos
            self._torn(torn.pos, end_pos, torn.first_index)
            return False
        for fault in faults:
            self._report(fault)
        if is_by_index and 0 <= first <= last:
            self._log.lost.append((first, last))
        if not is_by_index:
            self._log.lost += [(fault.pos, fault.end_pos - 1) for fault in faults]
        return True

    def _begin_index(self, holes: Sequence[Hole]) -> int:
        """Of the entry that the log should begin with; -1: nothing says it."""
        mark = self._replica.mark
        if self._replica.begin_pos == 0:
            return 0
        is_begin_missing = bool(holes) and holes[0].pos < self._replica.begin_pos
        return mark.before_begin_index + 1 if mark is not None and is_begin_missing else -1

    def _faults(self, holes: Sequence[Hole], *, is_lossless: bool, is_tail: bool = False) -> Iterator[Fault]:
        """`is_lossless`: no entry is missing between the segments around. `is_tail`: zeros are what belongs here."""
        for number, hole in enumerate(holes):
            examined = self._examined.get(hole.pos)
            before = holes[number - 1] if number else None
            following = holes[number + 1] if number + 1 < len(holes) else None
            is_cut = following is not None and following.short_file is hole.file
            mark = self._replica.mark
            if hole.file is None and mark is not None and hole.pos >= mark.end_pos:
                continue  # nothing was ever there: a file that belongs elsewhere lies behind
            if hole.file is None:
                if hole.short_file is None:
                    reason = "the file of this position is not there"
                    yield Fault(Kind.MISSING_FILE, hole.pos, hole.end_pos, -1, -1, reason)
                else:
                    size = hole.short_file.size
                    reason = f"the file ends at byte {size}, it should have {self._replica.data_file_size}"
                    start = hole.pos
                    # The hole before an empty file is another file's.
                    if before is not None and before.file is hole.short_file and not self._is_blank(before):
                        start = before.pos
                    yield Fault(Kind.MISSING_FILE, start, hole.end_pos, -1, -1, reason)
            elif examined is not None:
                # The entry that a file's early end cuts is part of what is missing.
                yield from examined.faults[:-1] if is_cut else examined.faults
            elif hole.is_zero and not is_cut and not is_tail:
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
        faults = list(self._faults(holes, is_lossless=True, is_tail=True))
        expected = -1
        if any(hole.pos in self._examined and not self._is_blank(hole) for hole in holes):
            # Something was begun here.
            expected = before.last_index + 1 if before is not None else 0
        if before is not None and before.last_index < 0:
            expected = -1
        durable = durable_index(self._replica)
        for fault in with_indexes(faults, expected, -1):
            if self._read_to is not None and fault.first_index > self._read_to:
                continue
            if self._is_torn(fault, durable):
                self._torn(fault.pos, fault.end_pos, fault.first_index)
                return
            if (
                fault.kind is Kind.DAMAGED_HEADER
                and 0 <= fault.first_index <= durable
                and fault.last_index < 0
            ):
                # How many entries it was the replica's own files tell.
                bound = durable if self._read_to is None else min(durable, self._read_to)
                fault = replace(fault, last_index=max(fault.first_index, bound))
            self._report(fault)
            if fault.kind in _TORN_KINDS and fault.kind is not Kind.BAD_BLANK:
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
            f"the log ends at position {pos}; {end_pos - pos} bytes of a write that a crash cut off follow, "
            "which the member cuts when it starts"
        )
        self._log.findings.append(
            Finding(
                kind=Kind.TORN_TAIL,
                replica=self._replica.name,
                file=self._log.file_of(pos),
                first_index=known,
                last_index=known,
                sentence=sentence,
            )
        )
        self._log.damaged.append((pos, EVERYTHING))

    # -- the end -----------------------------------------------------------------------------------------------

    def _is_end(
        self,
        before: Segment | None,
        holes: Sequence[Hole],
        after: Segment,
        following: Sequence[tuple[Segment | None, list[Hole], Segment | None]],
    ) -> bool:
        """Whether `after` and what follows is no part of the log, but for what a crash tore off it."""
        is_adjacent = self._are_blanks(holes)
        if self._replica.mark is None and durable_index(self._replica) < 0:
            # Nothing says where the log ended: only what is surely of another one, and behind all others, is left out.
            is_last = all(
                step[2] is None or step[2].first_index <= after.last_index + 1 for step in following
            )
            is_apart = not is_adjacent and all(hole.file is not None for hole in holes)
            return (
                before is not None
                and bool(after.first_header)
                and is_apart
                and is_last
                and is_older(before, after)
            )
        if not ends_before(self._replica, before, after, is_adjacent=is_adjacent):
            return False
        may_be_torn = not self._replica.stopped_cleanly and not is_adjacent
        return not may_be_torn or (before is not None and is_older(before, after))

    def _judge_end(self, before: Segment | None, holes: Sequence[Hole], stale: Sequence[Segment]) -> None:
        mark = self._replica.mark
        end_index = before.last_index if before is not None else -1
        end_pos = before.next_pos if before is not None else self._replica.begin_pos
        if mark is not None and end_pos < mark.end_pos:
            damaged = [hole for hole in holes if hole.pos < mark.end_pos]
            faults = with_indexes(self._faults(damaged, is_lossless=False), end_index + 1, mark.index)
            for fault in faults:
                if fault.pos < mark.end_pos:
                    self._report(fault)
            self._log.lost.append((end_index + 1, mark.index))
            end_index, end_pos = mark.index, mark.end_pos
        self._log.findings.append(
            Finding(
                kind=Kind.STALE_BYTES,
                replica=self._replica.name,
                file=self._log.file_of(stale[0].first_pos),
                sentence=what_lies_behind(end_pos, end_index, stale),
            )
        )

    # -- findings ----------------------------------------------------------------------------------------------

    def _report(self, fault: Fault) -> None:
        first = fault.first_index if fault.first_index >= 0 else None
        last = fault.last_index if fault.last_index >= 0 else first
        count = last - first + 1 if first is not None and last is not None else 1
        self._log.findings.append(
            Finding(
                kind=fault.kind,
                replica=self._replica.name,
                file=self._log.file_of(fault.pos),
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
            return f"at position {fault.pos} the {_SAYS[fault.kind]}: {fault.reason}"
        if fault.kind is Kind.BAD_BLANK:
            return f"the file's rest from position {fault.pos} on is no exact blank: {fault.reason}"
        if fault.kind is Kind.WRONG_FILE_BASE:
            return f"the file's name says position {fault.pos}, {fault.reason}"
        return f"at position {fault.pos}: {fault.reason}"

    # -- summary -----------------------------------------------------------------------------------------------

    def _summarize(self) -> None:
        log, segments = self._log, self._segments
        if not segments:
            log.begin_pos = log.end_pos = self._replica.begin_pos
            if self._replica.mark is not None:
                # A log that began anew behind an entry that it does not hold.
                log.end_index = self._replica.mark.before_begin_index
                log.begin_index = log.end_index + 1
            return
        is_by_index = bool(segments[0].first_header)
        log.begin_pos, log.end_pos = segments[0].first_pos, segments[-1].next_pos
        log.entry_count = sum(segment.count for segment in segments)
        log.message_count = sum(segment.message_count for segment in segments)
        if is_by_index:
            named = [last for _, last in log.lost]
            log.begin_index = min([segments[0].first_index, *(first for first, _ in log.lost)])
            log.end_index = max([segments[-1].last_index, *named])
            log.chain_crc = parse_header(segments[-1].last_header).chain_crc
            log.term_runs = _term_runs(segments, log.lost)
        if self._replica.begin_pos < log.begin_pos and log.lost:
            log.begin_pos = self._replica.begin_pos

    def _judge_strays(self) -> None:
        for file in self._replica.stray_files:
            path = self._replica.relative(file.path)
            sentence = f"the file's name says position {file.base}, which lies inside of another data file"
            self._log.findings.append(
                Finding(kind=Kind.WRONG_FILE_BASE, replica=self._replica.name, file=path, sentence=sentence)
            )

        for file in self._replica.renamed_files:
            said = int(PurePath(file.path).name)
            sentence = (
                f"the file's name says position {said}, its entries begin with position {file.base}: was it renamed? "
                "They were looked at in their place"
            )
            path = self._replica.relative(file.path)
            self._log.findings.append(
                Finding(kind=Kind.WRONG_FILE_BASE, replica=self._replica.name, file=path, sentence=sentence)
            )

    def _judge_marks(self) -> None:
        """What the replica's small files say must be in the log."""
        if self._replica.layout is Layout.COMMIT_LOG:
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
                    sentence=f"its own files say that entries up to {durable} were there; the log ends at {end}",
                )
            )
            self._log.damaged.append((self._log.end_pos, EVERYTHING))


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
