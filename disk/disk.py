"""The one door to files: what every room above may ask of a disk.

Two implementations: `disk.real_disk.RealDisk` here, and the simulator's, which keeps unsynced bytes apart so that
it can lose them. Nothing above this room opens a file by any other way; the power-loss test proves it.

Durability contract (POSIX at its most literal): bytes are durable after `fdatasync` of their file that began after
the write; a creation, rename or unlink is durable after `sync_directory` of the parent. `fdatasync` and
`sync_directory` block, so shells call them in a thread. Once an `fdatasync` of an open file has failed no other of it
succeeds, neither one that waits nor a later one: the kernel tells one caller alone that something was not written, and
takes it for clean from then on. Whoever can write all of it again opens the file anew.
"""

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class DiskError(OSError):
    """An operation on a file failed; `errno`, `strerror` and `filename` say what and where."""


class NoSpaceError(DiskError):
    """The file system (or a quota) is full. The only disk error a member comes back from by itself."""


class File(Protocol):
    """An open file, read and written by position only: there is no cursor that two users could share."""

    @property
    def path(self) -> str: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Writes all of `data` or raises DiskError."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Writes all buffers one after the other, any number of them, or raises DiskError."""
        ...

    def truncate(self, size: int) -> None:
        """Sets the length; a longer file reads zeros there and takes no space."""
        ...

    def allocate(self, offset: int, size: int) -> None:
        """Makes sure that later writes into the range find space; the length stays. Raises NoSpaceError."""
        ...

    def forget_cached(self, offset: int, size: int) -> None:
        """Asks for the bytes to be read from the medium next time. A hint: what is not written back yet stays."""
        ...

    def size(self) -> int: ...

    def fdatasync(self) -> None: ...

    @property
    def sync_failed(self) -> bool:
        """One did, so all do that come."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """Paths are absolute or relative strings with `/`, as the caller was configured."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Opens read-write unless `read_only`. A missing file is FileNotFoundError unless `create`."""
        ...

    def read_file(self, path: str) -> bytes: ...

    def list_directory(self, path: str) -> list[str]:
        """Names, sorted. A missing directory is an empty list."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """With its parents, each new name synced into its parent; an existing one is fine."""
        ...

    def sync_parents(self, path: str) -> None:
        """Afterwards the names of `path` and of all above it are durable: a process that made one of them may have been
        ended before it synced it, and make_directory() takes what is there for made.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Replaces `new` if it exists."""
        ...

    def unlink(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def free_space(self, path: str) -> tuple[int, int]:
        """(free bytes, total bytes) of the file system that holds `path`; what is kept for root alone is in neither."""
        ...
