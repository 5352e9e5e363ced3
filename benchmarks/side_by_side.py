"""Figures of this code beside others, taken in turns in one run on one machine: one command, one table, one plot.

    python benchmarks/side_by_side.py --quick                          # this code and NATS, some minutes
    python benchmarks/side_by_side.py --tree before=../other-checkout   # and an older state of the code
    python benchmarks/side_by_side.py --docs                           # writes docs/benchmarks.md and its plot
    python benchmarks/side_by_side.py --kinds --oracle ORACLE          # other kinds and pops, beside RocketMQ
    python benchmarks/side_by_side.py --proxy --oracle WITH_PROXY      # through gRPC proxies, beside RocketMQ's

Each round takes every system once per mode, so that the machine's better and worse minutes fall on all of them; told
are the medians of the rounds. With each line stands how much of a core anything else used. Where that is more than
20 % the line is measured again, twice at most, and marked if it stays so.

Needs Go, which builds the load program (benchmarks/load) and NATS. What is missing is left out, and the program says
so. The brokers run on the best Python of this machine, one that was built with optimization if there is one; --python
chooses another one. The program says which it was.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import (
    FAR_MODES,
    HOW_TO_READ,
    HOW_TO_READ_KINDS,
    HOW_TO_READ_PROXY,
    TRIES,
    Record,
    Results,
    cell,
    is_disturbed,
    least_disturbed,
    page,
    table,
    with_figures,
)
from lines import Line, lines_by_mode
from plot import svg
from pythons import Python, PythonError, choose
from running import ROOT, end_on_sigterm
from systems import (
    Java,
    JavaByProxy,
    MissingError,
    Nats,
    Ours,
    OursByProxy,
    Prototype,
    Server,
    System,
    go,
    go_built,
)

DOCS_PAGE = ROOT / "docs" / "benchmarks.md"
DOCS_PLOT = ROOT / "docs" / "benchmarks.svg"
DUE_S = 2  # before it is due, a timer has been stored and brokers are killed


class Bench:
    """Runs the load program, and writes a record per line."""

    def __init__(self, load: Path, out: Path, seconds: float, tries: int) -> None:
        self._load = load
        self._tries = tries
        self._out = out
        self._seconds = seconds

    def write_head(self, facts: list[str], systems: list[str]) -> None:
        self._out.write_text(json.dumps({"facts": facts, "systems": systems}) + "\n")

    def write(self, record: Record) -> None:
        with self._out.open("a") as file:
            file.write(json.dumps(record) + "\n")
        other = f"others {record['other_pct']} %" if "other_pct" in record else ""
        place = f"{time.strftime('%H:%M:%S')} {record['round']} {record['system']}: {record['mode']}, {record['line']}:"
        print(place, record.get("error") or cell(record), other, flush=True)

    def session(self, system: System, mode: str, round_number: int, lines: tuple[Line, ...]) -> None:
        """One system from its start to its end."""
        wanted = [line for line in lines if (line.command or line.kind) in system.measures]
        if not wanted:
            return
        head = {"system": system.name, "mode": mode, "round": round_number}
        os.sync()  # what the one before has left to be written is not this one's work
        with system.running(mode) as server:
            for line in wanted:
                record = {**head, "line": line.name, "kind": line.kind, **dict(line.options)}
                if line.kind == "start":
                    self.write({**record, **server.start})
                    continue
                measured = self._recovered if line.command == "recovery" else self._measured
                tries: list[Record] = []
                tries_max = min(line.tries, self._tries)
                while len(tries) < tries_max and (
                    not tries or "error" in tries[-1] or is_disturbed(tries[-1])
                ):
                    tries.append({**record, **measured(server, line)})
                self.write(least_disturbed(tries))

    def _measured(self, server: Server, line: Line) -> dict[str, Any]:
        return _ended(self._begun(server, line, server.pids()))

    def _recovered(self, server: Server, line: Line) -> dict[str, Any]:
        """Seconds from a kill until sends are acknowledged and a timer fires that is due meanwhile."""
        options = (("topic", dict(line.options)["due"]), ("count", 1), ("deliver-after", DUE_S))
        timer = Line("a timer", "fill", "fill", (*options, ("senders", 1), ("queues", 1)))
        pids = server.pids()
        victims = pids if line.kind == "all" else (server.leader_pid(),)
        figures = _ended(self._begun(server, timer, pids))
        if "error" in figures:
            return figures
        killed_at = time.time()
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        load = self._begun(server, line, ())
        server.start_again()
        figures = _ended(load)
        if "error" in figures:
            return figures
        seconds = {f"{what}_s": round(figures[f"{what}_at"] - killed_at, 2) for what in ("served", "fired")}
        if seconds["fired_s"] < DUE_S - 1:
            return {"error": f"the timer came {seconds['fired_s']} s after the kill, or before it"}
        return seconds

    def _begun(self, server: Server, line: Line, pids: tuple[int, ...]) -> subprocess.Popen[str]:
        command = [
            *(str(self._load), line.command, f"-system={server.kind}", f"-at={server.at}"),
            *(f"-pids={' '.join(map(str, pids))}", f"-beside={' '.join(map(str, server.beside))}"),
            f"-proxy-pids={' '.join(map(str, server.proxy))}",
            *(f"-seconds={self._seconds}", *line.arguments()),
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _ended(load: subprocess.Popen[str]) -> dict[str, Any]:
    told, errors = load.communicate()  # it ends itself where an answer is missing
    return {"error": errors.strip()[-300:]} if load.returncode else dict(json.loads(told))


def revision(tree: Path) -> str:
    done = subprocess.run(
        ["git", "-C", str(tree), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "of no known commit"


def facts(
    options: argparse.Namespace, trees: dict[str, Path], python: Python, others: list[Python]
) -> list[str]:
    """What the figures depend on. Names no place of this machine: it goes to the docs."""
    how = "chosen with --python" if options.python else "the best one here"
    beside = "; ".join(map(str, others)) or "none"
    go_version = subprocess.run([go(), "version"], capture_output=True, text=True, check=True).stdout.split()[
        2
    ]
    module = (ROOT / "benchmarks" / "load" / "go.mod").read_text()
    nats = re.search(r"nats-server/v2 (v[\d.]+)", module)
    states = ", ".join(f"`{name}` is {revision(tree)}" for name, tree in trees.items())
    rounds = "1 round" if options.rounds == 1 else f"medians of {options.rounds} rounds, all systems in turns"
    return [
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores; {rounds}; {options.seconds:g} s per line.",
        f"Brokers run on {python}, {how}. Others here: {beside}.",
        f"Load: benchmarks/load, built by {go_version}. NATS {nats[1] if nats else '?'}.",
        f"{states[:1].upper()}{states[1:]}.",
    ]


def parse_tree(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not name or not path or not (Path(path) / "mq" / "cluster.py").is_file():
        raise argparse.ArgumentTypeError(f"{text}: write NAME=PATH, the path of a checkout of this project")
    return name, Path(path).resolve()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="one round, 1 KiB, 2 s per line, two modes: some minutes")
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument(
        "--kinds",
        dest="table",
        action="store_const",
        const="kinds",
        default="benchmarks",
        help="transactions, timers, filters and pops instead, beside RocketMQ's plain broker",
    )
    tables.add_argument(
        "--proxy",
        dest="table",
        action="store_const",
        const="proxy",
        help="sends and receives through gRPC proxies instead, beside RocketMQ's",
    )
    add(
        "--tree",
        type=parse_tree,
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="another state of this project's code; may be given several times",
    )
    add("--prototype", type=Path, help="hotpath.py, the prototype; left out: no such column")
    add("--oracle", type=Path, help="boots the real RocketMQ, with --proxy and its proxy; left out: none")
    add("--no-nats", action="store_true", help="no column of NATS")
    add(
        "--python",
        type=Path,
        help="runs the brokers (default: one built with optimization, else the fastest)",
    )
    add("--rounds", type=int, help="default 3")
    add("--seconds", type=float, help="measured part of each line (default 3)")
    add("--tries", type=int, default=TRIES, help=f"of a line that something else disturbs (default {TRIES})")
    add(
        "--lines",
        type=re.compile,
        default=re.compile(""),
        metavar="REGEX",
        help="only these, as `MODE, LINE`",
    )
    add("--base-port", type=int, default=27000, help="the first of 300 (default 27000)")
    add("--out", type=Path, default=ROOT / "run" / "benchmarks", help="where records, table and plot go")
    add("--show", type=Path, metavar="RECORDS", help="measure nothing: table and plot of an earlier run")
    add("--docs", action="store_true", help="put table and plot into docs/ as well")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (2 if options.quick else 3)
    return options


def systems_of(options: argparse.Namespace, trees: dict[str, Path], python: Path) -> list[System]:
    java_port = options.base_port + 200
    systems: list[System]
    if options.table == "proxy":
        systems = [OursByProxy(name, tree, python, options.base_port) for name, tree in trees.items()]
        return systems + ([JavaByProxy(options.oracle.resolve(), java_port)] if options.oracle else [])
    systems = [Ours(name, tree, python, options.base_port) for name, tree in trees.items()]
    if options.table == "kinds":
        return systems + ([Java(options.oracle.resolve(), java_port, "single")] if options.oracle else [])
    if options.prototype:
        systems.append(Prototype(options.prototype.resolve(), python))
    if not options.no_nats:
        try:
            server = go_built("nats-server", "github.com/nats-io/nats-server/v2")
            systems.append(Nats(server, options.base_port + 100))
        except MissingError as error:
            print(f"no NATS: {error}", file=sys.stderr)
    if options.oracle:
        systems.append(Java(options.oracle.resolve(), java_port, "dledger"))
    return systems


def sessions(
    options: argparse.Namespace, systems: list[System]
) -> Iterator[tuple[int, str, System, tuple[Line, ...]]]:
    """What is measured, in this order."""
    by_mode = lines_by_mode(options.table, quick=options.quick)
    for round_number in range(1, options.rounds + 1):
        for mode, of_mode in by_mode.items():
            lines = tuple(line for line in of_mode if options.lines.search(f"{mode}, {line.name}"))
            for system in systems:
                if lines and (mode not in FAR_MODES or isinstance(system, Ours)):
                    yield round_number, mode, system, lines


def measure(options: argparse.Namespace, records: Path) -> None:
    trees = {"this": ROOT, **dict(options.tree)}
    load = go_built("load", ".")
    executable, python, others = choose(options.python)
    systems = systems_of(options, trees, executable)
    bench = Bench(load, records, options.seconds, options.tries)
    told = facts(options, trees, python, others)
    bench.write_head(told, [system.name for system in systems])
    print(*told, f"That Python is {python.path}; --python chooses another one.", sep="\n", flush=True)
    for round_number, mode, system, lines in sessions(options, systems):
        try:
            bench.session(system, mode, round_number, lines)
        except MissingError as error:
            print(f"no {mode}: {error}", file=sys.stderr)


def main() -> int:
    options = parse_options()
    end_on_sigterm()
    options.out.mkdir(parents=True, exist_ok=True)
    name = options.table
    records = options.show or options.out / ("records.jsonl" if name == "benchmarks" else f"{name}.jsonl")
    if options.show is None:
        try:
            measure(options, records)
        except (MissingError, PythonError) as error:
            print(error, file=sys.stderr)
            return 1
    results = Results.parse(records.read_text().splitlines())
    if name == "kinds":
        text = page(results, HOW_TO_READ_KINDS)
    elif name == "proxy":
        text = page(results, HOW_TO_READ_PROXY)
    else:
        text = page(results, HOW_TO_READ, DOCS_PLOT.name)
        for directory in (options.out, *([DOCS_PLOT.parent] if options.docs else [])):
            (directory / DOCS_PLOT.name).write_text(svg(results))
    (options.out / f"{name}.md").write_text(text)
    if options.docs:
        DOCS_PAGE.write_text(with_figures(DOCS_PAGE.read_text(), name, text))
    print(f"\n{table(results)}\ntable and plot: {DOCS_PAGE.parent if options.docs else options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
