"""The drawing of a run: lanes under one axis of time, as one SVG.

Places on the axis are percentages of the width and heights are pixels, so that it fits a phone and a wide screen
without bending its letters. Curves alone are stretched. What is narrower than a hair is drawn as one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from faults.checkers.availability import GAP_MS_MIN, Gap
from faults.checkers.checker import Violation
from faults.coverage import Fault
from faults.history import Standstill
from faults.judge import Judgement
from faults.reigns import Reign
from faults.timeline import NS_PER_S, Bucket, Timeline
from verify.report.text_report import visible

BUCKETS: Final = 600
LEADER_HUES: Final = 1, 2, 4, 5  # of html_style.py's colours; those of sends are not among them
SPACE: Final = 10  # between lanes
TWO_LINES: Final = 20  # a lane that is lower has name and note side by side
HAIR: Final = 0.14  # percent of the width; nothing is narrower
MARK_SHARE: Final = 1.1  # of the width that a mark in a fault's bar needs
TERM_SHARE: Final = 2.2  # that a term's number needs
LEADER_SHARE: Final = 6.0  # and its leader's name as well
FLAG_SHARE: Final = 2.7  # nearer violations share a flag


@dataclass(frozen=True, slots=True)
class Lane:
    """`draw` gets where the lane's top is. `note` stands under the name, small."""

    name: str
    note: str
    height: int
    draw: Callable[[int], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the run that is drawn."""

    begin_ns: int
    end_ns: int
    origin_ns: int  # what the axis calls 0:00

    def share(self, at_ns: int) -> float:
        """Percent of the width."""
        inside = min(max(at_ns, self.begin_ns), self.end_ns) - self.begin_ns
        return 100.0 * inside / max(self.end_ns - self.begin_ns, 1)

    def meets(self, begin_ns: int, end_ns: int) -> bool:
        return begin_ns < self.end_ns and end_ns >= self.begin_ns

    def clock(self, at_ns: int) -> str:
        """Minutes and seconds since the run began; before it with a minus."""
        tenths = round((at_ns - self.origin_ns) * 10 / NS_PER_S)
        minutes, rest = divmod(abs(tenths), 600)
        return f"{'-' if tenths < 0 else ''}{minutes}:{rest / 10:04.1f}"


def chart(judgement: Judgement, timeline: Timeline, window: Window, numbers: dict[int, int]) -> str:
    """`numbers`: the id() of each violation to its number in the list below the drawing."""
    lanes = [
        *_send_lanes(timeline.buckets(window.begin_ns, window.end_ns, BUCKETS)),
        *_leader_lanes(timeline.reigns(judgement.end_ns), window),
        *_machine_lane(timeline.standstills, window),
        *(
            _nemesis_lane(name, faults, window, judgement.end_ns)
            for name, faults in judgement.coverage.nemeses().items()
        ),
    ]
    height = sum(lane.height + SPACE for lane in lanes) + 12
    tops = [14 + sum(lane.height + SPACE for lane in lanes[:number]) for number in range(len(lanes))]
    drawn = [
        *(
            f'<rect class="track" y="{top}" width="100%" height="{lane.height}" rx="3"/>'
            for lane, top in zip(lanes, tops, strict=True)
        ),
        *_gaps(judgement.availability.gaps, window, height),
        *(part for lane, top in zip(lanes, tops, strict=True) for part in lane.draw(top)),
        *_phases(timeline.phases, window, height),
        *_flags(judgement.violations, window, height, numbers),
        *_ticks(window, height + 14),
    ]
    names = "".join(map(_lane_name, lanes))
    return (
        f'<div class="run"><div class="run-names">{names}</div>'
        f'<svg class="run-chart" height="{height + 24}" role="img" aria-label="timeline">{"".join(drawn)}</svg></div>'
    )


def _lane_name(lane: Lane) -> str:
    low = " low" if lane.height < TWO_LINES else ""
    return (
        f'<div class="run-lane{low}" style="height:{lane.height + SPACE}px"><b>{escape(visible(lane.name))}</b>'
        f"<small>{escape(lane.note)}</small></div>"
    )


def _send_lanes(buckets: Sequence[Bucket]) -> Iterator[Lane]:
    most = max((bucket.acknowledged for bucket in buckets), default=0.0)
    yield Lane(
        "acknowledged",
        f"up to {most:,.0f}/s",
        64,
        lambda top: [_area([bucket.acknowledged for bucket in buckets], most, top, 64, "run-ok")],
    )
    bad = max((bucket.failed + bucket.unknown for bucket in buckets), default=0.0)
    yield Lane(
        "unknown, failed",
        f"up to {bad:,.{0 if bad >= 10 else 1}f}/s" if bad else "none",
        34,
        lambda top: [
            _area([bucket.failed + bucket.unknown for bucket in buckets], bad, top, 34, "run-unknown"),
            _area([bucket.failed for bucket in buckets], bad, top, 34, "run-failed"),
        ],
    )
    slow = max((bucket.slowest_ms for bucket in buckets), default=0.0)
    yield Lane(
        "slowest",
        f"up to {slow / 1000:,.1f} s" if slow >= 1000 else f"up to {slow:,.0f} ms",
        34,
        lambda top: [_area([bucket.slowest_ms for bucket in buckets], slow, top, 34, "run-slow")],
    )


def _area(values: Sequence[float], most: float, top: int, height: int, css: str) -> str:
    """Steps from the left to the right edge, stretched to the width."""
    if not values or not most:
        return ""
    points = []
    before = None
    for at, value in enumerate(values):
        y = round(100 - 100 * value / most, 1)
        if y != before:
            points.append(f"H{at}V{y:g}")
            before = y
    return (
        f'<svg y="{top}" width="100%" height="{height}" viewBox="0 0 {len(values)} 100" preserveAspectRatio="none">'
        f'<path class="{css}" d="M0 100{"".join(points)}H{len(values)}V100z"/></svg>'
    )


def leader_hues(reigns: dict[str, list[Reign]]) -> dict[str, int]:
    leaders = sorted({reign.leader for of_group in reigns.values() for reign in of_group})
    return {leader: LEADER_HUES[number % len(LEADER_HUES)] for number, leader in enumerate(leaders)}


def _leader_lanes(reigns: dict[str, list[Reign]], window: Window) -> Iterator[Lane]:
    hues = leader_hues(reigns)
    for broker, of_group in reigns.items():
        note = f"{len(of_group):,} terms" if len(of_group) > 1 else "1 term"
        yield Lane(
            "leader" if len(reigns) == 1 else f"leader, {broker}",
            note,
            24,
            functools.partial(_reigns, of_group, hues, window),
        )


def _reigns(of_group: Sequence[Reign], hues: dict[str, int], window: Window, top: int) -> Iterator[str]:
    for number, reign in enumerate(of_group):
        if not window.meets(reign.begin_ns, reign.end_ns):
            continue
        left, right = window.share(reign.begin_ns), window.share(reign.end_ns)
        told = f"term {reign.term}, led by {visible(reign.leader)}, from {window.clock(reign.begin_ns)}"
        yield (
            f'<rect class="c{hues[reign.leader]} s{number % 2}" x="{left:.3f}%" y="{top}" '
            f'width="{max(right - left, HAIR):.3f}%" height="24"><title>{escape(told)}</title></rect>'
        )
        if right - left >= TERM_SHARE:
            name = visible(reign.leader) if right - left >= LEADER_SHARE else ""
            css = "band" if right - left >= 3 * TERM_SHARE else "band wide-only"
            yield (
                f'<text class="{css}" x="{(left + right) / 2:.3f}%" y="{top + 16}">{reign.term}'
                + (f'<tspan class="wide-only" dx="5">{escape(name)}</tspan>' if name else "")
                + "</text>"
            )


def _machine_lane(standstills: Sequence[Standstill], window: Window) -> Iterator[Lane]:
    if standstills:
        seconds = max(one.at_ns - one.begun_ns for one in standstills) / NS_PER_S
        note = f"{len(standstills):,}, up to {seconds:.1f} s"
        yield Lane("standstills", note, 16, functools.partial(_standstills, standstills, window))


def _standstills(standstills: Sequence[Standstill], window: Window, top: int) -> Iterator[str]:
    for one in standstills:
        if window.meets(one.begun_ns, one.at_ns):
            left = window.share(one.begun_ns)
            width = max(window.share(one.at_ns) - left, HAIR)
            seconds = (one.at_ns - one.begun_ns) / NS_PER_S
            told = (
                f"the machine's {one.of} stood still for {seconds:.1f} s from {window.clock(one.begun_ns)} on"
            )
            yield (
                f'<rect class="run-still" x="{left:.3f}%" y="{top + 1}" width="{width:.3f}%" height="14" rx="2">'
                f"<title>{escape(told)}</title></rect>"
            )


def _nemesis_lane(name: str, faults: Sequence[Fault], window: Window, end_ns: int) -> Lane:
    verified = sum(fault.evidence is not None for fault in faults)
    return Lane(
        name.replace("_", " "),
        f"{verified} of {len(faults)} seen",
        16,
        lambda top: _faults(faults, window, top, end_ns),
    )


def _faults(faults: Sequence[Fault], window: Window, top: int, end_ns: int) -> Iterator[str]:
    for fault in faults:
        begin_ns, until_ns = fault.begun.at_ns, end_ns if fault.ended_ns is None else fault.ended_ns
        if not window.meets(begin_ns, until_ns):
            continue
        left = window.share(begin_ns)
        width = max(window.share(until_ns) - left, HAIR)
        seen = f"seen: {fault.evidence}" if fault.evidence is not None else "NOT seen to have happened"
        told = (
            f"{fault.begun.nemesis} {fault.begun.target}, {window.clock(begin_ns)} to "
            f"{window.clock(until_ns) if fault.ended_ns is not None else 'the end'}; {seen}"
        )
        css = "run-fault" if fault.evidence is not None else "run-fault unseen"
        yield (
            f'<rect class="{css}" x="{left:.3f}%" y="{top + 1}" width="{width:.3f}%" height="14" rx="2">'
            f"<title>{escape(visible(told))}</title></rect>"
        )
        if width >= MARK_SHARE:
            mark = "✓" if fault.evidence is not None else "?"
            yield (
                f'<text class="run-mark{"" if fault.evidence is not None else " unseen"} wide-only" '
                f'x="{left + width / 2:.3f}%" y="{top + 12}">{mark}</text>'
            )


def _gaps(gaps: Iterable[Gap], window: Window, height: int) -> Iterator[str]:
    for gap in gaps:
        if window.meets(gap.begin_ns, gap.end_ns):
            left = window.share(gap.begin_ns)
            width = max(window.share(gap.end_ns) - left, HAIR)
            bad = " unexcused" if gap.unexcused_ms >= GAP_MS_MIN else ""
            told = f"nothing acknowledged for {gap.duration_ms / 1000:.1f} s from {window.clock(gap.begin_ns)} on"
            yield (
                f'<rect class="run-gap{bad}" x="{left:.3f}%" y="14" width="{width:.3f}%" height="{height - 14}">'
                f"<title>{escape(told)}</title></rect>"
            )


def _phases(phases: Sequence[tuple[int, str]], window: Window, height: int) -> Iterator[str]:
    for at_ns, told in phases:
        if window.meets(at_ns, at_ns):
            at = window.share(at_ns)
            yield (
                f'<line class="run-phase" x1="{at:.3f}%" x2="{at:.3f}%" y1="14" y2="{height}">'
                f"<title>{escape(told)} at {window.clock(at_ns)}</title></line>"
            )


def _flags(
    violations: Sequence[Violation], window: Window, height: int, numbers: dict[int, int]
) -> Iterator[str]:
    """A red line each; a flag with its number, where there is room for one."""
    flag_at = -FLAG_SHARE
    for violation in violations:
        if violation.at_ns is None or not window.meets(violation.at_ns, violation.at_ns):
            continue
        number, at = numbers[id(violation)], window.share(violation.at_ns)
        yield (
            f'<line class="run-violation" x1="{at:.3f}%" x2="{at:.3f}%" y1="12" y2="{height}">'
            f"<title>{number}: {escape(visible(violation.sentence))}</title></line>"
        )
        if at - flag_at >= FLAG_SHARE:
            flag_at = at
            width = max(22, 8 + 7 * len(f"{number}"))
            yield (
                f'<svg x="{at:.3f}%" overflow="visible">'
                f'<rect class="run-flag" x="{-width / 2:g}" y="-4" width="{width}" height="17" rx="4"/>'
                f'<text class="run-number" y="9">{number}</text></svg>'
            )


def _ticks(window: Window, y: int) -> Iterator[str]:
    length_s = (window.end_ns - window.begin_ns) / NS_PER_S
    step_s = next((step for step in (5, 10, 30, 60, 120, 300, 600, 1800) if length_s <= 13 * step), 3600)
    first = -(-(window.begin_ns - window.origin_ns) // (step_s * NS_PER_S))
    for count in range(first, first + 15):
        at_ns = window.origin_ns + count * step_s * NS_PER_S
        if at_ns > window.end_ns:
            return
        share = window.share(at_ns)
        anchor = "start" if share < 2 else "end" if share > 98 else "middle"
        narrow = " wide-only" if count % 2 else ""
        minutes, seconds = divmod(count * step_s, 60)
        yield f'<line class="run-tick" x1="{share:.3f}%" x2="{share:.3f}%" y1="14" y2="{y - 14}"/>'
        yield (
            f'<text class="tick{narrow}" text-anchor="{anchor}" x="{share:.3f}%" y="{y + 6}">'
            f"{minutes}:{seconds:02}</text>"
        )
