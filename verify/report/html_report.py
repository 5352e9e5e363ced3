"""A validation's result as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from verify.findings import INFO_KINDS, Finding
from verify.report.html_chart import chart
from verify.report.html_page import html_facts, html_page, html_table, html_text, html_verdict
from verify.report.text_report import (
    counted,
    duration,
    index_span,
    is_indexed,
    place,
    size,
    span,
    verdict,
)
from verify.validation_report import ReplicaSummary, TermRun, ValidationReport

TERM_ROWS_MAX = 300


def html_report(report: ValidationReport) -> str:
    """The page. Its size is bounded by the findings shown, the number of replicas and TERM_ROWS_MAX."""
    judged = verdict(report)
    sections = (
        _eyebrow(report),
        html_verdict("good" if judged.is_clean else "bad", judged.headline, judged.detail),
        _facts(report),
        _log(report),
        _findings(report),
        _replicas(report),
        _notes(report),
        _footer(report),
    )
    return html_page(judged.headline, sections)


def _eyebrow(report: ValidationReport) -> str:
    groups = sorted({replica.group for replica in report.replicas if replica.group})
    named = f"<span>group <b>{html_text(', '.join(groups))}</b></span>" if groups else ""
    when = report.began_at.replace("T", " ").partition(".")[0].removesuffix("Z").partition("+")[0]
    return (
        f'<div class="eyebrow"><span><b>PyDLedger</b> validation</span>{named}'
        f"<span>{html_text(when)} UTC</span></div>"
    )


def _facts(report: ValidationReport) -> str:
    replicas = report.replicas
    entries = max((replica.entry_count for replica in replicas), default=0)
    messages = max((replica.message_count for replica in replicas), default=0)
    # Not bytes_read: files have their full length from the start, and what nobody wrote is passed over.
    logs = sum(replica.end_pos - replica.begin_pos for replica in replicas)
    rate = logs / report.seconds if report.seconds > 0 else 0.0
    live = sum(replica.is_live for replica in replicas)
    facts = [("Replicas", f"{len(replicas)}", f"{live} live" if live else "stopped")]
    if any(is_indexed(replica) for replica in replicas):
        facts.append(("Entries", f"{entries:,}", f"{messages:,} messages"))
        if len(replicas) > 1:
            facts.append(("Equal up to", _index(report.common_index), "index"))
        facts.append(("Committed up to", _index(report.committed_index), "index"))
    else:
        facts.append(("Messages", f"{messages:,}", "plain CommitLog"))
    if report.queue_count:
        facts.append(("ConsumeQueues", f"{report.queue_count:,}", "held against the log"))
    if report.acknowledged:
        facts.append(("Acknowledged", f"{report.acknowledged_found:,}", f"found, of {report.acknowledged:,}"))
    facts.append(("Read", size(logs), f"{duration(report.seconds)}, {size(rate)}/s"))
    return html_facts(facts)


def _index(value: int) -> str:
    return f"{value:,}" if value >= 0 else "–"


def _log(report: ValidationReport) -> str:
    drawn = chart(report)
    if not drawn:
        return ""
    return f'<section class="card"><h2>The log</h2>{drawn}{_terms(report.replicas)}</section>'


def _terms(replicas: Sequence[ReplicaSummary]) -> str:
    """Folded away: every run of a term, and which replicas hold it so."""
    holders: dict[TermRun, list[str]] = {}
    for replica in replicas:
        for run in replica.term_runs:
            holders.setdefault(run, []).append(replica.name)
    if not holders:
        return ""
    runs = sorted(holders, key=lambda run: (run.first_index, run.term, run.last_index, run.leader_host))
    rows = [
        [
            ("number", f"{run.term:,}"),
            ("long", html_text(run.leader_host)),
            ("number", span(run.first_index, run.last_index)),
            ("number", f"{run.last_index - run.first_index + 1:,}"),
            ("long", "all" if len(holders[run]) == len(replicas) else html_text(", ".join(holders[run]))),
        ]
        for run in runs[:TERM_ROWS_MAX]
    ]
    columns = (
        ("number", "Term"),
        ("", "Leader"),
        ("number", "Index"),
        ("number", "Entries"),
        ("", "Replicas"),
    )
    rest = len(runs) - len(rows)
    more = f'<p class="soft">{counted(rest, "further run")} left out.</p>' if rest else ""
    return f"<details><summary>Terms, one by one ({len(runs):,})</summary>{html_table(columns, rows)}{more}</details>"


def _findings(report: ValidationReport) -> str:
    found = report.findings
    if not found.totals:
        equality = ", and its equality in all replicas" if len(report.replicas) > 1 else ""
        return (
            '<section class="card"><h2>Findings</h2><p class="soft">None. Looked at, for every entry: its header, '
            f"checksums, place, order and term{equality}.</p></section>"
        )
    totals = "".join(
        f'<li class="{"info" if kind in INFO_KINDS else "error"}"><b>{count:,}</b>{escape(str(kind))}</li>'
        for kind, count in sorted(found.totals.items(), key=lambda item: (item[0] in INFO_KINDS, -item[1]))
    )
    columns = (("", "Severity"), ("", "Kind"), ("", "Where"), ("number", "Index"), ("", "What is there"))
    rows = [_finding(finding) for finding in found.shown]
    more = (
        f'<p class="soft">The first {len(found.shown):,} findings; {found.left_out:,} more are left out. '
        "The numbers above count them all.</p>"
        if found.left_out
        else ""
    )
    return (
        f'<section class="card"><h2>Findings</h2><ul class="totals">{totals}</ul>'
        f"{html_table(columns, rows)}{more}</section>"
    )


def _finding(finding: Finding) -> list[tuple[str, str]]:
    severity = str(finding.severity)
    where = [
        f"<b>{html_text(finding.replica)}</b>" if finding.replica else "",
        f"<code>{html_text(finding.file)}</code>" if finding.file else "",
        f"<span>{escape(place(finding))}</span>" if place(finding) else "",
    ]
    return [
        ("", f'<span class="tag {severity}">{severity}</span>'),
        ("nowrap", escape(str(finding.kind))),
        ("where", f"<div>{''.join(where)}</div>" if any(where) else ""),
        ("number", span(finding.first_index, finding.last_index)),
        ("what", html_text(finding.sentence)),
    ]


def _replicas(report: ValidationReport) -> str:
    columns = (
        ("", "Replica"),
        ("", "State"),
        ("number", "Index"),
        ("number", "Entries"),
        ("number", "Messages"),
        ("number", "Last term"),
        ("number", "Committed"),
        ("", "End chain"),
        ("number", "Files"),
        ("number", "Log"),
    )
    rows = [
        [
            (
                "long",
                f'<b>{html_text(one.name)}</b><br><code class="soft">{html_text(one.directory)}</code>'
                if one.directory != one.name
                else f"<b>{html_text(one.name)}</b>",
            ),
            ("nowrap", "live" if one.is_live else "stopped"),
            ("number", index_span(one) if one.entry_count else "empty"),
            ("number", f"{one.entry_count:,}"),
            ("number", f"{one.message_count:,}"),
            ("number", f"{one.end_term:,}" if one.term_runs else ""),
            ("number", f"{one.committed_index:,}" if one.committed_index >= 0 else ""),
            ("", f"<code>{one.chain_crc & 0xFFFFFFFF:08x}</code>" if one.chain_crc else ""),
            ("number", f"{one.file_count:,} × {size(one.data_file_size)}" if one.file_count else "0"),
            ("number", size(one.end_pos - one.begin_pos)),
        ]
        for one in report.replicas
    ]
    return f'<section class="card"><h2>Replicas</h2>{html_table(columns, rows)}</section>'


def _notes(report: ValidationReport) -> str:
    if not report.notes:
        return ""
    told = "".join(f"<li>{html_text(note)}</li>" for note in report.notes)
    return f'<section class="card"><h2>Not looked at</h2><ul class="notes">{told}</ul></section>'


def _footer(report: ValidationReport) -> str:
    return (
        f"<footer>{html_text(report.runner)}, {counted(report.unit_count, 'unit')} of work, "
        f"{duration(report.seconds)}. Indexes and offsets count from 0 and ranges include their ends. "
        "The files were read, none was changed.</footer>"
    )
