"""A fault run as one HTML page: the verdict, the timeline, whatever is wrong with the records that show it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec

from faults.checkers.availability import GAP_MS_MIN, Gap
from faults.checkers.checker import Violation
from faults.coverage import Fault
from faults.judge import Judgement
from faults.report_style import STYLE
from faults.timeline import NS_PER_S, Timeline
from faults.timeline_chart import LEADER_HUES, Window, chart, leader_hues
from verify.report.html_page import html_facts, html_page, html_table, html_text, html_verdict
from verify.report.text_report import Verdict, counted, duration, listed

CLOSE_UP_NS: Final = 600 * NS_PER_S
GAPS_MAX: Final = 200
OUTCOMES: Final = ("ok", "unknown", "fail")


def fault_report(judgement: Judgement, timeline: Timeline, replicas: Verdict | None = None) -> str:
    """The page. `replicas`: what `mq validate` said of them at the end; None: it was not asked."""
    judged = verdict(judgement, replicas)
    origin_ns = judgement.begin_ns if timeline.begin_ns is None else timeline.begin_ns
    whole = Window(judgement.begin_ns, max(judgement.end_ns, judgement.begin_ns + NS_PER_S), origin_ns)
    numbers = {id(violation): number for number, violation in enumerate(judgement.violations, 1)}
    return html_page(
        judged[1],
        (
            _eyebrow(judgement),
            html_verdict(*judged),
            _facts(judgement, whole),
            _shortfalls(judgement),
            _timeline(judgement, timeline, whole, numbers),
            _violations(judgement, whole),
            _kinds(judgement),
            _gaps(judgement.availability.gaps, whole),
            _nemeses(judgement),
            _footer(),
        ),
        STYLE,
    )


def verdict(judgement: Judgement, replicas: Verdict | None = None) -> tuple[str, str, str]:
    """(good, bad or short; the headline; a second sentence)."""
    coverage = judgement.coverage
    worth = (
        f"{counted(coverage.outcomes['ok'], 'acknowledged send')}, {counted(len(coverage.faults), 'fault')} in "
        f"{duration((judgement.end_ns - judgement.begin_ns) / NS_PER_S)}; an outage would have been excused for "
        f"{100 * judgement.availability.excused_share:.0f} % of the time"
    )
    told_of_replicas = "" if replicas is None else f" {replicas.headline}"
    if judgement.totals:
        kinds = [f"{name.replace('_', ' ')} ({count:,})" for name, count in judgement.totals.most_common()]
        count = sum(judgement.totals.values())
        return (
            "bad",
            f"{counted(count, 'promise')} broken: {listed(kinds, 6)}",
            f"{worth}.{told_of_replicas}",
        )
    if replicas is not None and not replicas.is_clean:
        return (
            "bad",
            f"The replicas are not sound: {replicas.headline}",
            f"Clients saw nothing wrong. {worth}.",
        )
    shortfalls = judgement.shortfalls()
    if shortfalls:
        return (
            "short",
            "Nothing is broken, yet this run proves too little",
            f"{counted(len(shortfalls), 'reason')}, below. {worth}.{told_of_replicas}",
        )
    return "good", "Nothing acknowledged was lost, and no promise is broken", f"{worth}.{told_of_replicas}"


def _eyebrow(judgement: Judgement) -> str:
    run = judgement.coverage.run
    parts = ["<b>PyDLedger</b> fault run"]
    if run is not None:
        parts += [
            f"seed <b>{run.seed}</b>",
            f"brokers: <b>{html_text(run.target)}</b>",
            f"members {html_text(', '.join(run.members))}",
        ]
        if run.revision:
            parts.append(f"revision {html_text(run.revision)}")
    return f'<div class="eyebrow">{"".join(f"<span>{part}</span>" for part in parts)}</div>'


def _facts(judgement: Judgement, window: Window) -> str:
    coverage, gaps = judgement.coverage, judgement.availability.gaps
    verified = sum(fault.evidence is not None for fault in coverage.faults.values())
    longest = max((gap.duration_ms for gap in gaps), default=0.0)
    silent = sum(gap.duration_ms for gap in gaps) / 1000
    not_looked_for = sum(coverage.not_looked_for().values())
    return html_facts(
        [
            (
                "Run",
                duration((window.end_ns - window.begin_ns) / NS_PER_S),
                counted(len(coverage.terms), "term"),
            ),
            ("Sent", f"{coverage.begun:,}", f"{coverage.retried:,} tried again"),
            (
                "Acknowledged",
                f"{coverage.outcomes['ok']:,}",
                f"{not_looked_for:,} of them not looked for"
                if not_looked_for
                else "each looked for at the end",
            ),
            (
                "Not acknowledged",
                f"{coverage.outcomes['unknown'] + coverage.outcomes['fail']:,}",
                f"{coverage.outcomes['unknown']:,} unknown, {coverage.outcomes['fail']:,} surely not stored",
            ),
            ("Delivered", f"{coverage.delivered.total():,}", f"{coverage.commits:,} commits"),
            ("Faults", f"{len(coverage.faults):,}", f"{verified:,} seen to have happened"),
            ("Pairs at once", f"{len(coverage.pairs):,}", f"of {len(coverage.nemeses()):,} nemeses"),
            ("Longest gap", duration(longest / 1000), f"{counted(len(gaps), 'gap')}, {duration(silent)}"),
        ]
    )


def _shortfalls(judgement: Judgement) -> str:
    shortfalls = judgement.shortfalls()
    if not shortfalls:
        return ""
    told = "".join(f"<li>{html_text(text)}</li>" for text in shortfalls)
    return (
        f'<section class="card"><h2>What this run falls short of</h2><ul class="notes">{told}</ul></section>'
    )


def _timeline(judgement: Judgement, timeline: Timeline, whole: Window, numbers: dict[int, int]) -> str:
    leaders = leader_hues(timeline.reigns(judgement.end_ns))
    keys = [
        (_box("run-ok"), "acknowledged"),
        *(
            (_box(f"c{hue} s0"), f"led by {html_text(leader)}")
            for leader, hue in list(leaders.items())[: len(LEADER_HUES)]
        ),
        (_box("run-unknown"), "unknown"),
        (_box("run-failed"), "failed"),
        (_box("run-fault"), "a fault, seen to have happened"),
        (_box("run-fault unseen"), "a fault that nothing shows"),
        (_box("run-gap"), f"nothing acknowledged for {GAP_MS_MIN / 1000:g} s or more"),
        (_box("run-gap unexcused"), "the same, with nothing to excuse it"),
        (_box("run-still"), "the machine itself stood still"),
        (
            '<line class="run-violation" x1="7" x2="7" y1="0" y2="14"/>',
            "a broken promise, by its number below",
        ),
        *(
            [('<line class="run-phase" x1="7" x2="7" y1="0" y2="14"/>', html_text(_phases(timeline, whole)))]
            if timeline.phases
            else []
        ),
    ]
    legend = "".join(
        f'<li><svg class="key" width="14" height="14">{key}</svg>{told}</li>' for key, told in keys
    )
    return (
        f'<section class="card"><h2>What happened when</h2>{chart(judgement, timeline, whole, numbers)}'
        f'<ul class="legend">{legend}</ul>'
        f"{''.join(_close_ups(judgement, timeline, whole, numbers))}</section>"
    )


def _phases(timeline: Timeline, window: Window) -> str:
    return ", ".join(f"{told} at {window.clock(at_ns)}" for at_ns, told in timeline.phases)


def _box(css: str) -> str:
    return f'<rect class="{css}" x="1" y="1" width="12" height="12" rx="2"/>'


def _close_ups(
    judgement: Judgement, timeline: Timeline, whole: Window, numbers: dict[int, int]
) -> Sequence[str]:
    """Some ten minutes each, folded away."""
    count = round((whole.end_ns - whole.begin_ns) / CLOSE_UP_NS)
    if count < 2:
        return ()
    drawn = []
    for number in range(count):
        begin_ns = whole.begin_ns + number * CLOSE_UP_NS
        end_ns = begin_ns + CLOSE_UP_NS if number + 1 < count else whole.end_ns
        window = Window(begin_ns, end_ns, whole.origin_ns)
        broken = sum(
            violation.at_ns is not None and begin_ns <= violation.at_ns < window.end_ns
            for violation in judgement.violations
        )
        more = f": {counted(broken, 'broken promise')}" if broken else ""
        drawn.append(
            f"<details><summary>{window.clock(window.begin_ns)} to {window.clock(window.end_ns)}{more}</summary>"
            f"{chart(judgement, timeline, window, numbers)}</details>"
        )
    return drawn


def _violations(judgement: Judgement, window: Window) -> str:
    if not judgement.totals:
        return (
            '<section class="card"><h2>Broken promises</h2><p class="soft">None. Looked for: lost writes, phantoms, '
            "duplicates without a retry, order, inconsistent offsets, skips, polls and commits that go back, two "
            "leaders of a term, outages without a fault, transactions that end otherwise than was said, timers that "
            "come early or after their recall, messages that a filter is to let through or hold back, replies to "
            "another.</p></section>"
        )
    totals = "".join(
        f'<li class="error"><b>{count:,}</b>{escape(name.replace("_", " "))}</li>'
        for name, count in judgement.totals.most_common()
    )
    rows = [
        [
            ("number", f"{number:,}"),
            ("nowrap", escape(violation.checker.replace("_", " "))),
            ("number", window.clock(violation.at_ns) if violation.at_ns is not None else ""),
            ("what", f"{html_text(violation.sentence)}{_records(violation, window)}"),
            ("", html_text(_faults_on(judgement, violation.at_ns))),
        ]
        for number, violation in enumerate(judgement.violations, 1)
    ]
    columns = (("number", "No."), ("", "Kind"), ("number", "At"), ("", "What is there"), ("", "Faults on"))
    left_out = sum(judgement.totals.values()) - len(rows)
    more = (
        f'<p class="soft">{left_out:,} more are left out; the numbers above count them.</p>'
        if left_out
        else ""
    )
    return (
        f'<section class="card"><h2>Broken promises</h2><ul class="totals">{totals}</ul>{html_table(columns, rows)}'
        f"{more}</section>"
    )


def _faults_on(judgement: Judgement, at_ns: int | None) -> str:
    """What was on when it came to be; what is lost at the end is shown where its send ended."""
    if at_ns is None:
        return ""
    on = [
        f"{fault.begun.nemesis} {fault.begun.target}".strip()
        for fault in judgement.coverage.faults.values()
        if fault.begun.at_ns <= at_ns and (fault.ended_ns is None or at_ns <= fault.ended_ns)
    ]
    return listed(on) or "none"


def _records(violation: Violation, window: Window) -> str:
    """As they stand in the history, with the time on the axis in front."""
    if not violation.records:
        return ""
    told = "\n".join(
        f"{window.clock(record.at_ns)}  {html_text(msgspec.json.encode(record).decode())}"
        for record in violation.records
    )
    return (
        f"<details><summary>{counted(len(violation.records), 'record')}</summary><pre>{told}</pre></details>"
    )


def _gaps(gaps: Sequence[Gap], window: Window) -> str:
    if not gaps:
        return ""
    columns = (
        ("number", "At"),
        ("number", "Nothing acknowledged for"),
        ("number", "Without excuse"),
        ("number", "Machine stood still"),
        ("number", "Unknown"),
        ("number", "Failed"),
        ("", "Faults on"),
    )
    by_length = sorted(gaps, key=lambda gap: -gap.duration_ms)
    rows = [
        [
            ("number", window.clock(gap.begin_ns)),
            ("number", f"{gap.duration_ms / 1000:.1f} s"),
            ("number", _unexcused(gap)),
            ("number", f"{gap.standstill_ms / 1000:.1f} s" if gap.standstill_ms else ""),
            ("number", f"{gap.unknown:,}"),
            ("number", f"{gap.failed:,}"),
            ("long", html_text(gap.told_faults() or "none")),
        ]
        for gap in by_length[:GAPS_MAX]
    ]
    return (
        f'<section class="card"><h2>Gaps</h2><details{" open" if len(gaps) <= 12 else ""}><summary>'
        f"{counted(len(gaps), 'gap')} of {GAP_MS_MIN / 1000:g} s or more, the longest first</summary>"
        f"{html_table(columns, rows)}</details></section>"
    )


def _unexcused(gap: Gap) -> str:
    told = f"{gap.unexcused_ms / 1000:.1f} s"
    return f'<span class="tag error">{told}</span>' if gap.unexcused_ms >= GAP_MS_MIN else told


def _kinds(judgement: Judgement) -> str:
    rows = [
        [
            ("nowrap", f"<b>{html_text(row.name)}</b>"),
            *(("number", f"{row.outcomes[outcome]:,}" if row.outcomes else "") for outcome in OUTCOMES),
            ("what", html_text(row.told)),
        ]
        for row in judgement.kinds.rows()
    ]
    if not rows:
        return ""
    columns = (
        ("", "Kind"),
        ("number", "Acknowledged"),
        ("number", "Unknown"),
        ("number", "Surely not stored"),
        ("", "What became of them"),
    )
    return f'<section class="card"><h2>Beside plain messages</h2>{html_table(columns, rows)}</section>'


def _nemeses(judgement: Judgement) -> str:
    columns = (
        ("", "Nemesis"),
        ("number", "Begun"),
        ("number", "Seen"),
        ("number", "Altogether"),
        ("", "Targets"),
        ("", "Last evidence"),
    )
    rows = [
        [
            ("nowrap", f"<b>{html_text(name)}</b>"),
            ("number", f"{len(faults):,}"),
            ("number", f"{sum(fault.evidence is not None for fault in faults):,}"),
            ("number", duration(_lasted_s(faults, judgement.end_ns))),
            (
                "long",
                html_text(listed(sorted({fault.begun.target for fault in faults if fault.begun.target}), 7)),
            ),
            ("what", html_text(_evidence(faults))),
        ]
        for name, faults in judgement.coverage.nemeses().items()
    ]
    if not rows:
        return ""
    return f'<section class="card"><h2>Faults</h2>{html_table(columns, rows)}</section>'


def _lasted_s(faults: Sequence[Fault], end_ns: int) -> float:
    ends = (end_ns if fault.ended_ns is None else fault.ended_ns for fault in faults)
    return sum(until - fault.begun.at_ns for fault, until in zip(faults, ends, strict=True)) / NS_PER_S


def _evidence(faults: Sequence[Fault]) -> str:
    told = [fault.evidence for fault in faults if fault.evidence is not None]
    return told[-1] if told else "none"


def _footer() -> str:
    return (
        "<footer>Times are minutes and seconds since the run began. A fault counts as seen when something other than "
        "the command that began it says that it happened.</footer>"
    )
