"""A Delta table over the files of an export: its log names the same files, one version for each commit.

The export's manifests come first, and the table's log follows them. Each version carries the number of its manifest as
the transaction of an application, as Delta's own streaming writers do. So a run that is killed in between has lost
nothing: the next one adds what the table does not have yet, once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction

from export.columns import schema_of, selection_of
from export.export_directory import DELTA_LOG, ExportError
from export.manifest import Manifest, read_manifest

_APPLICATION: Final = "pydledger-export"


class DeltaLog:
    """Of the table in an export's directory, which is made with the first commit."""

    def __init__(self, directory: Path) -> None:
        """Raises ExportError."""
        self._directory = directory
        try:
            self._table = DeltaTable(directory) if (directory / DELTA_LOG).is_dir() else None
        except DeltaError as error:
            raise ExportError(f"{directory}: the table's log cannot be read: {error}") from None

    @property
    def number(self) -> int:
        """Of the last manifest that the table has; -1 for none."""
        if self._table is None:
            return -1
        number = self._table.transaction_version(_APPLICATION)
        return -1 if number is None else number

    @property
    def file_names(self) -> set[str]:
        """Of the files that are the table now."""
        if self._table is None:
            return set()
        actions = pa.table(self._table.get_add_actions(flatten=True))
        return set(actions.column("path").to_pylist())

    def catch_up(self, last_number: int) -> None:
        """Adds what the export has up to this manifest and the table has not. Raises ExportError, ManifestError."""
        for number in range(self.number + 1, last_number + 1):
            self.add(read_manifest(self._directory, number)[0])

    def add(self, manifest: Manifest) -> None:
        """The next commit. Raises ExportError."""
        schema = schema_of(selection_of(manifest.topic, manifest.body))
        try:
            if self._table is None:
                self._table = DeltaTable.create(self._directory, schema, name=self._directory.name)
            self._add_columns(self._table, schema)
            actions: list[AddAction | RemoveAction] = [
                AddAction(
                    path=file.name,
                    size=file.size,
                    partition_values={},
                    modification_time=int((self._directory / file.name).stat().st_mtime * 1000),
                    data_change=True,
                    stats=json.dumps({"numRecords": file.rows}),
                )
                for file in manifest.files
            ]
            transaction = Transaction(_APPLICATION, manifest.number)
            about = {"entries": f"{manifest.first_index}..{manifest.last_index}", "group": manifest.group}
            properties = CommitProperties(app_transactions=[transaction], custom_metadata=about)
            self._table.create_write_transaction(
                actions, "append", self._table.schema(), commit_properties=properties
            )
            self._table.update_incremental()
        except DeltaError as error:
            raise ExportError(
                f"{self._directory}: {manifest.range} cannot go into the table: {error}"
            ) from None

    @staticmethod
    def _add_columns(table: DeltaTable, schema: pa.Schema) -> None:
        there = {field.name for field in table.schema().fields}
        wanted = Schema.from_arrow(schema).fields
        if new := [field for field in wanted if field.name not in there]:
            table.alter.add_columns(new)


def delta_faults(directory: Path, manifests: list[Manifest]) -> list[str]:
    """Where the table is not what the manifests say. Raises ExportError."""
    log = DeltaLog(directory)
    number = log.number
    known = {file.name for manifest in manifests if manifest.number <= number for file in manifest.files}
    named = log.file_names
    faults = [f"{DELTA_LOG}: the table has {name}, which no manifest names" for name in sorted(named - known)]
    faults += [f"{DELTA_LOG}: the table no longer has {name}" for name in sorted(known - named)]
    if manifests and number < manifests[-1].number:
        faults.append(
            f"{DELTA_LOG}: the table ends with manifest {number}, the export with {manifests[-1].number}: a killed "
            "export leaves it so, and the next one adds the rest"
        )
    return faults
