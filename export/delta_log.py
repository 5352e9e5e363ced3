"""The Delta table of an export. Each version carries the number of its manifest as the transaction of an application,
as Delta's own streaming writers do."""

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
from export.export_directory import ExportError
from export.manifest import Manifest
from export.table_log import LOG_DIRECTORIES, TableFile, TableLog

_APPLICATION: Final = "pydledger-export"


class DeltaLog(TableLog):
    def __init__(self, directory: Path) -> None:
        """Raises ExportError."""
        super().__init__(directory, LOG_DIRECTORIES["delta"])
        try:
            self._table = DeltaTable(directory) if (directory / self.name).is_dir() else None
        except DeltaError as error:
            raise ExportError(f"{directory}: the table's log cannot be read: {error}") from None

    @property
    def number(self) -> int:
        if self._table is None:
            return -1
        number = self._table.transaction_version(_APPLICATION)
        return -1 if number is None else number

    def files(self) -> list[TableFile]:
        if self._table is None:
            return []
        try:
            added = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
            vectors = pa.table(self._table.deletion_vectors()).column("filepath").to_pylist()
        except DeltaError as error:
            raise ExportError(f"{self._directory}: the table cannot be read: {error}") from None
        with_deletes = {uri.rpartition("/")[2] for uri in vectors}
        return [
            TableFile(
                file["path"],
                file["size_bytes"],
                file.get("num_records"),
                file["path"].rpartition("/")[2] in with_deletes,
            )
            for file in added
        ]

    def add(self, manifest: Manifest) -> None:
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
