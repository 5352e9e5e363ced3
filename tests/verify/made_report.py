"""Reports as no store has to exist for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from verify.findings import Finding, gather
from verify.validation_report import DamagedRange, ReplicaSummary, TermRun, ValidationReport

LEADERS = ("127.0.0.1:9886", "127.0.0.1:9896", "127.0.0.1:9906")
TERMS = (
    TermRun(1, 0, 849, LEADERS[0]),
    TermRun(2, 850, 1468, LEADERS[1]),
    TermRun(4, 1469, 2110, LEADERS[0]),
)


def replica(
    name: str,
    runs: Sequence[TermRun] = TERMS,
    damaged: Sequence[DamagedRange] = (),
    *,
    begin_index: int = 0,
    directory: str = "",
    is_live: bool = False,
) -> ReplicaSummary:
    end_index = runs[-1].last_index if runs else begin_index - 1
    count = end_index - begin_index + 1
    return ReplicaSummary(
        name=name,
        group="4be1c0ffee5eed00",
        directory=directory or f"/srv/{name}/store",
        layout="dledger",
        is_live=is_live,
        begin_index=begin_index,
        end_index=end_index,
        begin_pos=begin_index * 1100,
        end_pos=(end_index + 1) * 1100,
        chain_crc=-559038737 if count else 0,
        entry_count=count,
        message_count=max(count - len(runs), 0),
        file_count=-(-count * 1100 // 2**20),
        data_file_size=2**20,
        bytes_read=count * 1100,
        committed_index=end_index,
        term_runs=tuple(runs),
        damaged=tuple(damaged),
    )


def report(
    replicas: Sequence[ReplicaSummary] | None = None,
    findings: Sequence[Finding] = (),
    *,
    common_index: int | None = None,
    acknowledged: int = 0,
    acknowledged_found: int = 0,
    findings_max: int = 200,
    notes: Sequence[str] = (),
) -> ValidationReport:
    """By default three equal replicas."""
    if replicas is None:
        replicas = [replica(name) for name in ("n0", "n1", "n2")]
    ends = [one.end_index for one in replicas]
    return ValidationReport(
        replicas=tuple(replicas),
        findings=gather(findings, findings_max),
        committed_index=max(ends),
        common_index=min(ends) if common_index is None else common_index,
        queue_count=8,
        acknowledged=acknowledged,
        acknowledged_found=acknowledged_found,
        began_at="2026-11-21T19:30:00Z",
        seconds=1.7,
        runner="in process",
        unit_count=9,
        notes=tuple(notes),
    )


def many_terms(count: int, entries: int, leaders: Sequence[str] = LEADERS) -> tuple[TermRun, ...]:
    """Terms of unequal length that together have `entries` entries."""
    bounds = [entries * i * (i + 3) // (count * (count + 3)) for i in range(count + 1)]
    return tuple(
        TermRun(i + 1, bounds[i], bounds[i + 1] - 1, leaders[i * i % len(leaders)] if leaders else "")
        for i in range(count)
        if bounds[i + 1] > bounds[i]
    )


def without_leaders(runs: Sequence[TermRun]) -> tuple[TermRun, ...]:
    return tuple(replace(run, leader_host="") for run in runs)
