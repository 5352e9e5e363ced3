"""`spark-submit … __main__.py DIR…`: the validation on a cluster, where the command line's libraries may be missing.

`mq validate` is the same with more comfort. Exit status 0: clean; 10: findings; 1 or 2: it could not run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark_dledger.spark_session import SparkMissingError, SparkRaisedError, spark_session
from verify.history_check import HistoryError
from verify.replica import ReplicaError
from verify.report.html_report import html_report
from verify.report.text_report import finding_lines, verdict
from verify.validation import validate

EXIT_FINDINGS = 10


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="pyspark_dledger", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directories", nargs="+", metavar="DIR", help="store directories of one group's members"
    )
    parser.add_argument("--json", type=Path, metavar="F", help="the report as JSON")
    parser.add_argument("--html", type=Path, metavar="F", help="the report as a page for a browser")
    parser.add_argument("--history", type=Path, metavar="F", help="what mq produce --history noted")
    parser.add_argument("--broker", default="", metavar="NAME", help="whose sends of the history these are")
    parser.add_argument(
        "--committed", type=_at_least(0), metavar="N", help="the group has committed up to this index"
    )
    parser.add_argument(
        "--max-findings", type=_at_least(1), default=200, metavar="N", help="so many are shown"
    )
    parser.add_argument("--master", default="local[*]", metavar="URL", help="ignored under spark-submit")
    options = parser.parse_args(arguments)
    try:
        with spark_session(options.master, app_name="pydledger validate") as session:
            from pyspark_dledger.spark_runner import SparkRunner, SparkWorkError

            try:
                report = validate(
                    options.directories,
                    runner=SparkRunner(session),
                    history=options.history,
                    broker=options.broker,
                    committed_index=options.committed,
                    findings_max=options.max_findings,
                )
            except SparkWorkError as error:
                return _could_not_run(error)
        if options.json is not None:
            options.json.write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")
        if options.html is not None:
            options.html.write_text(html_report(report), encoding="utf-8")
    except (HistoryError, OSError, ReplicaError, SparkMissingError, SparkRaisedError) as error:
        return _could_not_run(error)
    for finding in report.findings.shown:
        print("\n    ".join(finding_lines(finding)))
    print(verdict(report).headline)
    return 0 if report.is_clean else EXIT_FINDINGS


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{value} is too small, the least is {least}")
        return value

    return number


def _could_not_run(error: Exception) -> int:
    print(f"pyspark_dledger: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
