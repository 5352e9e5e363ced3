"""`scripts/faults`: nemeses on real processes by a seed, and the verdict."""

import argparse
import math
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from fault_runs.fault_run import KINDS, FaultRun, Load, Result
from fault_runs.fault_target import FaultTarget
from fault_runs.our_group import OurGroup
from local_cluster import port_block
from nemeses.nemesis import Nemesis
from nemeses.registry import LeftOut, nemeses_of
from originals.java_group import JavaMissingError, RocketMqGroup

from faults.__main__ import EXIT_BROKEN, EXIT_NO_HISTORY, EXIT_SHORT
from faults.coverage import Fault
from faults.kinds import KindRow
from faults.schedule import ScheduleError, make_schedule
from mq.cluster import ClusterError
from mqclient import MQClientError
from verify.report.text_report import counted, duration, visible

ABOUT = """\
Three brokers and a NameServer as real processes, clients that send, poll and commit,
and faults that overlap, drawn from a seed. Beside plain messages there are
transactions, timers that are recalled or not, a group with an SQL filter, and
requests with replies. At the end all is healed and every queue read back; what
clients saw is held against what was promised, and the replicas against each other
and against every acknowledgement.

Ctrl-C ends the faults early: all is healed, and what there is is judged. A second
one breaks that off. SIGTERM and the end of the terminal are taken for the same."""

EXIT_STATUS = """\
exit status:  0  nothing acknowledged was lost, and no promise is broken
             10  a promise is broken
             11  nothing is broken, yet the run proves too little
              1  the run could not be made, or something of it went wrong
            130  broken off by a second signal"""

EXIT_INTERRUPTED = 130  # as a shell has it
MINUTES_MIN, MINUTES_MAX = 0.05, 240.0  # to draw the schedule of more takes minutes itself

# What it is made of: a new directory and a base port, see port_block().
TARGETS: dict[str, Callable[[Path, int], FaultTarget]] = {"ours": OurGroup, "java": RocketMqGroup}


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        return _main(arguments)
    except KeyboardInterrupt:
        print("\nfaults: broken off, and nothing is judged", file=sys.stderr)
        return EXIT_INTERRUPTED


def _main(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/faults",
        description=ABOUT,
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=5, metavar="M", help="of faults (%(default)s)")
    parser.add_argument("--seed", type=int, metavar="S", help="of the schedule; without it any, and printed")
    parser.add_argument(
        "--only", nargs="+", action="extend", default=[], metavar="NAME", help="these nemeses alone"
    )
    parser.add_argument("--list", action="store_true", help="show the nemeses, and run nothing")
    parser.add_argument("--schedule", action="store_true", help="show the schedule, and run nothing")
    parser.add_argument(
        "--target",
        choices=list(TARGETS),
        default="ours",
        help="whose brokers (%(default)s); java: RocketMQ's own group",
    )
    parser.add_argument(
        "--rate", type=float, default=Load().rate, metavar="R", help="plain sends a second (%(default)g)"
    )
    parser.add_argument(
        "--kinds",
        nargs="*",
        choices=KINDS,
        metavar="KIND",
        help=f"what there is beside plain messages: {', '.join(KINDS)} (all; none with --target java)",
    )
    parser.add_argument(
        "--dir", type=Path, metavar="D", help="a new directory for histories, stores and logs"
    )
    parser.add_argument("--html", type=Path, metavar="F", help="the report (report.html in the directory)")
    options = parser.parse_args(arguments)
    _check(parser, options)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    ending = Ending()
    with ending.at_signals(), port_block() as base_port, ExitStack() as after:
        directory = _made_directory(parser, options.dir)
        unused = after.enter_context(ExitStack())  # until the run begins
        unused.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            group = TARGETS[options.target](directory / "cluster", base_port)
            after.callback(group.down)
            nemeses = _chosen(group, options.only, seed)
            specs = [nemesis.spec for nemesis in nemeses]
            schedule = make_schedule(specs, group.members, seed=seed, minutes=options.minutes)
        except (JavaMissingError, ScheduleError, ValueError) as error:
            print(f"faults: {error}", file=sys.stderr)
            return EXIT_NO_HISTORY
        if options.list:
            print("\n".join(sorted(spec.name for spec in specs)))
            return 0
        print(schedule.describe(), flush=True)
        if options.schedule:
            return 0
        unused.pop_all()
        print(f"\nin {directory}\n", flush=True)
        run = FaultRun(group, nemeses, schedule, directory, _load(options), teller())
        ending.stop = run.stop
        try:
            run.run()
        except (AssertionError, ClusterError, MQClientError, OSError) as error:
            told = [*run.trouble, str(error) or type(error).__name__]
            print("\n".join(f"faults: {visible(line)}" for line in told), file=sys.stderr)
            return EXIT_NO_HISTORY
    html = options.html or directory / "report.html"
    result = run.judge(html)
    status = exit_status(result)
    if status == 0 and options.dir is None:
        shutil.rmtree(directory / "cluster")
    print("\n".join(lines_of(result)))
    if html.exists():
        print(f"report: {html}")
    if status:
        print(
            f"to run it again: scripts/faults --seed {seed} --minutes {options.minutes:g}"
            + (f" --target {options.target}" if options.target != "ours" else "")
            + (f" --rate {options.rate:g}" if options.rate != Load().rate else "")
            + _named("--only", options.only)
            + ("" if options.kinds is None else _named("--kinds", options.kinds) or " --kinds")
        )
    return status


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not MINUTES_MIN <= options.minutes <= MINUTES_MAX:  # which nan is not
        parser.error(f"--minutes must be within {MINUTES_MIN:g} and {MINUTES_MAX:g}")
    if not 0 < options.rate < math.inf:
        parser.error("--rate must be above 0, and finite")
    if options.target == "java" and options.kinds:
        parser.error("--kinds: RocketMQ's own group is given plain messages alone")
    if options.seed is not None and options.seed < 0:
        parser.error("--seed must be 0 or above")
    html: Path | None = options.html
    if html is None:
        return
    if html.is_dir():
        parser.error(f"--html {html} is a directory: name a file")
    is_in_new = options.dir is not None and html.parent.absolute() == options.dir.absolute()
    if not (is_in_new or html.parent.is_dir()):
        parser.error(f"--html {html}: there is no directory {html.parent}")


