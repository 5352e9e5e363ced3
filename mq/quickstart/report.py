"""What the quick start found, and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mq.quickstart.reader import receipts
from mq.quickstart.sender import End, Ledger
from verify.findings import INFO_KINDS, Kind
from verify.report.text_report import finding_lines
from verify.validation_report import ValidationReport

FINDINGS_NAMED = 5
UNEQUAL = {Kind.COMMITTED_DIVERGENCE}
BROKEN = {Kind.DAMAGED_HEADER, Kind.BODY_CRC, Kind.CHAIN_CRC, Kind.GAP, Kind.DUPLICATE_INDEX, Kind.ORDER}


@dataclass(frozen=True, slots=True)
class Received:
    """What the consumer group got. `wrong`: messages whose bytes are not those of a line. `stored_twice`: of the
    duplicates, those that lie at another place in the log; the others were handed out again."""

    messages: int
    duplicates: int
    missing_acknowledged: int
    wrong: int
    stored_twice: int = 0


def compare_receipts(ledger: Ledger, path: Path) -> Received:
    seen = bytearray(len(ledger.ends))
    places: set[tuple[int, int]] = set()
    messages = wrong = 0
    for line, phy_offset, body_crc in receipts(path):
        messages += 1
        if line >= len(seen) or ledger.body_crcs[line] != body_crc:
            wrong += 1
            continue
        seen[line] = 1
        places.add((line, phy_offset))
    distinct = seen.count(1)
    missing = sum(end == End.ACKNOWLEDGED and not got for end, got in zip(ledger.ends, seen, strict=True))
    return Received(messages, messages - distinct - wrong, missing, wrong, len(places) - distinct)


@dataclass(slots=True)
class QuickstartReport:
    """`leaders`: term to the member that led it, from the first entry of each term in the log. `committed`: what all
    members had committed when the validation began."""

    sent: int
    acknowledged: int
    unknown: int
    refused: int
    received: Received
    leaders: Mapping[int, str]
    killed: str
    killed_term: int
    gap_ms: float | None
    committed: int
    validation: ValidationReport
    first_trouble: str
    seconds: float
    page: Path | None = None
    kept_in: Path | None = None
    namesrv: str = ""

    @property
    def term_changed(self) -> bool:
        return 0 < self.killed_term < max(self.leaders, default=0)

    def faults(self) -> Sequence[str]:
        """Every reason why the promise does not hold; none if it does."""
        validation = self.validation
        errors = [finding for finding in validation.findings.shown if finding.kind not in INFO_KINDS]
        faults = [": ".join(finding_lines(finding)) for finding in errors[:FINDINGS_NAMED]]
        if len(errors) > FINDINGS_NAMED:
            faults.append(f"{len(errors) - FINDINGS_NAMED:,} further findings are in the report")
        if validation.common_index < self.committed:
            faults.append(
                f"the replicas are equal up to index {validation.common_index:,} only, "
                f"and {self.committed:,} was committed"
            )
        if validation.acknowledged != self.acknowledged:
            faults.append(
                f"{validation.acknowledged:,} of {self.acknowledged:,} acknowledgements "
                "were held against the replicas"
            )
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
            "stored_twice": self.received.stored_twice,
            "missing_acknowledged": self.received.missing_acknowledged,
            "leaders": {str(term): leader for term, leader in self.leaders.items()},
            "killed": self.killed,
            "gap_ms": None if self.gap_ms is None else round(self.gap_ms, 1),
            "common_index": self.validation.common_index,
            "acknowledged_missing_in_replicas": self.validation.acknowledged
            - self.validation.acknowledged_found,
            "faults": list(self.faults()),
            "seconds": round(self.seconds, 1),
            "holds": self.holds,
            "report": None if self.page is None else str(self.page),
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
        console.print(Text.assemble(("FAILED", "bold red"), " ", fault), soft_wrap=True)
    if report.page is not None:
        console.print(f"The replicas, drawn: {report.page}", markup=False, highlight=False, soft_wrap=True)
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
    received, validation = report.received, report.validation
    gap = "-" if report.gap_ms is None else f"{report.gap_ms:,.0f} ms"
    twice = f", {received.stored_twice:,} of them stored twice" if received.stored_twice else ""
    found = validation.findings.totals
    equal = "" if found.keys().isdisjoint(UNEQUAL) else "NOT "
    intact = "intact" if found.keys().isdisjoint(BROKEN) else "BROKEN"
    return [
        ("sent", f"{report.sent:,}"),
        ("acknowledged", f"{report.acknowledged:,}"),
        ("unknown", f"{report.unknown:,}"),
        ("received", f"{received.messages:,}"),
        ("duplicates", f"{received.duplicates:,}{twice}"),
        ("leaders", ", ".join(f"term {term}: {leader}" for term, leader in report.leaders.items())),
        ("kill -9", f"{report.killed}, leader of term {report.killed_term}"),
        ("kill to next acknowledged send", gap),
        (
            f"{len(validation.replicas)} replicas, from their files",
            f"{equal}byte-identical up to committed index {validation.common_index:,}",
        ),
        ("chain", intact),
        ("acknowledged records in them", f"{validation.acknowledged_found:,} of {validation.acknowledged:,}"),
        ("time", f"{report.seconds:.1f} s"),
    ]
