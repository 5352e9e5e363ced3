"""What a member remembers of the applied state, so that a start need not replay the whole log.

Two files take turns, each replaced as a whole. One counts only if the log at hand still has the entry that it speaks
of, with the same chain value: what was applied may have been committed by others and lost here in a power cut.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import msgpack

from disk.disk import Disk
from dledger.entry import Index
from store.consume_queue_store import QueueRow
from store.layout.checkpoint import StoreCheckpoint

_HEAD = struct.Struct(
    ">4s"  # magic
    "I"  # CRC-32 of the payload
    "q"  # payload size
)
_MAGIC = b"PyDC"
_VERSION: Final = 1
CHECKPOINT_NAMES: Final = ("applied-state-0", "applied-state-1")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after the entry `applied_index`. ConsumeQueue units up to there are in synced files."""

    applied_index: Index
    chain_crc: int  # of that entry
    confirm_offset: int  # position behind it
    store_timestamp: int  # ms, of the newest record up to it
    tables: list[Any]  # StateTables.pack()
    full_state_log: list[Any]  # FullStateLog.pack()
    queues: list[QueueRow]

    def pack(self) -> bytes:
        values = [getattr(self, name) for name in self.__slots__]
        payload: bytes = msgpack.packb([_VERSION, *values], unicode_errors="surrogateescape")
        return _HEAD.pack(_MAGIC, crc32(payload), len(payload)) + payload


def load_checkpoint(disk: Disk, directory: str, is_of_log: Callable[[Index, int], bool]) -> Checkpoint | None:
    """The newest readable one for which is_of_log(applied_index, chain_crc) holds."""
    found: Checkpoint | None = None
    for name in CHECKPOINT_NAMES:
        path = f"{directory}/{name}"
        checkpoint = unpack_checkpoint(disk.read_file(path)) if disk.exists(path) else None
        if checkpoint is None or (found is not None and checkpoint.applied_index <= found.applied_index):
            continue
        if is_of_log(checkpoint.applied_index, checkpoint.chain_crc):
            found = checkpoint
    return found


class CheckpointJob:
    """Fulfils DiskJob: replaces one of the two files, then the one that Java reads."""

    __slots__ = ("_checkpoint_path", "_content", "_directory", "_disk", "_java_checkpoint", "applied_index")
    kind = "checkpoint"

    def __init__(
        self,
        disk: Disk,
        directory: str,
        applied_index: Index,
        content: bytes,
        *,
        store_path_root_dir: str,
        java_checkpoint: StoreCheckpoint,
    ) -> None:
        """`content`: Checkpoint.pack()."""
        self.applied_index = applied_index
        self._disk = disk
        self._directory = directory
        self._content = content
        self._checkpoint_path = f"{store_path_root_dir}/checkpoint"
        self._java_checkpoint = java_checkpoint

    def run(self) -> None:
        disk = self._disk
        disk.make_directory(self._directory)
        path = f"{self._directory}/{self._older_name()}"
        replace_file(disk, path, self._content)
        file = disk.open(self._checkpoint_path, create=True)
        try:
            file.pwrite(self._java_checkpoint.pack(), 0)
            file.fdatasync()
        finally:
            file.close()

    def _older_name(self) -> str:
        """The file to be replaced: one that speaks of the same entry, lest a start take that for the newer one; else an
        unreadable one; else the one with the smaller index.
        """
        indexes = []
        for name in CHECKPOINT_NAMES:
            path = f"{self._directory}/{name}"
            checkpoint = unpack_checkpoint(self._disk.read_file(path)) if self._disk.exists(path) else None
            indexes.append(-2 if checkpoint is None else checkpoint.applied_index)
        replaced = self.applied_index if self.applied_index in indexes else min(indexes)
        return CHECKPOINT_NAMES[indexes.index(replaced)]


def replace_file(disk: Disk, path: str, content: bytes, *, backup: str | None = None) -> None:
    """Puts a file in the place of another, durably and in one step; `backup` becomes the name of the old one."""
    temporary = f"{path}.tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(content, 0)
        file.fdatasync()
    finally:
        file.close()
    if backup is not None and disk.exists(path):
        disk.rename(path, backup)
    disk.rename(temporary, path)
    disk.sync_directory(path.rpartition("/")[0])


def unpack_checkpoint(content: bytes) -> Checkpoint | None:
    """None for a file that is not whole, or of another version."""
    if len(content) < _HEAD.size:
        return None
    magic, crc, size = _HEAD.unpack_from(content)
    payload = content[_HEAD.size :]
    if magic != _MAGIC or len(payload) != size or crc32(payload) != crc:
        return None
    version, *values = msgpack.unpackb(payload, strict_map_key=False, unicode_errors="surrogateescape")
    if version != _VERSION:
        return None
    index, chain_crc, confirm_offset, store_timestamp, tables, full_state_log, queues = values
    return Checkpoint(
        index,
        chain_crc,
        confirm_offset,
        store_timestamp,
        tables,
        full_state_log,
        [tuple(row) for row in queues],
    )
