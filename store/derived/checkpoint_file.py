"""What a member remembers of the applied state, so that a start need not replay the whole log.

Two files take turns, each replaced as a whole. One counts only if the log at hand still has the entry that it speaks
of, with the same chain value: what was applied may have been committed by others and lost here in a power cut.
"""

import logging
import struct
from collections.abc import Callable
from typing import Any, Final
from zlib import crc32

import msgpack
import msgspec

from disk.disk import Disk, DiskError
from dledger.entry import Index
from store.derived.sums_file import sums_path
from store.layout.checkpoint import StoreCheckpoint
from store.queues.consume_queue_store import QueueRow

log = logging.getLogger(__name__)

_HEAD = struct.Struct(
    ">4s"  # magic
    "I"  # CRC-32 of the payload
    "q"  # payload size
)
_MAGIC = b"PyDC"
_VERSION: Final = 2
_VERSION_WITHOUT_DELETED_TOPICS: Final = 1
CHECKPOINT_NAMES: Final = ("applied-state-0", "applied-state-1")


class Checkpoint(msgspec.Struct, frozen=True):
    """The state after the entry `applied_index`. ConsumeQueue units up to there are in synced files."""

    applied_index: Index
    chain_crc: int  # of that entry
    confirm_offset: int  # position behind it
    store_timestamp: int  # ms, of the newest record up to it
    tables: list[Any]  # StateTables.pack()
    full_state_log: list[Any]  # FullStateLog.pack()
    queues: list[QueueRow]
    # DeletedTopics.pack(). None in what an earlier version wrote: its queues may hold messages of deleted topics.
    deleted_topics: list[Any] | None

    def pack(self) -> bytes:
        values = [getattr(self, name) for name in self.__struct_fields__]
        payload: bytes = msgpack.packb([_VERSION, *values], unicode_errors="surrogateescape")
        return _HEAD.pack(_MAGIC, crc32(payload), len(payload)) + payload


def load_checkpoint(
    disk: Disk, directory: str, is_of_log: Callable[[Index, int], bool]
) -> tuple[str, Checkpoint] | None:
    """The newest readable one for which is_of_log(applied_index, chain_crc) holds, and its path."""
    found: tuple[str, Checkpoint] | None = None
    for name in CHECKPOINT_NAMES:
        path = f"{directory}/{name}"
        if not disk.exists(path):
            continue
        checkpoint = _read_checkpoint(disk, path)
        if checkpoint is None:
            log.warning(
                "checkpoint is unreadable, the state is taken from the other one or from the log, and the next one "
                "takes its place path=%s", path,
            )  # fmt: skip
            continue
        if found is not None and checkpoint.applied_index <= found[1].applied_index:
            continue
        if is_of_log(checkpoint.applied_index, checkpoint.chain_crc):
            found = path, checkpoint
        else:
            log.warning(
                "checkpoint is not of this log, it is left aside path=%s applied_index=%d",
                path, checkpoint.applied_index,
            )  # fmt: skip
    return found


def _read_checkpoint(disk: Disk, path: str) -> Checkpoint | None:
    """None also for what the disk does not give: that is as good as damaged."""
    try:
        return unpack_checkpoint(disk.read_file(path))
    except DiskError:
        return None


class CheckpointJob:
    """Fulfils DiskJob: replaces one of the two files, behind its sums; then the one that Java reads."""

    __slots__ = ("_content", "_directory", "_disk", "_sums", "applied_index", "java_content", "java_path")
    kind = "checkpoint"

    def __init__(
        self,
        disk: Disk,
        directory: str,
        applied_index: Index,
        content: bytes,
        sums: bytes,
        *,
        store_path_root_dir: str,
        java_checkpoint: StoreCheckpoint,
    ) -> None:
        """`content`: Checkpoint.pack(). `sums`: DerivedSums.pack()."""
        self.applied_index = applied_index
        self._disk = disk
        self._directory = directory
        self._content = content
        self._sums = sums
        self.java_path = f"{store_path_root_dir}/checkpoint"
        self.java_content = java_checkpoint.pack()

    def run(self) -> None:
        disk = self._disk
        disk.make_directory(self._directory)
        path = f"{self._directory}/{self._older_name()}"
        replace_file(disk, sums_path(path), self._sums)
        replace_file(disk, path, self._content)
        file = disk.open(self.java_path, create=True)
        try:
            file.pwrite(self.java_content, 0)
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
            checkpoint = _read_checkpoint(self._disk, path) if self._disk.exists(path) else None
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


def is_whole_checkpoint(content: bytes) -> bool:
    """Whether a file is as it was written."""
    if len(content) < _HEAD.size:
        return False
    magic, crc, size = _HEAD.unpack_from(content)
    payload = memoryview(content)[_HEAD.size :]
    return bool(magic == _MAGIC and len(payload) == size and crc32(payload) == crc)


def unpack_checkpoint(content: bytes) -> Checkpoint | None:
    """None for a file that is not whole, or of another version."""
    if not is_whole_checkpoint(content):
        return None
    payload = content[_HEAD.size :]
    version, *values = msgpack.unpackb(payload, strict_map_key=False, unicode_errors="surrogateescape")
    if version == _VERSION_WITHOUT_DELETED_TOPICS:
        values.append(None)
    elif version != _VERSION:
        return None
    index, chain_crc, confirm_offset, store_timestamp, tables, full_state_log, queues, deleted_topics = values
    return Checkpoint(
        index,
        chain_crc,
        confirm_offset,
        store_timestamp,
        tables,
        full_state_log,
        [tuple(row) for row in queues],
        deleted_topics,
    )
