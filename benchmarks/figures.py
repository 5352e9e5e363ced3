"""What was measured, as medians and as one table. Pure: lines in, text out.

A record is what the load program printed for one line, and: `system`, `mode` (where the disk or the network is another
one), `line`, `kind`, `round`, and `error` where there are no figures.
"""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]

MODES = ("page cache", "fsync")
# Of our code alone: between the members is a round trip, and each sync takes 5 ms longer.
FAR_MODES = ("2 ms between members", "10 ms between members", "5 ms per sync")
OTHER_PCT_MAX = 20
TRIES = 3  # of a line that something else disturbs
MARK = "\\*"
# What two systems are compared by.
KEY_FIGURES = {
    "rate": "msgs_per_s",
    "one": "p50_ms",
    "lone": "lone_p99_ms",
    "tail": "p50_ms",
    "read": "msgs_per_s",
    "idle": "cpu_pct",
    "start": "seconds",
    "fill": "msgs_per_s",
    "late": "msgs_per_s",
    "filtered": "scanned_per_s",
    "memory": "anonymous_mib",
    "clients": "cpu_pct",
    "leader": "fired_s",
    "all": "fired_s",
}


def is_disturbed(record: Record) -> bool:
    """Whether anything else had more of a core than a figure bears."""
    return bool(record.get("other_pct", 0) > OTHER_PCT_MAX)


def least_disturbed(tries: Sequence[Record]) -> Record:
    measured = [record for record in tries if "error" not in record]
    return min(measured, key=lambda record: record.get("other_pct", 0)) if measured else tries[-1]


def median_of(records: Sequence[Record]) -> Record:
    """Each figure's median over the rounds that have it; `other_pct` is the worst one's. The error where all failed."""
    measured = [record for record in records if "error" not in record]
    if not measured:
        return dict(records[-1])
    medians = dict(measured[0])
    for name, value in measured[0].items():
        values = [record[name] for record in measured if name in record]
        if isinstance(value, int | float) and len(set(values)) > 1:
            medians[name] = statistics.median(values)
    if "other_pct" in medians:
        medians["other_pct"] = max(record["other_pct"] for record in measured)
    medians["failed"] = sum(record.get("failed", 0) for record in measured)
    return medians


COMPARED = f"""\
In brackets: our figure divided by theirs, for what the line is about and for CPU time. {MARK}: in each try something
else used more than {OTHER_PCT_MAX} % of a core."""

HOW_TO_READ = f"""\
Sends: messages per second · CPU time of all replicas per message · p50 · p99 of a send. One sender, and the lines with
groups: p50 · p99 · CPU time. The lone sender: its p50 · p99, and those of the others. A group's time is from just
before the send until the group has the message. In brackets: our figure divided by theirs, for what the line is about
and for CPU time. For a rate more is better, for a time less. {MARK}: in each try something else used more
than {OTHER_PCT_MAX} % of a core."""

HOW_TO_READ_KINDS = f"""\
- Sends and transactions: per second · CPU time of all brokers for each · p50 · p99. A transaction is a half message
  and its commit, each acknowledged. One sender: p50 · p99 · CPU time. Until a group has them: p50 · p99 from just
  before the half message is sent · CPU time.
- Timers: per second, from the second in which all are due to the last one · CPU time · p50 · p99 of how late a group
  gets them.
- Filters: messages of the topic per second · brought per second · CPU time for each message of the topic.
- Pops: messages that are popped and acknowledged, each by itself, per second · CPU time for each.
- Memory of all brokers: anonymous · with the files that are mapped.
- Kills, each with a start at once: until a send is acknowledged · until a timer has come that falls due meanwhile.

{COMPARED}"""

HOW_TO_READ_PROXY = f"""\
- CPU time is that of the brokers and, by itself, that of the proxy, for each message.
- Sends: per second · CPU time · p50 · p99. One sender: p50 · p99 · CPU time.
- From send to receive: p50 · p99 from just before a send until a consumer has the message, which it acknowledges
  afterwards · CPU time.
- Received: messages that are received and acknowledged per second · CPU time.
- The proxy's memory: anonymous · with the files that are mapped.
- With idle clients: CPU of the proxy · of all brokers · the proxy's memory.

{COMPARED}"""


