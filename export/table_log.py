"""A table over the files of an export: its own log names the same files, one version for each commit.

The export's manifests come first, and tables follow them. Each version of a table tells the number of its manifest. So
a run that is killed in between has lost nothing: the next one adds what the table does not have yet, once. An export
goes on with all tables that it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from export.manifest import Manifest, read_manifest

# By format: the directory in an export's where the table's log is, or what says where that is.
LOG_DIRECTORIES: Final = {"delta": "_delta_log", "iceberg": "_iceberg"}


class TableFile(NamedTuple):
    """As a table's log tells it."""

    name: str  # in the directory of the export; its full place elsewhere
    size: int | None  # bytes
    rows: int | None
    has_deletes: bool = False  # readers of the table leave rows of the file out

    def __str__(self) -> str:
        return f"{self.name} of {self.size} bytes and {self.rows} rows" + ", some deleted" * self.has_deletes


class TableLog(ABC):
    def __init__(self, directory: Path, name: str) -> None:
        """`directory`: of the export; `name`: of the log in it."""
        self.name = name
        self._directory = directory

    @property
    @abstractmethod
    def number(self) -> int:
        """Of the last manifest that the table has; -1 for none."""

    @abstractmethod
    def files(self) -> list[TableFile]:
        """That are the table now. Raises ExportError."""

    @abstractmethod
    def add(self, manifest: Manifest) -> None:
        """The next commit. Raises ExportError."""

    def catch_up(self, last_number: int) -> None:
        """Adds what the export has up to this manifest and the table has not. Raises ExportError, ManifestError."""
        for number in range(self.number + 1, last_number + 1):
            self.add(read_manifest(self._directory, number)[0])

    def faults(self, manifests: Sequence[Manifest], last_number: int) -> list[str]:
        """Where the table is not what the export's manifests say. It must have those up to `last_number`, and may have
        the later ones of an export that runs. Raises ExportError."""
        number, named = self.number, Counter(self.files())
        known = Counter(
            TableFile(file.name, file.size, file.rows)
            for manifest in manifests
            if manifest.number <= number
            for file in manifest.files
        )
        faults = [
            f"{self.name}: the table has {file}, which no manifest names"
            for file in sorted((named - known).elements(), key=str)
        ]
        faults += [f"{self.name}: the table no longer has {file}" for file in sorted(known - named)]
        if number < last_number:
            faults.append(
                f"{self.name}: the table ends with manifest {number}, the export with {last_number}: a killed export "
                "leaves it so, and the next one adds the rest; one that runs is about to add it"
            )
        return faults


def formats_of(directory: Path) -> list[str]:
    """Of the tables that an export has."""
    return [name for name, log in LOG_DIRECTORIES.items() if (directory / log).is_dir()]


def open_table(directory: Path, table_format: str) -> TableLog:
    """Made with the first commit where there is none. Needs the format's library. Raises ExportError."""
    if table_format == "delta":
        from export.delta_log import DeltaLog

        return DeltaLog(directory)
    from export.iceberg_log import IcebergLog

    return IcebergLog(directory)
