"""The verdict on one replica's log, and what others need to know of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from verify.findings import Finding
from verify.log.data_file import Layout
from verify.replica import Replica
from verify.validation_report import DamagedRange, TermRun


@dataclass(slots=True)
class ReplicaLog:
    """The verdict, and what the comparison with other replicas needs to know.

    `lost`: ordinals (indexes; positions in a CommitLog), inclusive, of entries that a finding already names: they take
    no part in the comparison. `disowned`: positions of entries that say the index of another one. `damaged`: byte
    ranges that should be entries and are none, or are none to be believed.
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

    def file_of(self, pos: int) -> str:
        """As findings name the file of a position, there or missing."""
        files = self.replica.data_files
        number = bisect_right(files, pos, key=lambda file: file.base) - 1
        size = self.replica.data_file_size
        if number >= 0 and pos < files[number].base + size:
            return self.replica.relative(files[number].path)
        missing = pos - pos % size if size else pos
        return self.replica.relative(f"{self.replica.data_directory}/{missing:020d}")


def durable_index(replica: Replica) -> int:
    """What the replica's own small files say is surely in its log."""
    mark_index = replica.mark.index if replica.mark is not None else -1
    java_end = replica.java_end_index if replica.stopped_cleanly else -1
    return max(mark_index, replica.known_committed_index, java_end)
