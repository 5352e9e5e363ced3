"""What a validation says in the end. The text, the JSON and the HTML are made from this and from nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from verify.findings import INFO_KINDS, Findings


@dataclass(frozen=True, slots=True)
class TermRun:
    """Entries first_index .. last_index were written by the leader of `term`, at `leader_host` (its no-op says so; ""
    where it has none, as in Java's stores)."""

    term: int
    first_index: int
    last_index: int
    leader_host: str = ""


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """For the drawing: entries first_index .. last_index could not be read, or are not what they must be."""

    first_index: int
    last_index: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSummary:
    """One replica as its files have it. A replica without entries has end_index = begin_index - 1."""

    name: str
    group: str
    directory: str
    layout: str  # "dledger" or "commitlog"
    is_live: bool  # a process has it open: read up to what was committed when the validation began
    begin_index: int
    end_index: int
    begin_pos: int
    end_pos: int
    chain_crc: int  # at the end
    entry_count: int  # sound ones
    message_count: int
    file_count: int
    data_file_size: int
    bytes_read: int
    committed_index: int  # what its own files say is committed, at least
    term_runs: tuple[TermRun, ...]
    damaged: tuple[DamagedRange, ...] = ()

    @property
    def end_term(self) -> int:
        return self.term_runs[-1].term if self.term_runs else -1

    def as_dict(self) -> dict[str, Any]:
        """For JSON; `chain_crc` as eight hex digits."""
        told = asdict(self)
        return {**told, "end_term": self.end_term, "chain_crc": f"{self.chain_crc & 0xFFFFFFFF:08x}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    replicas: tuple[ReplicaSummary, ...]
    findings: Findings
    committed_index: int  # of the group, as far as the files of all its replicas tell
    common_index: int  # the last one that all replicas hold, byte for byte, with all before it; -1: none
    queue_count: int  # ConsumeQueues compared with the log
    acknowledged: int  # records of the history; 0 without one
    acknowledged_found: int
    began_at: str  # ISO 8601, UTC
    seconds: float
    runner: str  # "in process" or "Spark 4.x, local[*]"
    unit_count: int
    notes: tuple[str, ...] = field(default=())  # what was not looked at, and why

    @property
    def is_clean(self) -> bool:
        return self.findings.is_clean

    @property
    def bytes_read(self) -> int:
        return sum(replica.bytes_read for replica in self.replicas)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, as docs/usage.md describes it. Whoever reads it may count on the names; more may be added."""
        totals = self.findings.totals
        return {
            "clean": self.is_clean,
            "began_at": self.began_at,
            "seconds": round(self.seconds, 3),
            "runner": self.runner,
            "unit_count": self.unit_count,
            "bytes_read": self.bytes_read,
            "committed_index": self.committed_index,
            "common_index": self.common_index,
            "queue_count": self.queue_count,
            "acknowledged": self.acknowledged,
            "acknowledged_found": self.acknowledged_found,
            "errors": sum(count for kind, count in totals.items() if kind not in INFO_KINDS),
            "infos": sum(count for kind, count in totals.items() if kind in INFO_KINDS),
            "totals": {str(kind): count for kind, count in totals.items()},
            "findings": [finding.as_dict() for finding in self.findings.shown],
            "findings_left_out": self.findings.left_out,
            "replicas": [replica.as_dict() for replica in self.replicas],
            "notes": list(self.notes),
        }
