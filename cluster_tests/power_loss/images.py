"""Replays the journals of shim.c into the tree that a power loss would have left.

A tree is brought up to date in place: it starts as what was durable before the processes ran and afterwards holds what
was durable when they died. Records are applied in journal order; names count from the sync of their directory on, and
only those journalled before that sync began.
"""

import mmap
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

RECORD = struct.Struct("=8sQQQQQ")  # kind, id, first, second, length of a, length of b


class BypassError(Exception):
    """Bytes under the root could reach the disk by another way than a write and a sync (a shared mapping)."""


@dataclass
class ReplaySummary:
    """What one journal held: counts that a test prints, so that an empty run cannot pass for a good one."""

    bytes_synced: int = 0
    syncs: int = 0
    directory_syncs: int = 0
    names_lost: int = 0
    orphaned_files: int = 0


@dataclass
class _Name:
    position: int  # in the journal
    kind: str
    directory: str
    path: str
    new_path: str
    file_id: int


@dataclass
class JournalReplay:
    """One process's journal over one durable tree. `root` is the live tree; what the journal says of others is
    passed over (a node's log files lie beside its store)."""

    root: Path
    durable: Path
    summary: ReplaySummary = field(default_factory=ReplaySummary)
    _pending: list[_Name] = field(default_factory=list)
    _path_of: dict[int, str] = field(default_factory=dict)
    # Synced bytes of files whose name is not durable yet: (size or None, offset, data).
    _nameless: dict[int, list[tuple[int | None, int, bytes]]] = field(default_factory=dict)

    def replay(self, journal: Path) -> ReplaySummary:
        if not journal.stat().st_size:
            return self.summary
        with journal.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            self._replay(data)
        return self.summary

    def _replay(self, data: mmap.mmap) -> None:
        at = 0
        while at + RECORD.size <= len(data):
            raw_kind, file_id, first, _, length_a, length_b = RECORD.unpack_from(data, at)
            end = at + RECORD.size + length_a + length_b
            if end > len(data):
                break  # the kill tore the last record: it never came to be durable
            a = data[at + RECORD.size : at + RECORD.size + length_a]
            b = data[at + RECORD.size + length_a : end]
            self._apply(at, raw_kind.rstrip(b"\0").decode(), file_id, first, a, b)
            at = end
        self.summary.names_lost += len(self._pending)
        self.summary.orphaned_files += len(self._nameless)

    def _apply(self, position: int, kind: str, file_id: int, first: int, a: bytes, b: bytes) -> None:
        if kind == "bypass":
            raise BypassError(f"{a.decode()}: a writable shared mapping bypasses disk/")
        if kind in {"create", "rename", "unlink", "mkdir"}:
            path = a.decode()
            if not self._inside(path):
                return
            self._pending.append(_Name(position, kind, str(Path(path).parent), path, b.decode(), file_id))
        elif kind == "open":
            path = a.decode()
            if self._inside(path) and self._durable(path).exists():
                self._path_of[file_id] = path
        elif kind == "dirsync":
            self.summary.directory_syncs += 1
            self._sync_directory(a.decode(), before=first)
        elif kind == "size":
            self.summary.syncs += 1
            self._write(file_id, first, 0, b"")
        elif kind == "data":
            self.summary.bytes_synced += len(a)
            self._write(file_id, None, first, a)
        else:
            raise ValueError(f"a journal record of unknown kind {kind!r} at {position}")

    def _inside(self, path: str) -> bool:
        return Path(path).is_relative_to(self.root)

    def _durable(self, path: str) -> Path:
        return self.durable / Path(path).relative_to(self.root)

    def _sync_directory(self, directory: str, before: int) -> None:
        later = []
        for name in self._pending:
            if name.directory == directory and name.position < before:
                self._name(name)
            else:
                later.append(name)
        self._pending = later

    def _name(self, name: _Name) -> None:
        target = self._durable(name.path)
        if name.kind == "mkdir":
            target.mkdir(exist_ok=True)
        elif name.kind == "create":
            target.write_bytes(b"")
            self._path_of[name.file_id] = name.path
            for size, offset, data in self._nameless.pop(name.file_id, []):
                self._write(name.file_id, size, offset, data)
        elif name.kind == "rename":
            self._forget(name.new_path)
            if target.exists():
                target.replace(self._durable(name.new_path))
            for file_id, path in self._path_of.items():
                if path == name.path:
                    self._path_of[file_id] = name.new_path
        else:
            self._forget(name.path)
            if target.is_dir():
                target.rmdir()
            else:
                target.unlink(missing_ok=True)

    def _forget(self, path: str) -> None:
        for file_id in [key for key, value in self._path_of.items() if value == path]:
            del self._path_of[file_id]

    def _write(self, file_id: int, size: int | None, offset: int, data: bytes) -> None:
        path = self._path_of.get(file_id)
        if path is None:
            self._nameless.setdefault(file_id, []).append((size, offset, data))
            return
        descriptor = os.open(self._durable(path), os.O_RDWR)
        try:
            if size is not None:
                os.ftruncate(descriptor, size)
            if data:
                os.pwrite(descriptor, data, offset)
        finally:
            os.close(descriptor)
