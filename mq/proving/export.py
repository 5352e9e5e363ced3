"""`mq export`: the log of a group as files of a table, with a proof; `mq export verify` checks it a month later."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mq.console import fail, print_json, progress, user_errors
from verify.report.text_report import counted

if TYPE_CHECKING:
    from export.export_check import ExportReport
    from export.export_directory import ExportDirectory
    from export.exporter import OnCommit
    from export.log_source import LogSource
    from export.manifest import Manifest

EXIT_FINDINGS = 10  # 1 and 2 say that it could not run
FORMATS = ("parquet", "delta", "iceberg")
BodyChoice = Literal["stored", "inflated", "none"]
FOLLOW_EVERY_S = 60.0
# By extra: what it brings, by the names that are imported.
_NEEDED: dict[str, tuple[str, ...]] = {
    "export": ("pyarrow", "numpy"),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg", "sqlalchemy"),
}

app = typer.Typer(invoke_without_command=True, help="Export a group's log as a table, and prove it later.")


@app.callback()
def export(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", help=f"What is written: {', '.join(FORMATS)}.")] = "",
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The export: a new directory, or one to go on with.")
    ] = None,
    stores: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="STORE",
            help="Store directory of a member; several of one group, again and again.",
        ),
    ] = None,
    namesrv: Annotated[
        str, typer.Option("-n", "--namesrv", metavar="ADDR", help="A cluster that runs, instead of --from.")
    ] = "",
    broker: Annotated[
        str, typer.Option(metavar="NAME", help="Which group of it, where there are several.")
    ] = "",
    topic: Annotated[
        str | None, typer.Option(metavar="T", help="Messages of this topic alone; without it, all entries.")
    ] = None,
    body: Annotated[
        BodyChoice | None,
        typer.Option(help="Bodies: stored as they lie, inflated where clients compressed them, or none."),
    ] = None,
    catalog: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="With --to iceberg: a catalog of pyiceberg's configuration; or its own."
        ),
    ] = "",
    table: Annotated[
        str, typer.Option(metavar="NS.NAME", help="With --catalog: the table's namespace and name in it.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    every_s: Annotated[
        float | None,
        typer.Option(
            metavar="S", help=f"With --follow: how often, in seconds; {FOLLOW_EVERY_S:g} unless given."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="A line per commit, for programs.")] = False,
) -> None:
    """Export what a group has committed into Parquet files, each with a manifest that proves what it holds.

    With --to delta or iceberg the same files are a table of this kind too. Run it again, and it goes on behind the last
    entry that was exported. Nothing is written into the stores.
    """
    if context.invoked_subcommand is not None:
        return
    if not to and into is None and not stores and not namesrv:
        typer.echo(context.get_help())
        raise typer.Exit(2)
    with user_errors():
        if to not in FORMATS:
            raise ValueError(f"--to {to or 'is missing'}: it is one of {', '.join(FORMATS)}")
        if into is None:
            raise ValueError("--into DIR is missing: where the export is, or is to be")
        if bool(stores) == bool(namesrv):
            raise ValueError(
                "give --from STORE, the directory of a member, or --namesrv ADDR, a cluster that runs: one of them"
            )
        if broker and not namesrv:
            raise ValueError("--broker names a group of a cluster: give --namesrv too")
        if topic == "":
            raise ValueError("--topic is empty: name a topic, or leave it out for all")
        if every_s is not None and not follow:
            raise ValueError("--every-s says how often --follow looks: give both")
        if every_s is not None and not 0 < every_s < 86_400:
            raise ValueError(f"--every-s {every_s:g}: it is above 0 and below a day")
        if (catalog or table) and to != "iceberg":
            raise ValueError("--catalog and --table say where an Iceberg table is: they go with --to iceberg")
        if catalog and not table:
            raise ValueError("--table NAMESPACE.NAME is missing: which table of the catalog")
        if table and not (catalog and all(table.partition(".")[::2])):
            raise ValueError(f"--table {table}: it is NAMESPACE.NAME, in the catalog that --catalog names")
    _need_libraries("export")
    where = _Where(into, tuple(stores or ()), namesrv, broker)
    every = every_s or FOLLOW_EVERY_S
    table_format = to if to != "parquet" else ""
    _export(
        where,
        topic,
        body,
        table_format,
        catalog,
        table,
        as_json=json,
        follow_every_s=every if follow else None,
    )


@dataclass(frozen=True, slots=True)
class _Where:
    """From stores, or from a group of a cluster that runs."""

    into: Path
    stores: tuple[Path, ...]
    namesrv: str
    broker: str


def _export(
    where: _Where,
    topic: str | None,
    body: BodyChoice | None,
    table_format: str,
    catalog: str,
    table: str,
    *,
    as_json: bool,
    follow_every_s: float | None,
) -> None:
    from export.export_directory import ExportError, open_for_writing
    from export.exporter import Choices
    from export.exporter import export as run_export
    from export.manifest import ManifestError
    from pyspark_dledger.wire.read_errors import ReadError
    from verify.log.log_walk import LogBrokenError
    from verify.replica import ReplicaError

    into, committed_index = where.into, -1
    with user_errors(ExportError, ManifestError, LogBrokenError, ReplicaError, ReadError):
        formats = _table_formats(into, table_format)
        with _source(where):
            _check_apart(into, where.stores)  # nothing is made for what cannot be read
        with open_for_writing(into) as directory:
            tell = _Teller(directory.last, as_json=as_json)
            if table:
                from export.iceberg_log import CatalogChoice, choose_catalog

                choose_catalog(into, CatalogChoice(catalog, table))
            on_commit = _commits_of_tables(directory, formats, tell.commit)
            # A commit that Ctrl-C breaks off leaves nothing, and the next run makes it again.
            with contextlib.suppress(*(() if follow_every_s is None else (KeyboardInterrupt,))):
                while True:
                    with _source(where) as source:
                        run_export(directory, source, Choices(topic, body), on_commit)
                        committed_index = source.committed_index
                    if follow_every_s is None:
                        break
                    time.sleep(follow_every_s)
        tell.end(into, committed_index)


def _table_formats(directory: Path, wanted: str = "") -> list[str]:
    """Of the tables that an export has, and is to have. Ends the command where a library is missing."""
    from export.table_log import formats_of

    formats = formats_of(directory)
    if wanted and wanted not in formats:
        formats.append(wanted)
    for name in formats:
        _need_libraries(name)
    return formats


def _commits_of_tables(directory: ExportDirectory, formats: Sequence[str], tell: OnCommit) -> OnCommit:
    """What is done with each commit, once the tables have those before."""
    from export.table_log import open_table

    tables = [open_table(directory.path, name) for name in formats]
    for table in tables:
        if directory.last is not None:
            table.catch_up(directory.last.number)

    def commit(manifest: Manifest) -> None:
        for table in tables:
            table.add(manifest)
        tell(manifest)

    return commit


@contextlib.contextmanager
def _source(where: _Where) -> Iterator[LogSource]:
    """What is committed now."""
    if where.namesrv:
        from export.wire_source import wire_source  # with the client and its event loop

        with wire_source(where.namesrv, where.broker) as source:
            yield source
        return
    from export.log_source import ReplicaSource
    from verify.replica import open_replicas

    yield ReplicaSource(open_replicas(where.stores))


class _Teller:
    """Says what became of each commit, on standard output."""

    def __init__(self, last: Manifest | None, *, as_json: bool) -> None:
        self._last = last
        self._as_json = as_json
        self._exported = 0  # entries

    def commit(self, manifest: Manifest) -> None:
        from export.exporter import schema_changes

        changes = schema_changes(self._last, manifest)
        self._last = manifest
        self._exported += manifest.last_index - manifest.first_index + 1
        if self._as_json:
            print_json({**_told(manifest), "schema_changes": changes})
            return
        if changes:
            print(f"schema changed: {changes}")
        size = sum(file.size for file in manifest.files)
        print(f"{manifest.range}: {manifest.rows:,} rows, {size / 1e6:,.1f} MB", flush=True)

    def end(self, into: Path, committed_index: int) -> None:
        count = self._exported
        reached = self._last.last_index if self._last is not None else -1
        if self._as_json:
            print_json({"exported": count, "last_index": reached, "committed_index": committed_index})
        elif count:
            print(
                f"exported {count:,} entries: {into} ends with entry {reached:,}, the last one known to be committed"
            )
        elif reached < 0:
            print("nothing to export: no entry is known to be committed")
        else:
            print(f"nothing new: {into} ends with entry {reached:,}, the commit known is {committed_index:,}")


def _told(manifest: Manifest) -> dict[str, Any]:
    return {
        "number": manifest.number,
        "first_index": manifest.first_index,
        "last_index": manifest.last_index,
        "rows": manifest.rows,
        "files": [file.name for file in manifest.files],
    }


def _check_apart(into: Path, stores: Sequence[Path]) -> None:
    place = into.resolve()
    for store in stores:
        if place.is_relative_to(store.resolve()):
            raise ValueError(f"--into {into} is in a store, which is only read: name a directory elsewhere")


@app.command()
def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="An export.")],
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="STORE",
            help="Store directory of a member: its log must make the same rows. Again and again.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Prove an export: no gap, no overlap, no changed file, and the same rows as the replicas that are given.

    Exit status 0: proved; 10: it is not what it should be; 1 or 2: it could not run. Nothing is written.
    """
    _need_libraries("export")
    from export.export_check import check_export
    from export.export_directory import ExportError
    from export.manifest import ManifestError
    from verify.replica import ReplicaError, open_replicas

    _table_formats(directory)
    with user_errors(ExportError, ManifestError, ReplicaError):
        replicas = open_replicas(against or [])
        with progress() as bar:
            task = bar.add_task("reading", total=None, shown="")

            def show(stage: str, done: int, total: int) -> None:
                bar.update(
                    task, description=stage, completed=done, total=total, shown=f"{done:,} of {total:,}"
                )

            report = check_export(directory, replicas, show)
        if json:
            print_json({**asdict(report), "proved": not report.faults})
        else:
            _print_report(report)
    if report.faults:
        raise typer.Exit(EXIT_FINDINGS)


def _print_report(report: ExportReport) -> None:
    for fault in report.faults:
        print(f"error: {fault}")
    for compared in report.compared:
        told = f", but {compared.remark}" if compared.remark else ""
        if compared.entries:
            print(
                f"{compared.replica}: {compared.entries:,} entries, {compared.first_index:,} .. "
                f"{compared.last_index:,}, make the same rows{told}"
            )
    print(
        f"{counted(report.commits, 'commit')}, {report.rows:,} rows, {report.size / 1e6:,.1f} MB; last manifest "
        f"{report.last_manifest}"
    )
    held = f"entries {report.first_index:,} .. {report.last_index:,} of group {report.group or '(none told)'}"
    print(
        f"Proved: {report.directory} has {held}." if not report.faults else f"Not proved: {report.directory}."
    )


def _need_libraries(extra: str) -> None:
    """Ends the command with what to install."""
    if missing := [name for name in _NEEDED[extra] if find_spec(name) is None]:
        fail(f"this export needs {' and '.join(missing)}: pip install 'pydledger[{extra}]'")
