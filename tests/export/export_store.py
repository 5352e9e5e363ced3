"""A replica whose own files say what is committed, its export, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from made_store import Entry, write_log

from export.export_check import ExportReport, check_export
from export.export_directory import open_for_writing
from export.exporter import Choices, export
from export.log_source import ReplicaSource
from export.manifest import Manifest
from verify.replica import Replica, open_replica


def write_replica(root: Path, entries: Sequence[Entry], committed: int | None = None) -> Path:
    """Up to all entries is committed unless it is said."""
    write_log(root, entries)
    commit(root, entries[-1].index if committed is None else committed)
    return root


def commit(root: Path, index: int) -> None:
    """As Java's DLedger says it."""
    (root / f"dledger-{root.name}" / "checkpoint").write_text(f"committedIndex={index}\nendIndex={index}\n")


def replicas(*roots: Path) -> list[Replica]:
    return [open_replica(root) for root in roots]


def run_export(
    into: Path, *roots: Path, choices: Choices | None = None, file_log_size: int = 4096
) -> list[Manifest]:
    """The commits of this run."""
    commits: list[Manifest] = []
    with open_for_writing(into) as directory:
        source = ReplicaSource(replicas(*roots))
        export(directory, source, choices or Choices(), commits.append, file_log_size=file_log_size)
    return commits


def rows_of(into: Path, column: str) -> list[object]:
    """As a reader of the directory has them."""
    return [
        value
        for path in sorted(into.glob("part-*.parquet"))
        for value in pq.read_table(path)[column].to_pylist()
    ]


def checked(into: Path, *roots: Path, meanwhile: Callable[[], object] = lambda: None) -> ExportReport:
    """`meanwhile` happens once the first manifests are read, and before any file is."""

    def on_progress(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("files", 0):
            meanwhile()

    return check_export(into, replicas(*roots), on_progress)
