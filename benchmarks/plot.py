"""The plot of a benchmark: one SVG that needs nothing else, light or dark as its reader has it.

A panel per size and mode shows messages per second over the number of connections, a bar per system; the last ones
show latencies. Each panel has its own scale, which begins at zero.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from figures import FAR_MODES, Record, Results, is_disturbed, number

PANEL_WIDTH = 570
PANEL_HEIGHT = 170
TITLE_HEIGHT = 34
FOOT_HEIGHT = 40
GAP = 22
HEAD_HEIGHT = 58
COLUMNS = 2
VALUE_WIDTH = 24  # a narrower bar has no number
LAST = 1 << 30  # behind all sizes
PLOTTED_SIZE = 1024  # of latencies

STYLE = """
svg { --page: #fff; --ink: #16202c; --soft: #5a6675; --line: #e1e5ea;
  --c0: #3f6fd8; --c1: #a2690f; --c2: #0e827d; --c3: #8a5bd0; --c4: #a8487f; --c5: #4d7c2e;
  background: var(--page); font: 12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) { svg { --page: #11161d; --ink: #e7ebf0; --soft: #9aa6b4; --line: #2b3542;
  --c0: #5b87e6; --c1: #c98f3a; --c2: #27a39c; --c3: #9d77dc; --c4: #c2649a; --c5: #6f9f4e; } }
text { fill: var(--ink); } .soft { fill: var(--soft); } .title { font-weight: 600; font-size: 14px; }
.middle { text-anchor: middle; } .end { text-anchor: end; } .value { font-size: 10px; }
.grid { stroke: var(--line); } .c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); }
.c3 { fill: var(--c3); } .c4 { fill: var(--c4); } .c5 { fill: var(--c5); } .disturbed { fill-opacity: .45; }
"""


@dataclass(frozen=True)
class Panel:
    """`groups`: what stands under a group of bars, and each system's value; `disturbed`: what to draw pale."""

    title: str
    unit: str
    groups: list[tuple[str, dict[str, tuple[float, bool]]]]


def panels(results: Results) -> list[Panel]:
    rows = results.rows()
    sends: dict[tuple[int, str], Panel] = {}
    for (mode, line), row in rows.items():
        if (first := _first(row)).get("kind") == "rate":
            key, title = (
                (LAST, line) if mode in FAR_MODES else (first["size"], f"{mode}, {size_name(first['size'])}")
            )
            panel = sends.setdefault((key, title), Panel(title, "messages/s", []))
            panel.groups.append(
                (mode if mode in FAR_MODES else _connections(first), _values(row, "msgs_per_s"))
            )
    made = [sends[key] for key in sorted(sends, key=lambda key: key[0])]
    for title, kind, figure in (
        (f"one sender, {size_name(PLOTTED_SIZE)}, p50", "one", "p50_ms"),
        ("from send to a waiting group, p99", "tail", "p99_ms"),
        ("a lone sender beside 63 busy ones, p99", "lone", "lone_p99_ms"),
    ):
        groups = [
            (f"{mode}, {line.split(',')[0]}" if kind == "tail" else mode, _values(row, figure))
            for (mode, line), row in rows.items()
            if _first(row).get("kind") == kind and _first(row)["size"] == PLOTTED_SIZE
        ]
        if groups:
            made.append(Panel(title, "ms", groups))
    return made


def _first(row: dict[str, Record]) -> Record:
    return next((figures for figures in row.values() if "error" not in figures), {})


def _connections(first: Record) -> str:
    return f"{first['senders']} on {first['conns'] if first['conns'] > 1 else 'one'}"


def _values(row: dict[str, Record], figure: str) -> dict[str, tuple[float, bool]]:
    return {
        system: (figures[figure], is_disturbed(figures))
        for system, figures in row.items()
        if "error" not in figures and figure in figures
    }


def size_name(size: int) -> str:
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


def svg(results: Results) -> str:
    drawn = panels(results)
    row_count = -(-len(drawn) // COLUMNS)
    width = COLUMNS * PANEL_WIDTH + (COLUMNS + 1) * GAP
    row_height = TITLE_HEIGHT + PANEL_HEIGHT + FOOT_HEIGHT
    height = HEAD_HEIGHT + row_count * row_height + GAP
    hues = {system: f"c{number % 6}" for number, system in enumerate(results.systems)}
    parts = list(_legend(hues))
    for place, panel in enumerate(drawn):
        left = GAP + place % COLUMNS * (PANEL_WIDTH + GAP)
        top = HEAD_HEIGHT + place // COLUMNS * row_height
        parts.append(f'<g transform="translate({left} {top})">{"".join(_panel(panel, hues))}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="messages per second and latencies"><style>{STYLE}</style>'
        f'<rect width="{width}" height="{height}" style="fill: var(--page)"/>{"".join(parts)}</svg>\n'
    )


def _legend(hues: dict[str, str]) -> Iterator[str]:
    left = GAP
    for system, hue in hues.items():
        yield f'<rect class="{hue}" x="{left}" y="18" width="14" height="14" rx="3"/>'
        yield f'<text x="{left + 20}" y="30" font-size="14">{escape(system)}</text>'
        left += 50 + 8 * len(system)
    yield f'<text class="soft" x="{left}" y="30">pale: something else used the machine meanwhile</text>'


def _panel(panel: Panel, hues: dict[str, str]) -> Iterator[str]:
    highest = max((value for _, values in panel.groups for value, _ in values.values()), default=0.0)
    bottom = TITLE_HEIGHT + PANEL_HEIGHT
    yield f'<text class="title" y="14">{escape(panel.title)}</text>'
    yield f'<text class="soft end" x="{PANEL_WIDTH}" y="14">{panel.unit}</text>'
    yield f'<line class="grid" x1="0" x2="{PANEL_WIDTH}" y1="{bottom}" y2="{bottom}"/>'
    share = PANEL_WIDTH / len(panel.groups)
    for place, (name, values) in enumerate(panel.groups):
        shown = [system for system in hues if system in values]
        bar = min(0.86 * share / max(len(shown), 1), 44)
        left = place * share + (share - bar * len(shown)) / 2
        for number_, system in enumerate(shown):
            value, disturbed = values[system]
            tall = (PANEL_HEIGHT - 14) * value / max(highest, 1e-9)
            x = left + number_ * bar
            css = f"{hues[system]} disturbed" if disturbed else hues[system]
            yield (
                f'<rect class="{css}" x="{x + 1:.1f}" y="{bottom - tall:.1f}" width="{bar - 2:.1f}" '
                f'height="{tall:.1f}"><title>{escape(f"{system}: {number(value)} {panel.unit}")}</title></rect>'
            )
            if bar >= VALUE_WIDTH:
                middle = x + bar / 2
                yield f'<text class="value middle" x="{middle:.1f}" y="{bottom - tall - 3:.1f}">{_brief(value)}</text>'
        yield from _name(name, (place + 0.5) * share, bottom)


def _name(name: str, middle: float, bottom: int) -> Iterator[str]:
    for number_, part in enumerate(name.split(", ")):
        y = bottom + 15 + 13 * number_
        yield f'<text class="soft middle" x="{middle:.1f}" y="{y}">{escape(part)}</text>'


def _brief(value: float) -> str:
    return f"{value / 1000:.1f}k" if value >= 1000 else number(value)
