"""The looks of an HTML report: light and dark, wide and narrow, on paper. Nothing is fetched from anywhere."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --page: #f5f6f8; --card: #fff; --ink: #16202c; --soft: #5a6675; --line: #e1e5ea; --track: #eef0f3; --held: #c9d0d8;
  --good: #12805c; --good-back: #e5f5ee; --bad: #c8252b; --bad-back: #fdecec; --note: #7a5b00; --note-back: #fdf3d8;
  --c0: #3f6fd8; --c0b: #2d53aa; --c1: #0e827d; --c1b: #0a615d; --c2: #8a5bd0; --c2b: #6a40ab;
  --c3: #a2690f; --c3b: #7d500a; --c4: #4d7c2e; --c4b: #395e20; --c5: #a8487f; --c5b: #823361;
  --shadow: 0 1px 2px #1420301a, 0 4px 16px #1420300d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #11161d; --card: #1a212b; --ink: #e7ebf0; --soft: #9aa6b4; --line: #2b3542; --track: #232c38;
    --held: #465464; --good: #4cc79a; --good-back: #14352b; --bad: #ff6f70; --bad-back: #3b1d20; --note: #e5bd57;
    --note-back: #352c14; --c0: #4873cf; --c0b: #3559a8; --c1: #168680; --c1b: #106560; --c2: #845bc4;
    --c2b: #66439c; --c3: #a87426; --c3b: #80571a; --c4: #557f39; --c4b: #416229; --c5: #9f4c7d; --c5b: #7b385f;
    --shadow: none;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 32px 20px 64px; }
h1, h2, p { margin: 0; }
h2 { font-size: 17px; margin: 0 0 14px; }
.soft { color: var(--soft); }
.eyebrow { display: flex; flex-wrap: wrap; gap: 2px 18px; color: var(--soft); font-size: 13px; margin-bottom: 12px; }
.eyebrow b { color: var(--ink); font-weight: 600; }
.card, .verdict {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px; box-shadow: var(--shadow);
  padding: 20px 22px; margin-top: 18px; min-width: 0;
}
.verdict { display: flex; gap: 18px; align-items: flex-start; margin-top: 0; border-left-width: 6px; }
.verdict.good { border-left-color: var(--good); background: linear-gradient(90deg, var(--good-back), var(--card) 55%); }
.verdict.bad { border-left-color: var(--bad); background: linear-gradient(90deg, var(--bad-back), var(--card) 55%); }
.verdict h1 { font-size: clamp(20px, 3.2vw, 30px); line-height: 1.2; letter-spacing: -.01em; overflow-wrap: anywhere; }
.verdict p { margin-top: 6px; color: var(--soft); overflow-wrap: anywhere; }
.mark { flex: none; width: 44px; height: 44px; }
.good .mark circle { fill: var(--good); } .bad .mark circle { fill: var(--bad); }
.mark path { stroke: var(--card); stroke-width: 4; fill: none; stroke-linecap: round; stroke-linejoin: round; }
.facts { display: flex; flex-wrap: wrap; gap: 1px; padding: 0; background: var(--line); overflow: hidden; }
.facts div { background: var(--card); padding: 14px 18px; flex: 1 1 auto; min-width: 138px; }
.facts dt { color: var(--soft); font-size: 12.5px; }
.facts dd { margin: 0; font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; white-space: nowrap; }
.facts small { display: block; font-size: 12.5px; font-weight: 400; color: var(--soft); }
.chart {
  display: grid; grid-template-columns: minmax(28px, max-content) minmax(0, 1fr); gap: 18px 14px; padding-top: 8px;
}
.lane-name {
  font-weight: 600; align-self: center; max-width: 22vw; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
}
svg.lane, svg.scale { width: 100%; display: block; overflow: visible; }
svg.scale { margin-top: -8px; }
.track { fill: var(--track); } .held { fill: var(--held); }
rect.bad { fill: var(--bad); stroke: var(--bad); stroke-width: 2; } .flag { fill: var(--bad); }
.commit { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 3 3; }
.c0.s0 { fill: var(--c0); } .c0.s1 { fill: var(--c0b); } .c1.s0 { fill: var(--c1); } .c1.s1 { fill: var(--c1b); }
.c2.s0 { fill: var(--c2); } .c2.s1 { fill: var(--c2b); } .c3.s0 { fill: var(--c3); } .c3.s1 { fill: var(--c3b); }
.c4.s0 { fill: var(--c4); } .c4.s1 { fill: var(--c4b); } .c5.s0 { fill: var(--c5); } .c5.s1 { fill: var(--c5b); }
text { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
text.band { fill: #fff; text-anchor: middle; font-weight: 600; pointer-events: none; }
text.band tspan { font-weight: 400; }
.legend {
  display: flex; flex-wrap: wrap; gap: 4px 20px; list-style: none; margin: 14px 0 0; padding: 0; color: var(--soft);
  font-size: 13px;
}
.legend li { overflow-wrap: anywhere; } .key { vertical-align: -2px; margin-right: 7px; }
.totals { list-style: none; display: flex; flex-wrap: wrap; gap: 8px; padding: 0; margin: 0 0 16px; }
.totals li, .tag { border-radius: 99px; padding: 3px 12px; font-size: 13.5px; white-space: nowrap; }
.error { color: var(--bad); background: var(--bad-back); } .info { color: var(--note); background: var(--note-back); }
.totals b { font-variant-numeric: tabular-nums; margin-right: 4px; }
.tag { padding: 1px 9px; font-size: 12.5px; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 12.5px; white-space: nowrap; }
th, td { padding: 8px 18px 8px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.nowrap { white-space: nowrap; }
td.what { min-width: 260px; overflow-wrap: anywhere; }
td.long { overflow-wrap: anywhere; min-width: 90px; }
td.where { overflow-wrap: anywhere; min-width: 250px; } td.where div > * { display: block; }
code {
  font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere;
}
details { margin-top: 16px; } summary { cursor: pointer; color: var(--soft); font-size: 14px; }
details[open] summary { margin-bottom: 8px; }
ul.notes { margin: 0; padding-left: 20px; } ul.notes li { margin: 4px 0; overflow-wrap: anywhere; }
footer { margin-top: 22px; color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
@media (max-width: 700px) {
  main { padding: 16px 12px 40px; }
  .card, .verdict { padding: 16px 14px; border-radius: 10px; }
  .facts { padding: 0; }
  .facts div { padding: 11px 14px; } .facts dd { font-size: 17px; }
  .wide-only { display: none; }
  .mark { width: 32px; height: 32px; }
  .verdict { gap: 12px; }
  table.cards thead { display: none; }
  table.cards tr { display: block; padding: 12px 0; border-bottom: 1px solid var(--line); }
  table.cards tr:last-child { border-bottom: 0; }
  table.cards td {
    display: grid; grid-template-columns: 92px minmax(0, 1fr); gap: 10px; border: 0; padding: 2px 0; text-align: left;
    white-space: normal; overflow-wrap: anywhere; min-width: 0;
  }
  table.cards td::before { content: attr(data-label); color: var(--soft); font-size: 12.5px; }
  table.cards td.none { display: none; }
  table.cards .tag { justify-self: start; }
  table.cards td > div { min-width: 0; }
}
@media print {
  body { background: none; } main { max-width: none; padding: 0; }
  .card, .verdict { box-shadow: none; break-inside: avoid; }
}
"""
