"""A disk with sectors that cannot be read, as the kernel shows it: EIO, also for a write of a part of one. One that is
written as a whole can be read again.
"""

import errno
import os

from disk.disk import Buffer, DiskError
from disk.real_disk import RealDisk, RealFile

SECTOR = 4096


class WornFile(RealFile):
    __slots__ = ("_bad",)

    def __init__(self, path: str, descriptor: int, bad: set[int]) -> None:
        super().__init__(path, descriptor)
        self._bad = bad

    def pread(self, size: int, offset: int) -> bytes:
        if self._touched(size, offset):
            raise DiskError(errno.EIO, os.strerror(errno.EIO), self.path)
        return super().pread(size, offset)

    def pwrite(self, data: Buffer, offset: int) -> None:
        end = offset + len(data)
        touched = self._touched(len(data), offset)
        for number in touched:
            is_whole = end >= min(number * SECTOR + SECTOR, self.size())
            if offset > number * SECTOR or not is_whole:
                raise DiskError(errno.EIO, os.strerror(errno.EIO), self.path)
        super().pwrite(data, offset)
        self._bad -= touched

    def _touched(self, size: int, offset: int) -> set[int]:
        return self._bad & set(range(offset // SECTOR, (offset + max(size, 1) - 1) // SECTOR + 1))


class WornDisk(RealDisk):
    """`bad`: of each file the numbers of the sectors that cannot be read."""

    __slots__ = ("bad",)

    def __init__(self) -> None:
        self.bad: dict[str, set[int]] = {}

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> WornFile:
        file = super().open(path, create=create, read_only=read_only)
        descriptor, file._descriptor = file._descriptor, -1
        return WornFile(path, descriptor, self.bad.setdefault(path, set()))

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.bad.get(path, set()).clear()  # a new file has other sectors
