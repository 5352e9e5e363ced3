"""Runs seeds and says what they were worth: `scripts/simulate --seeds 1..2000`, `scripts/simulate --seed 3053`,
`scripts/simulate --hours 10 --summary FILE`.
"""

import argparse
import gc
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from simulator.harness.hours import HoursRun, SummaryFileError, is_calm_seed
from simulator.harness.quiet import QuietGroup
from simulator.harness.run import Outcome, Result, run_seed
from simulator.harness.workers import WorkerDiedError, results_of
from simulator.mutants.mutants import MUTANTS

_SAVE_INTERVAL_S = 5
# A life makes little that only the collector finds, and each of its rounds walks all that is alive.
_GC_THRESHOLDS = (50_000, 20, 10)
_INTERRUPTED = 130  # as a shell has it


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Whole replica groups in virtual time, under faults drawn from a seed.",
        epilog="Exit status: 0 no violation, 10 safety, 11 liveness or below a floor, 12 the simulator itself, "
        "130 interrupted.",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", metavar="A..B", type=_seed_range, help="these seeds, both ends included")
    which.add_argument("--seed", metavar="S", type=_seed, help="one seed; its trace is shown when it fails")
    which.add_argument(
        "--hours",
        metavar="H",
        type=_positive,
        help="one seed after the other until so many hours are simulated",
    )
    which.add_argument(
        "--quiet", metavar="S", type=_positive, help="so many seconds of a group at rest: how fast that is"
    )
    parser.add_argument(
        "--summary", metavar="FILE", type=Path, help="of --hours: where it goes on, and what it has counted"
    )
    parser.add_argument(
        "--first-seed", metavar="S", type=_seed, help="of --hours: where it begins; default 1"
    )
    parser.add_argument("--calm", action="store_true", help="faults far apart, most of an hour of each seed")
    parser.add_argument(
        "--minutes", metavar="M", type=_positive, help="stop after so long, and say how far it came"
    )
    parser.add_argument(
        "--members", metavar="N", type=int, choices=(1, 3, 5), help="instead of what the seed draws"
    )
    parser.add_argument("--mutant", metavar="NAME", choices=sorted(MUTANTS), help="put a known bug in")
    parser.add_argument("--jobs", metavar="N", type=_count, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="the summary as JSON and nothing else")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first violation")
    options = parser.parse_args(arguments)
    if options.hours is None and (options.summary is not None or options.first_seed is not None):
        parser.error("--summary and --first-seed go with --hours")
    return options


def _seed_range(text: str) -> range:
    first, separator, last = text.partition("..")
    if not separator or not first.isdecimal() or not last.isdecimal() or int(last) < int(first):
        raise argparse.ArgumentTypeError(f"{text!r} is no range: A..B with A <= B, like 1..2000")
    return range(int(first), int(last) + 1)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: a whole number, 0 or above")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time: a number above 0, like 1.5")
    return number


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes: 1 or more")
    return int(text)


def run_with_mutant(
    seed: int, *, member_count: int | None, mutant: str | None, is_calm: bool = False
) -> Result:
    """One seed, with a known bug put in if `mutant` names one."""
    if mutant is None:
        return run_seed(seed, member_count=member_count, is_calm=is_calm)
    with MUTANTS[mutant]():
        return run_seed(seed, member_count=member_count, is_calm=is_calm)


def _run_of_hours(seed: int, *, member_count: int | None, mutant: str | None, is_calm: bool) -> Result:
    calm = is_calm or is_calm_seed(seed)
    return run_with_mutant(seed, member_count=member_count, mutant=mutant, is_calm=calm)


def _commit() -> str:
    """Of the code that runs, as far as git knows it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _interrupt_me(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A seed counts in all places or in none."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _run_all(
    options: argparse.Namespace,
    run: Callable[[int], Result],
    seeds: Iterable[int],
    jobs: int,
    hours_run: HoursRun,
) -> None:
    """Until the seeds, the time or the hours asked for are over, or one has failed; counts as it goes."""
    summary, commit = hours_run.summary, _commit() if options.hours is not None else ""
    shows_progress = sys.stderr.isatty() and not options.json
    began = last = saved = time.monotonic()
    with closing(results_of(run, seeds, jobs)) as results:
        for result in results:
            with _uninterrupted():
                now = time.monotonic()
                summary.add(result)
                summary.wall_s += now - last
                last = now
                if options.hours is not None:
                    hours_run.done(result.seed, commit)
                if options.summary is not None and now - saved >= _SAVE_INTERVAL_S:
                    saved = now
                    hours_run.save(options.summary)
            if result.outcome is not Outcome.PASSED:
                if not options.json:
                    print(result.report, flush=True)
                if not options.keep_going:
                    break
            if shows_progress:
                text = f"{summary.runs} runs, {summary.virtual_s / 3600:.2f} group-hours"
                print(f"\r{text}, {len(summary.failures)} violations", end="", file=sys.stderr)
            if options.minutes is not None and now - began > 60 * options.minutes:
                break
            if options.hours is not None and hours_run.has_simulated(options.hours):
                break
    if shows_progress:
        print(file=sys.stderr)


def _run_quiet(seconds: float, member_count: int) -> None:
    group = QuietGroup(member_count)
    began = time.process_time()
    group.run(seconds)
    took = time.process_time() - began
    print(
        f"a quiet group of {member_count}: {seconds:,.0f} simulated seconds in {took:.2f} s of one core, "
        f"{seconds / max(took, 0.001):,.0f} per second"
    )


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    gc.set_threshold(*_GC_THRESHOLDS)
    if options.quiet is not None:
        _run_quiet(options.quiet, options.members or 3)
        return int(Outcome.PASSED)
    setting = {"members": options.members, "mutant": options.mutant, "calm": options.calm}
    try:
        hours_run = HoursRun.load_or_begin(options.summary, options.first_seed, setting)
    except SummaryFileError as error:
        print(f"scripts/simulate: {error}", file=sys.stderr)
        return 2
    summary = hours_run.summary
    run = partial(
        run_with_mutant if options.hours is None else _run_of_hours,
        member_count=options.members,
        mutant=options.mutant,
        is_calm=options.calm,
    )
    seeds: Iterable[int]
    if options.hours is not None:
        seeds = hours_run.seeds()
    else:
        seeds = options.seeds if options.seed is None else [options.seed]
    is_interrupted, is_broken = False, False
    try:
        if options.hours is None or not hours_run.has_simulated(options.hours):
            jobs = 1 if options.seed is not None else options.jobs
            _run_all(options, run, seeds, jobs, hours_run)
    except KeyboardInterrupt:
        is_interrupted = True
    except WorkerDiedError as error:
        is_broken = True
        print(f"scripts/simulate: {error}", file=sys.stderr)
    if options.summary is not None:
        hours_run.save(options.summary)
    if options.json:
        print(json.dumps(summary.as_dict()))
    else:
        print("\n".join(summary.lines()))
        if options.hours is not None:
            print(
                f"  seeds {hours_run.first_seed}..{hours_run.next_seed - 1}; goes on with {hours_run.next_seed}"
            )
    if is_interrupted:
        return _INTERRUPTED
    return int(Outcome.HARNESS if is_broken else summary.outcome())


if __name__ == "__main__":
    # A reader that has seen enough (`| head`) ends this program as it ends any other.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _interrupt_me)
    raise SystemExit(main())
