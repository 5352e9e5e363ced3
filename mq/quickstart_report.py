"""What the quick start found, and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mq.quickstart_reader import receipts
from mq.quickstart_sender import End, Ledger
from mq.replica_files import Verdict


@dataclass(frozen=True, slots=True)
class Received:
    """What the consumer group got. `wrong`: messages whose bytes are not those of the line; `unsent`: of no line."""

    messages: int
    duplicates: int
    missing_acknowledged: int
    wrong: int


def compare_receipts(ledger: Ledger, path: Path) -> Received:
    seen = bytearray(len(ledger.ends))
    messages = wrong = 0
    for line, _, body_crc in receipts(path):
        messages += 1
        if line >= len(seen) or ledger.body_crcs[line] != body_crc:
            wrong += 1
            continue
        seen[line] = 1
    distinct = seen.count(1)
    missing = sum(end == End.ACKNOWLEDGED and not got for end, got in zip(ledger.ends, seen, strict=True))
    return Received(messages, messages - distinct - wrong, missing, wrong)


@dataclass(slots=True)
class QuickstartReport:
    """`leaders`: term to the member that led it, from the first entry of each term in the log."""

    sent: int
    acknowledged: int
    unknown: int
    refused: int
    received: Received
    leaders: Mapping[int, str]
    killed: str
    killed_term: int
    gap_ms: float | None
    verdict: Verdict
    first_trouble: str
    seconds: float
    kept_in: Path | None = None
    namesrv: str = ""

    @property
    def term_changed(self) -> bool:
        return bool(self.leaders) and max(self.leaders) > self.killed_term

    def faults(self) -> Sequence[str]:
        """Every reason why the promise does not hold; none if it does."""
        faults = list(self.verdict.faults)
        if not self.acknowledged:
            faults.append("nothing was acknowledged")
        if self.refused:
            faults.append(f"{self.refused} sends were refused; the first trouble: {self.first_trouble}")
        if self.received.missing_acknowledged:
            faults.append(
                f"{self.received.missing_acknowledged} acknowledged messages did not reach the consumer group"
            )
        if self.received.wrong:
            faults.append(f"{self.received.wrong} messages reached it with other bytes than were sent")
        if not self.term_changed:
            faults.append("the kill did not change the term, so this run proves nothing")
        if self.gap_ms is None:
            faults.append("no send was acknowledged by another leader after the kill")
        return faults

    @property
    def holds(self) -> bool:
        return not self.faults()

    def as_dict(self) -> dict[str, object]:
        return {
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "unknown": self.unknown,
            "refused": self.refused,
            "received": self.received.messages,
            "duplicates": self.received.duplicates,
            "missing_acknowledged": self.received.missing_acknowledged,
            "leaders": {str(term): leader for term, leader in self.leaders.items()},
            "killed": self.killed,
            "gap_ms": None if self.gap_ms is None else round(self.gap_ms, 1),
            "common_index": self.verdict.common_index,
            "acknowledged_missing_in_replicas": len(self.verdict.missing),
            "faults": list(self.faults()),
            "seconds": round(self.seconds, 1),
            "holds": self.holds,
            "kept_in": None if self.kept_in is None else str(self.kept_in),
            "namesrv": self.namesrv,
        }


def print_report(report: QuickstartReport) -> None:
    console = Console()
    table = Table(show_header=False, title="Quick start", title_justify="left", title_style="bold")
    table.add_column(style="bold")
    table.add_column()
    for name, value in _rows(report):
        table.add_row(name, value)
    console.print(table)
    if report.holds:
        console.print("[bold green]Nothing acknowledged was lost, and every replica holds the same bytes.[/]")
    for fault in report.faults():
        console.print(f"[bold red]FAILED[/] {fault}", highlight=False)
    if report.kept_in is not None:
        directory = report.kept_in
        console.print(
            "\nThe cluster is still up. Try:\n"
            f"  mq cluster status --dir {directory}\n"
            f"  mq consume -n {report.namesrv} --topic Quickstart --group again --from first --count 5\n"
            f"  echo hello | mq produce -n {report.namesrv} --topic Hello\n"
            f"  mq admin consumerProgress -n {report.namesrv} -g quickstart_readers -t Quickstart\n"
            f"  mq cluster down --dir {directory}",
            highlight=False,
            soft_wrap=True,
        )


def _rows(report: QuickstartReport) -> list[tuple[str, str]]:
    received, verdict = report.received, report.verdict
    gap = "-" if report.gap_ms is None else f"{report.gap_ms:,.0f} ms"
    intact = all(not replica.fault for replica in verdict.replicas)
    present = verdict.acknowledged - len(verdict.missing)
    return [
        ("sent", f"{report.sent:,}"),
        ("acknowledged", f"{report.acknowledged:,}"),
        ("unknown", f"{report.unknown:,}"),
        ("received", f"{received.messages:,}"),
        ("duplicates", f"{received.duplicates:,}"),
        ("leaders", ", ".join(f"term {term}: {leader}" for term, leader in report.leaders.items())),
        ("kill -9", f"{report.killed}, leader of term {report.killed_term}"),
        ("kill to next acknowledged send", gap),
        (
            f"{len(verdict.replicas)} replicas, from their files",
            f"{'NOT ' if verdict.fork else ''}byte-identical up to committed index {verdict.common_index:,}",
        ),
        ("chain", "intact" if intact else "BROKEN"),
        ("acknowledged records in them", f"{present:,} of {verdict.acknowledged:,}"),
        ("time", f"{report.seconds:.1f} s"),
    ]
