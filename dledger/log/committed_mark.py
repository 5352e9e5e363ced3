"""What a running member knows to be committed, for whoever reads its files meanwhile (mq validate).

Its own files tell of the commit else with the next checkpoint of the state, a minute later perhaps. This one moves each
second while the commit does, and is never synced: a reader on the same host sees what the process has written. So it
counts only while that process runs. A power loss may take what it speaks of and leave it, hence a start takes it away.
Beside the synced mark and not in it: a release that does not know of it passes over the file.
"""

import struct
from typing import Final
from zlib import crc32

from disk.disk import Disk
from dledger.entry import Index

COMMITTED_MARK_FILE_NAME: Final = "committed-mark"
COMMITTED_MARK_INTERVAL_MS: Final = 1000
_NONE: Final = Index(-1)
_MARK: Final = struct.Struct(">4sq")
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = b"PyCM"


class CommittedMarkJob:
    """Fulfils DiskJob."""

    __slots__ = ("_disk", "_path", "committed_index")
    kind = "committed-mark"

    def __init__(self, disk: Disk, path: str, committed_index: Index) -> None:
        self.committed_index = committed_index
        self._disk = disk
        self._path = path

    def run(self) -> None:
        file = self._disk.open(self._path, create=True)
        try:
            file.pwrite(pack_committed_mark(self.committed_index), 0)
        finally:
            file.close()


class CommittedMark:
    """Decides when the file is written. One job at a time."""

    def __init__(self, disk: Disk, directory: str, now_ms: int) -> None:
        """In `directory`, the member's `pydledger`."""
        self._disk = disk
        self._path = f"{directory}/{COMMITTED_MARK_FILE_NAME}"
        self._told = _NONE
        self._not_before_ms = now_ms
        self._job: CommittedMarkJob | None = None

    def job(self, committed_index: Index, now_ms: int) -> CommittedMarkJob | None:
        """A job that tells of the commit, when it has moved and the last job was a second ago."""
        if self._job is not None or committed_index <= self._told or now_ms < self._not_before_ms:
            return None
        self._not_before_ms = now_ms + COMMITTED_MARK_INTERVAL_MS
        self._job = CommittedMarkJob(self._disk, self._path, committed_index)
        return self._job

    def done(self, job: CommittedMarkJob, error: Exception | None) -> None:
        """Settles a job that has run; after an error the next one writes again."""
        assert job is self._job
        self._job = None
        self._told = job.committed_index if error is None else _NONE


def forget_committed_mark(disk: Disk, directory: str) -> None:
    """Deletes what the process before has left in a member's `pydledger`. Raises DiskError."""
    path = f"{directory}/{COMMITTED_MARK_FILE_NAME}"
    if disk.exists(path):
        disk.unlink(path)


def pack_committed_mark(committed_index: Index) -> bytes:
    mark = _MARK.pack(_MAGIC, committed_index)
    return mark + _CRC.pack(crc32(mark))


def unpack_committed_mark(content: bytes) -> Index:
    """Of the file's content; -1 if it is not whole."""
    if len(content) != _MARK.size + _CRC.size:
        return _NONE
    magic, committed_index = _MARK.unpack_from(content)
    is_whole = magic == _MAGIC and _CRC.unpack_from(content, _MARK.size) == (crc32(content[: _MARK.size]),)
    return Index(committed_index) if is_whole else _NONE
