"""One Parquet file of an export: rows of consecutive entries."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from disk.real_disk import RealDisk
from export.columns import place_of, schema_of
from export.manifest import ExportedFile
from pyspark_dledger.entry_columns import Selection, run_batches
from verify.log.entry_scan import Run

SUFFIX: Final = ".parquet"
_NAME: Final = re.compile(r"part-(\d{20})-\d{20}\.parquet")
# Under this name a file is written: readers of Parquet pass over names that begin with a dot.
_UNFINISHED: Final = ".unfinished" + SUFFIX
# Bytes of rows in a row group: memory holds one while it is written.
_GROUP_SIZE: Final = 64 * 1024 * 1024
_COMPRESSION: Final = "zstd"


def part_name(first_index: int, last_index: int) -> str:
    return f"part-{first_index:020}-{last_index:020}{SUFFIX}"


def delete_parts_from(directory: Path, index: int) -> None:
    """Files of entries from `index` on: no manifest names them, for a writer was killed before it wrote that."""
    for name in parts_in(directory):
        if (match := _NAME.fullmatch(name)) and int(match[1]) >= index:
            (directory / name).unlink()


def parts_in(directory: Path) -> set[str]:
    """Paths, relative to the directory, of what readers of Parquet take for a part of the table: files of any name, in
    directories too, unless a name on the way begins with a dot or an underscore. Raises OSError."""
    return {path.relative_to(directory).as_posix() for path in _files_in(directory)}


def _files_in(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if path.name[0] in "._":
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files_in(path)
        else:
            yield path


class PartWriter:
    """Takes runs in their order; `finish` puts the file in its place. Nothing is there before that."""

    def __init__(self, directory: Path, selection: Selection, group: str) -> None:
        self._directory = directory
        self._selection = selection
        self._place = place_of(group)
        self._schema = schema_of(selection)
        self._path = directory / _UNFINISHED
        self._writer: pq.ParquetWriter | None = None
        self._batches: list[pa.RecordBatch] = []
        self._size = 0  # of what waits, in bytes
        self.rows = 0

    def take(self, run: Run) -> None:
        for batch in run_batches(run, self._place, self._selection):
            self._batches.append(batch)
            self._size += batch.nbytes
            self.rows += batch.num_rows
            if self._size >= _GROUP_SIZE:
                self._write_group()

    def finish(self, first_index: int, last_index: int) -> tuple[ExportedFile, ...]:
        """Returns when the file is on disk; no file for no rows. Raises OSError."""
        self._write_group()
        if self._writer is None:
            return ()
        self._writer.close()
        with self._path.open("r+b") as file:
            os.fdatasync(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.seek(0, os.SEEK_END)
        name = part_name(first_index, last_index)
        self._path.rename(self._directory / name)
        RealDisk().sync_directory(str(self._directory))
        return (ExportedFile(name, size, self.rows, digest),)

    def drop(self) -> None:
        """After trouble: what is written of the file goes."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
        self._path.unlink(missing_ok=True)

    def _write_group(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, self._schema, compression=_COMPRESSION)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._batches, self._size = [], 0


def schema_of_part(path: Path) -> pa.Schema:
    """Raises OSError, pa.ArrowException."""
    return pq.read_schema(path)


def read_part(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """These columns, row group by row group. Raises OSError, pa.ArrowException."""
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            yield from file.read_row_group(number, list(columns)).select(list(columns)).to_batches()
