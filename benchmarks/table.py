"""The table of docs/benchmarks.md from what side_by_side.py wrote: a row per measurement, a column per system."""

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

COLUMNS = ("prototype async", "ours async", "prototype sync", "ours sync", "java dledger")


def cell(figures: list[dict[str, Any]]) -> str:
    """What matters of one measurement, in the units of the program that made it."""
    first = figures[0]
    if "error" in first:
        return "failed"
    if "next_success_ms" in first:
        gaps = sorted(f["next_success_ms"] for f in figures if "next_success_ms" in f)
        return f"median {statistics.median(gaps):.0f} ms, worst {gaps[-1]:.0f} ms ({len(gaps)})"
    if "p50_ms" in first:
        rate = f"{first['msgs_per_s']:,.0f}/s" if first["senders"] > 1 else f"p50 {first['p50_ms']} ms"
        return f"{rate}, {first['server_cpu_us_per_msg']} µs"
    if "frame_mib_per_s" in first:
        return f"{first['msgs_per_s']:,.0f}/s, {first['server_cpu_us_per_msg']} µs"
    if "avg_rt_ms" in first:
        micros = 1e6 * first["server_cpus"] / first["msgs_per_s"] if first["msgs_per_s"] else 0
        return f"{first['msgs_per_s']:,.0f}/s, {micros:.0f} µs"
    if "pss_mib" in first:
        return f"{first['pss_mib']} MiB, CPU {first['cpu_pct']} %"
    return f"{first['seconds']} s"


def main() -> int:
    rows: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for line in Path(sys.argv[1]).read_text().splitlines():
        entry = json.loads(line)
        measure = entry["measure"]
        if measure.endswith("verify"):
            continue
        if measure.startswith("failover"):
            measure = "gap after kill -9"
        rows[measure][entry["server"]].append(entry)
    print("| |", " | ".join(COLUMNS), "|")
    print("|---|" + "---|" * len(COLUMNS))
    for measure, servers in rows.items():
        cells = [cell(servers[column]) if column in servers else "–" for column in COLUMNS]
        print(f"| {measure} |", " | ".join(cells), "|")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
