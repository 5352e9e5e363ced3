"""What a fault run's report has beyond the looks that all reports share."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
main { max-width: 1360px; }
.facts { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); }
.verdict.short {
  border-left-color: var(--note); background: linear-gradient(90deg, var(--note-back), var(--card) 55%);
}
.short .mark circle { fill: var(--note); }
.run { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0 16px; }
.run-names { padding-top: 9px; }
.run-lane {
  display: flex; flex-direction: column; justify-content: center; line-height: 1.15; font-size: 13px;
  max-width: 25vw; white-space: nowrap; overflow: hidden;
}
.run-lane b { font-weight: 600; overflow: hidden; text-overflow: ellipsis; }
.run-lane small { color: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
.run-lane.low { flex-direction: row; gap: 8px; justify-content: space-between; align-items: center; font-size: 12.5px; }
svg.run-chart { width: 100%; display: block; overflow: visible; }
.run-ok { fill: var(--c0); } .run-slow { fill: var(--c0b); }
.run-unknown { fill: var(--c3); } .run-failed { fill: var(--bad); }
.run-fault { fill: var(--soft); } .run-fault.unseen { fill: none; stroke: var(--bad); stroke-dasharray: 3 2; }
.run-still { fill: var(--ink); fill-opacity: .6; }
.run-phase { stroke: var(--ink); stroke-opacity: .45; stroke-dasharray: 2 3; }
.run-gap { fill: var(--bad); fill-opacity: .13; } .run-gap.unexcused { fill-opacity: .42; }
.run-violation { stroke: var(--bad); stroke-width: 1.5; }
.run-flag { fill: var(--bad); } text.run-number { fill: var(--card); font-weight: 700; text-anchor: middle; }
text.run-mark { fill: var(--card); font-size: 10px; text-anchor: middle; pointer-events: none; }
text.run-mark.unseen { fill: var(--bad); }
.run-tick { stroke: var(--ink); stroke-opacity: .09; }
pre {
  margin: 0; padding: 10px 12px; background: var(--track); border-radius: 8px; white-space: pre-wrap;
  overflow-wrap: anywhere; font: 12px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
td details { margin-top: 6px; }
@media (max-width: 700px) { .facts { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
@media (max-width: 700px) { .facts small { white-space: normal; } }
@media (max-width: 700px) { .run { gap: 0 10px; } .run-lane.low small { display: none; } }
"""