@dataclass(frozen=True)
class Results:
    """`facts`: sentences about the machine and the programs. `systems`: names, ours first."""

    facts: tuple[str, ...]
    systems: tuple[str, ...]
    records: tuple[Record, ...]

    @classmethod
    def parse(cls, lines: Iterable[str]) -> "Results":
        """The first line says what was measured on; each further one is a record."""
        head, *records = map(json.loads, lines)
        return cls(tuple(head["facts"]), tuple(head["systems"]), tuple(records))

    def rows(self) -> dict[tuple[str, str], dict[str, Record]]:
        """By mode and line, and then by system: the medians."""
        grouped: dict[tuple[str, str], dict[str, list[Record]]] = {}
        for record in self.records:
            row = grouped.setdefault((record["mode"], record["line"]), {})
            row.setdefault(record["system"], []).append(record)
        return {
            key: {system: median_of(records) for system, records in row.items()}
            for key, row in grouped.items()
        }


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cell(figures: Record) -> str:
    if "error" in figures:
        return "failed"
    told = [form.format(number(figures[name])) for name, form in _parts(figures["kind"]) if name in figures]
    if figures.get("failed"):
        told.append(f"{figures['failed']:,.0f} failed")
    return " · ".join(told) + (MARK if is_disturbed(figures) else "")


def _parts(kind: str) -> Sequence[tuple[str, str]]:
    times = (("p50_ms", "{} ms"), ("p99_ms", "{} ms"))
    cpu = (("server_us", "{} µs"), ("proxy_us", "proxy {} µs"))
    memory = (("anonymous_mib", "{} MiB"), ("memory_mib", "{} MiB with files"))
    recovery = (("served_s", "{} s"), ("fired_s", "timer {} s"))
    return {
        "fill": (("msgs_per_s", "{}/s"), *cpu),
        "late": (("msgs_per_s", "{}/s"), *cpu, ("p50_ms", "{} ms late"), ("p99_ms", "{} ms")),
        "filtered": (("scanned_per_s", "{}/s"), ("msgs_per_s", "{}/s brought"), ("scanned_us", "{} µs")),
        "memory": memory,
        "clients": (("cpu_pct", "{} % of a core"), ("brokers_cpu_pct", "brokers {} %"), *memory),
        "leader": recovery,
        "all": recovery,
        "rate": (("msgs_per_s", "{}/s"), *cpu, *times),
        "one": (*times, *cpu),
        "lone": (
            *(("lone_p50_ms", "{} ms"), ("lone_p99_ms", "{} ms")),
            *(("p50_ms", "others {} ms"), ("p99_ms", "{} ms")),
        ),
        "tail": (*times, *cpu),
        "read": (("msgs_per_s", "{}/s"), *cpu),
        "idle": (
            *(("cpu_pct", "{} % of a core"), ("wake_ups_per_s", "{} wake-ups/s each")),
            ("memory_mib", "{} MiB"),
        ),
        "start": (("seconds", "{} s"),),
    }[kind]


def ratio(ours: Record, theirs: Record) -> str:
    """Ours divided by theirs: the figure that a line is about, and CPU time per message."""
    told = []
    for name, form in (
        (KEY_FIGURES[ours["kind"]], "{}"),
        ("server_us", "CPU {}"),
        ("proxy_us", "proxy's CPU {}"),
    ):
        if ours.get(name) and theirs.get(name):
            told.append(form.format(f"{ours[name] / theirs[name]:.2f}"))
    return " · ".join(told)


def table(results: Results) -> str:
    """A row per line, a column per system; what is not ours is followed by how ours compares."""
    ours, *others = results.systems
    lines = [f"| | {' | '.join(results.systems)} |", "|---" * (1 + len(results.systems)) + "|"]
    for (mode, line), row in results.rows().items():
        cells = [cell(row[ours]) if ours in row else "–"]
        for name in others:
            if name not in row:
                cells.append("–")
                continue
            against = ratio(row[ours], row[name]) if ours in row else ""
            cells.append(cell(row[name]) + (f" (ours {against})" if against else ""))
        lines.append(f"| {', '.join(filter(None, (mode, line)))} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page(results: Results, how_to_read: str, picture: str | None = None) -> str:
    """What stands in the docs: the facts, how to read the table, the table, the plot."""
    facts = "\n".join(f"- {fact}" for fact in results.facts)
    plot = f"\n![rates and latencies, drawn]({picture})\n" if picture else ""
    return f"{facts}\n\n{how_to_read}\n\n{table(results)}{plot}"


def marks(name: str) -> tuple[str, str]:
    """The lines of a page between which the figures of a run stand."""
    return f"<!-- {name}: written by benchmarks/side_by_side.py -->", f"<!-- end of {name} -->"


def with_figures(text: str, name: str, figures: str) -> str:
    """A page with new figures in the place of the earlier ones. Raises ValueError where it has no place for them."""
    begin, end = marks(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"there must be one line {begin} and one line {end}")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{figures}\n{end}{rest.partition(end)[2]}"
