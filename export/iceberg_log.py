"""The Iceberg table of an export, in any catalog that pyiceberg knows.

Unless another is named, the catalog is an SQLite file beside the table's metadata, in the export itself. Which one it
is the export keeps, so that the next run and whoever proves it find the table. Its property `pydledger.manifest` is
the number of the last manifest that it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
)

from export.columns import schema_of, selection_of
from export.export_directory import ExportError
from export.manifest import Manifest
from export.table_log import LOG_DIRECTORIES, TableFile, TableLog

_NUMBER: Final = "pydledger.manifest"
_CHOICE: Final = "table.json"
_OWN_NAMESPACE: Final = "pydledger"
_TROUBLE: Final = (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
    ValueError,  # a catalog that is not configured
)


class CatalogChoice(msgspec.Struct, frozen=True):
    """`catalog`: its name in pyiceberg's configuration; "" for the export's own. `table`: namespace.name."""

    catalog: str
    table: str


def choose_catalog(directory: Path, choice: CatalogChoice) -> None:
    """Says where the table of a new export is to be; for one that has a table, it must be the same. Raises
    ExportError."""
    known = _choice(directory)
    if known is not None and known != choice:
        raise ExportError(
            f"the Iceberg table of {directory} is {known.table} in {_catalog_name(known)}: "
            "leave --catalog and --table out"
        )
    path = directory / LOG_DIRECTORIES["iceberg"]
    path.mkdir(exist_ok=True)
    (path / _CHOICE).write_bytes(msgspec.json.encode(choice) + b"\n")


def _choice(directory: Path) -> CatalogChoice | None:
    path = directory / LOG_DIRECTORIES["iceberg"] / _CHOICE
    try:
        return msgspec.json.decode(path.read_bytes(), type=CatalogChoice)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ExportError(f"{path} does not say where the table is: {error}") from None


def _catalog_name(choice: CatalogChoice) -> str:
    return f"catalog {choice.catalog}" if choice.catalog else "its own catalog"


class IcebergLog(TableLog):
    def __init__(self, directory: Path) -> None:
        """Raises ExportError."""
        super().__init__(directory, LOG_DIRECTORIES["iceberg"])
        self._choice = _choice(directory) or CatalogChoice("", f"{_OWN_NAMESPACE}.{_own_name(directory)}")
        with self._told():
            self._catalog = self._load()
            exists = self._catalog.table_exists(self._choice.table)
            self._table = self._catalog.load_table(self._choice.table) if exists else None

    @property
    def number(self) -> int:
        return int(self._table.properties.get(_NUMBER, -1)) if self._table is not None else -1

    def files(self) -> list[TableFile]:
        if self._table is None:
            return []
        here = _location(self._directory) + "/"
        with self._told():
            tasks = list(self._table.scan().plan_files())
        return [
            TableFile(
                task.file.file_path.removeprefix(here),
                task.file.file_size_in_bytes,
                task.file.record_count,
                bool(task.delete_files),
            )
            for task in tasks
        ]

    def add(self, manifest: Manifest) -> None:
        schema = schema_of(selection_of(manifest.topic, manifest.body))
        with self._told():
            if self._table is None:
                choose_catalog(self._directory, self._choice)
                self._catalog.create_namespace_if_not_exists(Catalog.namespace_from(self._choice.table))
                self._table = self._catalog.create_table(self._choice.table, schema=schema)
            with self._table.transaction() as transaction:
                if set(schema.names) - {field.name for field in self._table.schema().fields}:
                    with transaction.update_schema() as update:
                        update.union_by_name(schema)
                if manifest.files:
                    transaction.add_files([_location(self._directory / file.name) for file in manifest.files])
                transaction.set_properties({_NUMBER: str(manifest.number)})

    def _load(self) -> Catalog:
        if self._choice.catalog:
            return load_catalog(self._choice.catalog)
        own = (self._directory / self.name).resolve()
        own.mkdir(exist_ok=True)
        uri = f"sqlite:///{own}/catalog.db"
        return load_catalog(_OWN_NAMESPACE, type="sql", uri=uri, warehouse=_location(own))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except _TROUBLE as error:
            where = f"table {self._choice.table} in {_catalog_name(self._choice)}"
            raise ExportError(f"{self._directory}: {where}: {error}") from error


def _location(path: Path) -> str:
    """As Iceberg writes it: nothing in it is quoted."""
    return f"file://{path.resolve()}"


def _own_name(directory: Path) -> str:
    """Of the table in an export's own catalog: what is no letter or digit becomes _."""
    return "".join(char if char.isalnum() else "_" for char in directory.resolve().name) or "export"
