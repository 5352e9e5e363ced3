"""The files of one ConsumeQueue, read by byte offset of the queue. Bytes that no file has read as zeros."""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from store.layout.directories import BATCH_CONSUME_QUEUES, CONSUME_QUEUES
from verify.replica import Replica

# No queue of that name can have been written, or it was not.
_NO_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


@dataclass(frozen=True, slots=True)
class QueueFile:
    path: str
    base: int  # offset of its first byte in the queue, as its name says
    size: int


def queue_directory(replica: Replica, topic: bytes, queue_id: int, *, is_batch: bool = False) -> str:
    """Where the store files a queue."""
    kind = BATCH_CONSUME_QUEUES if is_batch else CONSUME_QUEUES
    return f"{replica.directory}/{kind}/{topic_directory(topic)}/{queue_id}"


def topic_directory(topic: bytes) -> str:
    """The name of a topic's directory, as the store makes it."""
    name = topic.decode("utf-8", "surrogateescape")
    return topic.hex() if "/" in name or "\0" in name or name in ("", ".", "..") else name


class QueueFiles:
    """As they were when this was made; a file that has grown since is read up to its size of then."""

    __slots__ = ("_bases", "files")

    def __init__(self, directory: str) -> None:
        """Raises OSError, but not for a directory that is missing."""
        self.files = _list(directory)
        self._bases = [file.base for file in self.files]

    @property
    def end(self) -> int:
        return max((file.base + file.size for file in self.files), default=0)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes. Raises OSError."""
        if offset < 0:
            return bytes(size)
        number = bisect_right(self._bases, offset) - 1
        if number >= 0:
            file = self.files[number]
            if offset + size <= file.base + file.size:
                return _pread(file.path, offset - file.base, size)
        data = bytearray(size)
        for file in self.files[max(number, 0) :]:
            if file.base >= offset + size:
                break
            first = max(file.base, offset)
            end = min(file.base + file.size, offset + size)
            if first < end:
                data[first - offset : end - offset] = _pread(file.path, first - file.base, end - first)
        return bytes(data)

    def stored(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges in [first, end) that the file system keeps bytes for; the rest of sparse files is zeros. Raises
        OSError."""
        for file in self.files:
            start, stop = max(first, file.base), min(end, file.base + file.size)
            if start >= stop:
                continue
            with open(file.path, "rb", buffering=0) as opened:
                descriptor = opened.fileno()
                while start < stop:
                    try:
                        start = file.base + os.lseek(descriptor, start - file.base, os.SEEK_DATA)
                        hole = file.base + os.lseek(descriptor, start - file.base, os.SEEK_HOLE)
                    except OSError as error:
                        if error.errno != errno.ENXIO:
                            raise
                        break  # nothing but a hole up to the end
                    if start < stop:
                        yield start, min(hole, stop)
                    start = hole

    @staticmethod
    def path_in(directory: str, offset: int) -> str:
        """The file that holds, or should hold, the byte at `offset`; the directory when there are no files at all."""
        try:
            files = _list(directory)
        except OSError:
            return directory
        if not files:
            return directory
        size = max(file.size for file in files)
        found = [file for file in files if file.base <= offset < file.base + max(file.size, size)]
        if found:
            return found[-1].path
        return f"{directory}/{offset - offset % size:020d}" if size else directory


def _list(directory: str) -> list[QueueFile]:
    try:
        with os.scandir(directory) as entries:
            found = [
                QueueFile(entry.path, int(entry.name), entry.stat().st_size)
                for entry in entries
                if entry.name.isascii() and entry.name.isdigit() and entry.is_file()
            ]
    except OSError as error:
        if error.errno in _NO_DIRECTORY:
            return []
        raise
    return sorted(found, key=lambda file: file.base)


def _pread(path: str, offset: int, size: int) -> bytes:
    """`size` bytes; what a file lost since it was listed reads as zeros."""
    with open(path, "rb", buffering=0) as file:
        data = b""
        while len(data) < size:
            try:
                part = os.pread(file.fileno(), size - len(data), offset + len(data))
            except OSError as error:
                error.filename = path  # the system does not say it of a descriptor
                raise
            if not part:
                return data.ljust(size, b"\0")
            data += part
    return data
