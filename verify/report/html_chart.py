"""The drawing of an HTML report: which entries each replica holds, under which terms, and what is damaged.

Positions are percentages of the width and heights are pixels, so that one SVG fits a phone and a wide screen without
bending its letters. What is narrower than a slot is drawn as one: a thousand terms cost no more than some hundred.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from verify.report.text_report import is_indexed, size, span, visible
from verify.validation_report import DamagedRange, ReplicaSummary, TermRun, ValidationReport

SLOTS = 500
HUES = 6  # colours that html_style.py has for leaders; red is kept for damage
LANE_HEIGHT = 26
LABEL_SHARE = 4.5  # percent of the width that a term's number needs
LEADER_SHARE = 17.0  # and its leader's name as well
NUMBERED_TERMS = 60  # more than that are too narrow for a number
TICK_MARGIN = 0.12  # of the width, kept free for the first and the last number


@dataclass(frozen=True, slots=True)
class Axis:
    """From the first index (or byte) that any replica holds to behind the last one."""

    begin: int
    end: int
    unit: str  # "index" or "position"

    def share(self, value: int) -> float:
        """Percent of the width."""
        return 100.0 * (min(max(value, self.begin), self.end) - self.begin) / max(self.end - self.begin, 1)


@dataclass(frozen=True, slots=True)
class Lane:
    """What is drawn of one replica, in units of the axis; `end` is exclusive."""

    begin: int
    end: int
    runs: tuple[TermRun, ...]
    damaged: tuple[DamagedRange, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """One run of a term, or several that are too narrow to be told apart."""

    first_index: int
    last_index: int
    runs: tuple[TermRun, ...]


class Colours:
    """A hue for each leader and two shades that alternate; where no leader is known, a hue for each term."""

    def __init__(self, runs: Iterable[TermRun]) -> None:
        ordered = sorted(runs, key=lambda run: (run.term, run.leader_host))
        self._hues: dict[str, int] = {}
        self._shades: dict[tuple[int, str], int] = {}
        led: dict[str, int] = {}
        for run in ordered:
            if (run.term, run.leader_host) in self._shades:
                continue
            if run.leader_host:
                self._hues.setdefault(run.leader_host, len(self._hues) % HUES)
            self._shades[run.term, run.leader_host] = led.get(run.leader_host, 0) % 2
            led[run.leader_host] = led.get(run.leader_host, 0) + 1

    @property
    def leaders(self) -> dict[str, int]:
        """Leader to hue."""
        return self._hues

    def css_class(self, run: TermRun) -> str:
        hue = self._hues.get(run.leader_host, run.term % HUES)
        return f"c{hue} s{self._shades.get((run.term, run.leader_host), 0)}"


def axis_of(replicas: Sequence[ReplicaSummary]) -> Axis | None:
    """None where no replica holds an entry. Logs without indexes are drawn by position."""
    filled = [replica for replica in replicas if replica.entry_count]
    if not filled:
        return None
    if all(is_indexed(replica) for replica in filled):
        begin = min(replica.begin_index for replica in filled)
        return Axis(begin, max(replica.end_index for replica in filled) + 1, "index")
    return Axis(
        min(replica.begin_pos for replica in filled), max(replica.end_pos for replica in filled), "position"
    )


def lane_of(replica: ReplicaSummary, axis: Axis) -> Lane:
    if axis.unit == "position":
        return Lane(replica.begin_pos, replica.end_pos, (), ())
    return Lane(replica.begin_index, replica.end_index + 1, replica.term_runs, replica.damaged)


def bands(runs: Sequence[TermRun], axis: Axis) -> Iterator[Band]:
    """Runs in the order of the log; neighbours narrower than a slot are joined until they fill one."""
    width = max((axis.end - axis.begin) / SLOTS, 1e-9)
    held: list[TermRun] = []
    for run in runs:
        is_wide = run.last_index + 1 - run.first_index >= width
        if held and (is_wide or held[-1].last_index + 1 - held[0].first_index >= width):
            yield Band(held[0].first_index, held[-1].last_index, tuple(held))
            held = []
        held.append(run)
    if held:
        yield Band(held[0].first_index, held[-1].last_index, tuple(held))


def damage_marks(damaged: Sequence[DamagedRange], axis: Axis) -> list[tuple[int, int, list[str]]]:
    """(first index, last index, kinds) of what is drawn as one mark, from left to right."""
    width = (axis.end - axis.begin) / SLOTS
    marks: list[tuple[int, int, list[str]]] = []
    for one in sorted(damaged, key=lambda one: (one.first_index, one.last_index)):
        if marks and one.first_index - marks[-1][1] <= max(width, 1):
            first, last, kinds = marks[-1]
            marks[-1] = (
                first,
                max(last, one.last_index),
                kinds if one.kind in kinds else [*kinds, one.kind],
            )
        else:
            marks.append((one.first_index, one.last_index, [one.kind]))
    return marks


def chart(report: ValidationReport) -> str:
    """The whole figure as HTML; "" where there is nothing to draw."""
    axis = axis_of(report.replicas)
    if axis is None:
        return ""
    lanes = [lane_of(replica, axis) for replica in report.replicas]
    colours = Colours(run for lane in lanes for run in lane.runs)
    rows = [
        f'<div class="lane-name" title="{escape(visible(replica.directory))}">{escape(visible(name))}</div>'
        f"{_lane(replica, lane, axis, colours, report)}"
        for replica, name, lane in zip(report.replicas, lane_names(report.replicas), lanes, strict=True)
    ]
    return (
        f'<div class="chart">{"".join(rows)}<div class="lane-name"></div>{_scale(axis)}</div>'
        f"{_legend(report, axis, colours, lanes)}"
    )


def lane_names(replicas: Sequence[ReplicaSummary]) -> list[str]:
    """Short enough for the margin: of names that are paths what is not the same in all of them."""
    names = [replica.name for replica in replicas]
    are_paths = all("/" in name for name in names) and len({name.startswith("/") for name in names}) == 1
    if len(names) < 2 or not are_paths:
        return names
    common = posixpath.commonpath(names)
    own = [posixpath.relpath(name, common) for name in names]
    # All but a last part that they share: …/n0/store is n0.
    parents = [posixpath.dirname(name) for name in own]
    ends = {posixpath.basename(name) for name in own}
    return parents if len(ends) == 1 and all(parents) and len(set(parents)) == len(names) else own


def _lane(replica: ReplicaSummary, lane: Lane, axis: Axis, colours: Colours, report: ValidationReport) -> str:
    height = LANE_HEIGHT
    parts = [f'<rect class="track" width="100%" height="{height}" rx="4"/>']
    if replica.entry_count:
        parts.append(_box(axis, lane.begin, lane.end, f'class="held" height="{height}"', ""))
    for band in bands(lane.runs, axis):
        parts += _band(band, axis, colours, height)
    for first, last, kinds in damage_marks(lane.damaged, axis):
        told = f"index {span(first, last)}: {', '.join(kinds)}"
        parts.append(_box(axis, first, last + 1, f'class="bad" height="{height}"', told))
        parts.append(
            f'<svg x="{(axis.share(first) + axis.share(last + 1)) / 2:.3f}%" overflow="visible">'
            f'<path class="flag" d="M0 2l-5-8h10z"><title>{escape(told)}</title></path></svg>'
        )
    if axis.unit == "index" and report.committed_index >= axis.begin:
        at = f"{axis.share(report.committed_index + 1):.3f}%"
        parts.append(f'<line class="commit" x1="{at}" x2="{at}" y1="-7" y2="{height + 7}"/>')
    name = f"{visible(replica.name)}: {axis.unit} {span(lane.begin, lane.end - 1)}"
    label = escape(name if replica.entry_count else f"{visible(replica.name)}: empty")
    return f'<svg class="lane" height="{height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _band(band: Band, axis: Axis, colours: Colours, height: int) -> Iterator[str]:
    # The widest of several that share a band gives it its colour.
    main = max(band.runs, key=lambda run: run.last_index - run.first_index)
    if len(band.runs) == 1:
        leader = f", led by {visible(main.leader_host)}" if main.leader_host else ""
        told = f"term {main.term}{leader}: index {span(main.first_index, main.last_index)}"
    else:
        told = (
            f"terms {span(band.runs[0].term, band.runs[-1].term)}: "
            f"index {span(band.first_index, band.last_index)}"
        )
    yield _box(
        axis,
        band.first_index,
        band.last_index + 1,
        f'class="{colours.css_class(main)}" height="{height}"',
        told,
    )
    share = axis.share(band.last_index + 1) - axis.share(band.first_index)
    if len(band.runs) == 1 and share >= LABEL_SHARE:
        middle = (axis.share(band.last_index + 1) + axis.share(band.first_index)) / 2
        leader = visible(main.leader_host) if share >= LEADER_SHARE else ""
        narrow = " wide-only" if share < 3 * LABEL_SHARE else ""
        yield (
            f'<text class="band{narrow}" x="{middle:.3f}%" y="{height / 2 + 4:.0f}">{main.term}'
            + (f'<tspan class="wide-only" dx="6">{escape(leader)}</tspan>' if leader else "")
            + "</text>"
        )


def _box(axis: Axis, begin: int, end: int, attributes: str, told: str) -> str:
    left, right = axis.share(begin), axis.share(end)
    title = f"<title>{escape(told)}</title>" if told else ""
    return f'<rect x="{left:.3f}%" width="{right - left:.3f}%" {attributes}>{title}</rect>'


def _scale(axis: Axis) -> str:
    """The first and the last value, and round ones between them."""
    first, last = axis.begin, axis.end - 1
    ticks = [("start", 0.0, first, "")]
    ticks += [("middle", axis.share(value), value, " wide-only") for value in round_values(first, last)]
    ticks += [("end", 100.0, last, "")] if last > first else []
    told = "".join(
        f'<text class="tick{css}" text-anchor="{anchor}" x="{share:.3f}%" y="14">'
        f"{size(value) if axis.unit == 'position' else f'{value:,}'}</text>"
        for anchor, share, value, css in ticks
    )
    return f'<svg class="scale" height="18" aria-hidden="true">{told}</svg>'


def round_values(first: int, last: int) -> list[int]:
    """Multiples of 1, 2 or 5 times a power of ten, up to six of them and none near the ends."""
    length = last - first
    step = next(
        step
        for exponent in itertools.count()
        for step in (10**exponent, 2 * 10**exponent, 5 * 10**exponent)
        if length <= 6 * step
    )
    margin = length * TICK_MARGIN
    return [
        value
        for value in range(-(-first // step) * step, last, step)
        if first + margin <= value <= last - margin
    ]


def _legend(report: ValidationReport, axis: Axis, colours: Colours, lanes: Sequence[Lane]) -> str:
    parts = [
        f'<li><svg class="key" width="14" height="14"><rect class="c{hue} s0" width="14" height="14" rx="3"/></svg>'
        f"led by {escape(visible(leader))}</li>"
        for leader, hue in list(colours.leaders.items())[: 2 * HUES]
    ]
    if any(lane.runs for lane in lanes):
        terms = {run.term for lane in lanes for run in lane.runs}
        several = f"{len(terms):,} terms, {min(terms):,} to {max(terms):,}" if len(terms) > 1 else "1 term"
        readable = "; the number in a band is its term" if len(terms) <= NUMBERED_TERMS else ""
        parts.insert(0, f"<li>{several}{readable}</li>")
    if axis.unit == "index" and report.committed_index >= axis.begin:
        parts.append(
            '<li><svg class="key" width="14" height="14"><line class="commit" x1="7" x2="7" y1="0" y2="14"/></svg>'
            f"committed up to {report.committed_index:,}</li>"
        )
    if any(lane.damaged for lane in lanes):
        parts.append(
            '<li><svg class="key" width="14" height="14"><path class="flag" d="M7 12l-6-9h12z"/></svg>damage</li>'
        )
    return f'<ul class="legend">{"".join(parts)}</ul>'
