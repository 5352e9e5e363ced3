"""Runs seeds and says what they were worth: `scripts/simulate --seeds 1..2000`, `scripts/simulate --seed 3053`."""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial

from simulator.mutants import MUTANTS
from simulator.run import Outcome, Result, run_seed
from simulator.summary import Summary


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Whole replica groups in virtual time, under faults drawn from a seed.",
        epilog="Exit status: 0 no violation, 10 safety, 11 liveness or below a floor, 12 the simulator itself.",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", metavar="A..B", type=_seed_range, help="these seeds, both ends included")
    which.add_argument("--seed", metavar="S", type=int, help="one seed; its trace is shown when it fails")
    parser.add_argument(
        "--minutes", metavar="M", type=float, help="stop after so long, and say how far it came"
    )
    parser.add_argument(
        "--members", metavar="N", type=int, choices=(1, 3, 5), help="instead of what the seed draws"
    )
    parser.add_argument("--mutant", metavar="NAME", choices=sorted(MUTANTS), help="put a known bug in")
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="the summary as JSON and nothing else")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first violation")
    return parser.parse_args(arguments)


def _seed_range(text: str) -> range:
    first, separator, last = text.partition("..")
    if not separator or not first.isdecimal() or not last.isdecimal() or int(last) < int(first):
        raise argparse.ArgumentTypeError(f"{text!r} is no range: A..B with A <= B, like 1..2000")
    return range(int(first), int(last) + 1)


def run_with_mutant(seed: int, *, member_count: int | None, mutant: str | None) -> Result:
    """One seed, with a known bug put in if `mutant` names one."""
    if mutant is None:
        return run_seed(seed, member_count=member_count)
    with MUTANTS[mutant]():
        return run_seed(seed, member_count=member_count)


def _results(options: argparse.Namespace) -> Iterator[Result]:
    run = partial(run_with_mutant, member_count=options.members, mutant=options.mutant)
    if options.seed is not None:
        yield run(options.seed)
    elif options.jobs == 1:
        yield from map(run, options.seeds)
    else:
        with multiprocessing.Pool(options.jobs) as pool:
            yield from pool.imap(run, options.seeds)


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    summary = Summary()
    began = time.monotonic()
    shows_progress = sys.stderr.isatty() and not options.json
    for result in _results(options):
        summary.add(result)
        if result.outcome is not Outcome.PASSED:
            if not options.json:
                print(result.report, flush=True)
            if not options.keep_going:
                break
        if shows_progress:
            print(f"\r{summary.runs} runs, {len(summary.failures)} violations", end="", file=sys.stderr)
        if options.minutes and time.monotonic() - began > 60 * options.minutes:
            break
    if shows_progress:
        print(file=sys.stderr)
    if options.json:
        print(json.dumps(summary.as_dict()))
    else:
        print("\n".join(summary.lines(time.monotonic() - began)))
    return int(summary.outcome())


if __name__ == "__main__":
    # A reader that has seen enough (`| head`) ends this program as it ends any other.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    raise SystemExit(main())
