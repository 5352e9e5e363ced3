"""`python -m faults FILE…`: histories of a run that is over, judged and drawn."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from faults.history import read_history
from faults.judge import Judgement, judge
from faults.report import fault_report, verdict
from faults.timeline import Timeline
from verify.history_check import HistoryError
from verify.report.text_report import visible

EXIT_BROKEN: Final = 10  # as the simulator's for a safety violation
EXIT_SHORT: Final = 11  # and for a run below its floors
EXIT_NO_HISTORY: Final = 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m faults", description="Judge what clients saw of a cluster under faults."
    )
    parser.add_argument("histories", nargs="+", type=Path, metavar="FILE", help="one of each process")
    parser.add_argument("--html", type=Path, metavar="F", help="write the report there")
    options = parser.parse_args(arguments)
    timeline = Timeline()
    try:
        judgement = judge(lambda: read_history(options.histories), timeline)
        if options.html is not None:
            options.html.write_text(fault_report(judgement, timeline), encoding="utf-8")
    except (HistoryError, OSError) as error:
        told = (
            f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        )
        print(f"faults: {told}", file=sys.stderr)
        return EXIT_NO_HISTORY
    try:
        print("\n".join(told_lines(judgement)), flush=True)
    except BrokenPipeError:
        # The reader has enough, as `head`; nothing is left to be written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return {"good": 0, "bad": EXIT_BROKEN, "short": EXIT_SHORT}[verdict(judgement)[0]]


def told_lines(judgement: Judgement) -> list[str]:
    _, headline, detail = verdict(judgement)
    broken = [f"  {one.checker}: {visible(one.sentence)}" for one in judgement.violations]
    short = [f"  falls short: {text}" for text in judgement.shortfalls()]
    return [headline, detail, *broken, *short]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