def _load(options: argparse.Namespace) -> Load:
    kinds = options.kinds
    if kinds is None:
        kinds = () if options.target == "java" else KINDS
    return Load(rate=options.rate, kinds=tuple(kinds))


def _made_directory(parser: argparse.ArgumentParser, wanted: Path | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="pydledger-faults-"))
    try:
        wanted.mkdir(parents=True)
    except FileExistsError:
        parser.error(f"--dir {wanted} is there already: name a new one")
    except OSError as error:
        parser.error(f"--dir {wanted}: {error.strerror}")
    return wanted


def _chosen(group: FaultTarget, only: Sequence[str], seed: int) -> list[Nemesis]:
    """Says which ones are left out, and why. Raises ValueError for a name that is none, or if none is left."""
    found: dict[str, Nemesis] = {}
    left_out: set[str] = set()
    for nemesis in nemeses_of(group, seed):
        if not isinstance(nemesis, LeftOut):
            found[nemesis.spec.name] = nemesis
        elif names := [name for name in nemesis.names if not only or name in only]:
            print(f"left out: {', '.join(names)}: {visible(nemesis.why)}")
            left_out.update(names)
    unknown = [name for name in only if name not in found and name not in left_out]
    if unknown:
        raise ValueError(f"--only {' '.join(unknown)}: there are {', '.join(sorted(found))}")
    chosen = [nemesis for name, nemesis in found.items() if not only or name in only]
    if not chosen:
        raise ValueError("no nemesis is left")
    return chosen


def teller() -> Callable[[str], None]:
    """Prints lines with the seconds since now, from any thread."""
    lock, begun = threading.Lock(), time.monotonic()

    def tell(line: str) -> None:
        with lock:
            print(f"[{time.monotonic() - begun:7.1f}] {visible(line)}", flush=True)

    return tell


class Ending:
    """What signals do: the first one calls `stop`, where there is something to stop; any other one breaks off."""

    def __init__(self) -> None:
        self.stop: Callable[[], None] | None = None

    @contextmanager
    def at_signals(self) -> Iterator[None]:
        """Under nohup the end of the terminal is none of ours."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        former = {number: signal.signal(number, self._heed) for number in numbers}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if self.stop is None:
            raise KeyboardInterrupt
        stop, self.stop = self.stop, None
        stop()
        with suppress(OSError):  # of a terminal that is gone
            print("ending: faults are healed, and what there is is judged", flush=True)


def exit_status(result: Result) -> int:
    if result.verdict[0] == "bad":
        return EXIT_BROKEN
    if result.trouble:
        return EXIT_NO_HISTORY
    return EXIT_SHORT if result.verdict[0] == "short" else 0


def lines_of(result: Result) -> list[str]:
    """For a person, the verdict first."""
    judgement = result.judgement
    seconds = max((judgement.end_ns - judgement.begin_ns) / 1e9, 1e-9)
    _, headline, detail = result.verdict
    acknowledged = judgement.coverage.outcomes["ok"]
    return [
        *(f"trouble: {text}" for text in result.trouble),
        headline,
        detail,
        f"{acknowledged / seconds:,.0f} acknowledged sends a second over {duration(seconds)}",
        *(f"  {row.name}: {_told(row)}" for row in judgement.kinds.rows()),
        *(f"  {name}: {_verified(faults)}" for name, faults in judgement.coverage.nemeses().items()),
        *(f"  {one.checker}: {visible(one.sentence)}" for one in judgement.violations),
        *(f"  falls short: {text}" for text in judgement.shortfalls()),
    ]


def _told(row: KindRow) -> str:
    if not row.outcomes:
        return row.told
    outcomes = row.outcomes
    return f"{outcomes['ok']:,} acknowledged, {outcomes['unknown']:,} unknown, {outcomes['fail']:,} failed; {row.told}"


def _verified(faults: Sequence[Fault]) -> str:
    verified = sum(fault.evidence is not None for fault in faults)
    return f"{counted(len(faults), 'time')}, {verified} verified"


def _named(option: str, names: Sequence[str]) -> str:
    return f" {option} {' '.join(names)}" if names else ""


if __name__ == "__main__":
    raise SystemExit(main())
