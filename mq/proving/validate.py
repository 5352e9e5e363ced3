"""`mq validate DIR…`: are these replicas sound, equal, and is all that was acknowledged in them?"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.text import Text

from mq.console import print_json, print_table, progress, user_errors
from mq.proving.follow import follow as run_follow
from pyspark_dledger.spark_session import SparkMissingError, SparkRaisedError, has_spark, spark_session
from verify.history_check import HistoryError
from verify.replica import ReplicaError, open_replicas
from verify.report.html_report import html_report
from verify.report.text_report import REPLICA_COLUMNS, finding_lines, replica_row, verdict, visible
from verify.runner import LocalRunner, Runner
from verify.validation import validate as run_validation
from verify.validation_report import ValidationReport

EXIT_FINDINGS = 10  # 1 and 2 say that it could not run
DEFAULT_MASTER = "local[*]"
_MASTER = re.compile(r"local(\[(\*|\d+)(, *\d+)?\])?|yarn|(spark|k8s)://.+")
FINDINGS_PRINTED = 20


class SparkFailedError(Exception):
    """Spark could not start or gave up. The text is its own, and what to do without it."""


def validate(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="Store directories of one group's members, or one alone."),
    ],
    json: Annotated[str, typer.Option(metavar="F", help="The report as JSON; - is standard output.")] = "",
    html: Annotated[
        Path | None, typer.Option(metavar="F", help="The report as a page for a browser.")
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="F", help="What mq produce --history noted: every acknowledged message must be there."
        ),
    ] = None,
    broker: Annotated[
        str, typer.Option(metavar="NAME", help="Whose sends these are, when the history has several groups'.")
    ] = "",
    committed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The group has committed up to this index; without it, as far as its files tell.",
        ),
    ] = None,
    master: Annotated[
        str,
        typer.Option(metavar="URL", help=f"Where Spark works; without it {DEFAULT_MASTER}, this machine."),
    ] = "",
    max_findings: Annotated[
        int, typer.Option(metavar="N", help="So many findings are shown; their totals stay exact.")
    ] = 200,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Work in this process: for small stores.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Compare the logs of running members as they commit, a line per range, until Ctrl-C.",
        ),
    ] = False,
    metrics: Annotated[
        Path | None, typer.Option(metavar="F", help="With --follow: figures as Prometheus reads them.")
    ] = None,
) -> None:
    """Read replicas from their files and prove them sound and equal, or name each fault.

    Exit status 0: clean; 10: findings; 1 or 2: it could not run. Nothing is written into the stores.
    """
    with user_errors(ReplicaError, HistoryError, SparkMissingError, SparkFailedError):
        if max_findings < 1:
            raise ValueError("--max-findings must be at least 1")
        if committed is not None and committed < 0:
            raise ValueError("--committed is an index, and the first one is 0")
        if master and no_spark:
            raise ValueError("--master says where Spark works, --no-spark that it does not: give one of them")
        if metrics is not None and not follow:
            raise ValueError("--metrics are figures of --follow: give both")
        if follow:
            others = {
                "--html": html,
                "--history": history,
                "--broker": broker,
                "--committed": committed,
                "--master": master,
            }
            if given := [name for name, value in others.items() if value not in (None, "")]:
                raise ValueError(f"{given[0]} does not go with --follow, which compares logs alone")
            if json not in ("", "-"):
                raise ValueError(
                    f"--json {json}: with --follow it is --json -, a line per range on standard output"
                )
            check_outputs({"--metrics": metrics}, directories, None)
            if not run_follow(directories, metrics, as_json=json == "-"):
                raise typer.Exit(EXIT_FINDINGS)
            return
        if html == Path("-"):
            raise ValueError(
                "--html - : the page goes into a file, name one; --json - is what there is for pipes"
            )
        json_file = None if json in ("", "-") else Path(json)
        # What can be said at once is said before Spark is started, and before hours of work.
        open_replicas(directories)
        if history is None and broker:
            raise ValueError("--broker says whose sends of a history count: give --history too")
        if history is not None:
            with history.open("rb") as sends:
                if not sends.read(1):
                    raise ValueError(f"--history {history} is empty: no send was noted in it")
        check_outputs({"--json": json_file, "--html": html}, directories, history)
        with progress() as bar:
            task = bar.add_task("starting", total=None, shown="")

            def show(stage: str, done: int, total: int) -> None:
                shown = f"{done:,} of {total:,}"
                bar.update(task, description=stage, completed=done, total=total or None, shown=shown)

            with _runner(master, no_spark=no_spark) as runner:
                report = run_validation(
                    directories,
                    runner=runner,
                    history=history,
                    broker=broker,
                    committed_index=committed,
                    findings_max=max_findings,
                    on_progress=show,
                )
        if json == "-":
            print_json(report.as_dict())
        else:
            print_validation(report)
        # Last, so that a full disk takes none of the above away.
        if json_file is not None:
            json_file.write_bytes(orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2) + b"\n")
        if html is not None:
            html.write_text(html_report(report), encoding="utf-8")
        if json != "-":
            for path in filter(None, (json_file, html)):
                print(f"written: {path}")
    if not report.is_clean:
        raise typer.Exit(EXIT_FINDINGS)


def check_outputs(
    outputs: Mapping[str, Path | None], directories: Sequence[Path], history: Path | None
) -> None:
    """`outputs`: option to file. None may overwrite what is read, or another. Raises ValueError."""
    read = [directory.resolve() for directory in directories]
    taken = {} if history is None else {history.resolve(): "--history"}
    for option, path in outputs.items():
        if path is None:
            continue
        place = path.resolve()
        if any(place.is_relative_to(directory) for directory in read):
            raise ValueError(f"{option} {path} is in a replica, which is only read: name a file elsewhere")
        if place in taken:
            raise ValueError(f"{option} {path} is the file of {taken[place]}: name another")
        taken[place] = option
        if path.is_dir():
            raise ValueError(f"{option} {path} is a directory: name a file in it")
        is_new = not path.exists()
        try:
            path.open("ab").close()
        except OSError as error:
            raise ValueError(f"{option} {path} cannot be written: {error.strerror}") from None
        if is_new:
            path.unlink()


@contextlib.contextmanager
def _runner(master: str, *, no_spark: bool) -> Iterator[Runner]:
    """Spark, unless it was declined or is not installed; asked for by name, it has to be there."""
    if no_spark:
        yield LocalRunner()
        return
    if not has_spark() and not master:
        print(
            "mq: Spark is not installed, so this process does the work alone; "
            "pip install 'pydledger[spark]' brings it, --no-spark says that none is wanted",
            file=sys.stderr,
        )
        yield LocalRunner()
        return
    if master and not _MASTER.fullmatch(master):
        raise ValueError(
            f"--master {master} is none of: local[*], local[N], spark://HOST:PORT, yarn, k8s://URL"
        )
    with _spark_runner(master or DEFAULT_MASTER) as runner:
        yield runner


@contextlib.contextmanager
def _spark_runner(master: str) -> Iterator[Runner]:
    if not has_spark():
        raise SparkMissingError("Spark is not installed: pip install 'pydledger[spark]', or give --no-spark")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from pyspark_dledger.spark_runner import SparkRunner, SparkWorkError

    try:
        with spark_session(master) as session:
            yield SparkRunner(session)
    except SparkMissingError as error:
        raise SparkMissingError(f"{error}; or give --no-spark for work in this process") from None
    except (ConnectionError, Py4JError, PySparkException, SparkRaisedError, SparkWorkError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise SparkFailedError(
            f"Spark at {master} failed: {lines[0]}; --no-spark does the work in this process"
        ) from error


def print_validation(report: ValidationReport) -> None:
    """Replicas, findings, what was not looked at, and the verdict as the last word."""
    rows = [replica_row(replica) for replica in report.replicas]
    print_table("", REPLICA_COLUMNS, rows, dispensable=("files", "log", "end chain", "messages"))
    console = Console(highlight=False, soft_wrap=True)
    found = report.findings
    for finding in found.shown[:FINDINGS_PRINTED]:
        style = "bold red" if finding.severity == "error" else "yellow"
        head, *rest = finding_lines(finding)
        console.print(Text(head, style=style))
        for line in rest:
            console.print(Text(f"    {line}"))
    rest_count = max(len(found.shown) - FINDINGS_PRINTED, 0) + found.left_out
    if rest_count:
        console.print(
            Text(f"… and {rest_count:,} more findings: --html F or --json F shows up to --max-findings")
        )
    if len(found.totals) > 1 or rest_count:
        console.print(
            Text("in all: " + ", ".join(f"{count:,} {kind}" for kind, count in found.totals.items()))
        )
    for note in report.notes:
        console.print(Text(f"not looked at: {visible(note)}"))
    judged = verdict(report)
    console.print(Text(judged.headline, style="bold green" if judged.is_clean else "bold red"))
    if judged.detail:
        console.print(Text(judged.detail))
