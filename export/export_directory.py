"""The directory of an export: its manifests, its files, and one writer at a time.

A commit is its manifest: files come before it, and what no manifest names is no part of the export. The next writer
deletes such files, which a killed one leaves.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from disk.real_disk import RealDisk
from export.manifest import (
    DIRECTORY,
    Manifest,
    ManifestError,
    encode_manifest,
    manifest_name,
    manifest_numbers,
    read_manifest,
)
from export.parquet_part import delete_parts_from

_LOCK: Final = "lock"
_UNFINISHED: Final = ".unfinished"


class ExportError(Exception):
    """The export cannot be written, or not go on. The text says why, and what to do."""


class ExportDirectory:
    """As a writer has it. `last` and `last_sha256` are of the newest commit; None and "" before the first."""

    def __init__(self, path: Path, last: Manifest | None, last_sha256: str) -> None:
        self.path = path
        self.last = last
        self.last_sha256 = last_sha256
        self._disk = RealDisk()

    def commit(self, manifest: Manifest) -> None:
        """Returns when it is on disk. Raises DiskError, OSError."""
        content = encode_manifest(manifest)
        manifests = self.path / DIRECTORY
        unfinished = manifests / _UNFINISHED
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fdatasync(file.fileno())
        unfinished.rename(manifests / manifest_name(manifest.number))
        self._disk.sync_directory(str(manifests))
        self.last, self.last_sha256 = manifest, hashlib.sha256(content).hexdigest()


@contextmanager
def open_for_writing(path: Path) -> Iterator[ExportDirectory]:
    """Makes the directory if it is not there. Raises ExportError, ManifestError, DiskError, OSError."""
    manifests = path / DIRECTORY
    if path.is_dir() and not manifests.is_dir() and any(path.iterdir()):
        raise ExportError(f"{path} is not empty and is no export: name a new directory")
    manifests.mkdir(parents=True, exist_ok=True)
    with (manifests / _LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ExportError(f"another export is writing into {path}") from None
        RealDisk().sync_parents(str(manifests / _LOCK))
        last, sha256 = _newest(path)
        delete_parts_from(path, last.last_index + 1 if last is not None else 0)
        yield ExportDirectory(path, last, sha256)


def _newest(path: Path) -> tuple[Manifest | None, str]:
    numbers = manifest_numbers(path)
    if numbers != list(range(len(numbers))):
        raise ManifestError(f"{path / DIRECTORY} does not have all manifests: mq export verify says which")
    return read_manifest(path, numbers[-1]) if numbers else (None, "")
