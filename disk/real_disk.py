"""The disk of a running process: POSIX calls by descriptor and position.

Every call here releases the GIL while the kernel works, which a mapping's page faults and `mmap.flush` do not: that is
why files are written and read by position although RocketMQ maps them.
"""

# The calls by name: which system call runs is the point here.
# ruff: noqa: PTH102, PTH105, PTH108, PTH116, PTH120, PTH208
import ctypes
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from disk.disk import Buffer, DiskError, NoSpaceError

# Linux takes at most this many buffers in one call; more is EINVAL.
IOV_MAX = os.sysconf("SC_IOV_MAX") if os.sysconf("SC_IOV_MAX") > 0 else 16

# EFBIG: a limit on the size of files (ulimit -f), which can be raised while the process runs.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# The system call itself: where a file system cannot do it, glibc's posix_fallocate writes zeros into blocks that read
# as zeros, which races with a writer in another thread. None on systems that do not have the call.
_fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def _disk_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _disk_error(error, path) from error


def _disk_error(error: OSError, path: str) -> DiskError:
    kind = NoSpaceError if error.errno in _NO_SPACE else DiskError
    return kind(error.errno, error.strerror or str(error), path)


class RealFile:
    """One descriptor. Calls from several threads may overlap; close() may not overlap any of them."""

    __slots__ = ("_descriptor", "_sync_error", "_syncing", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._syncing = Lock()
        self._sync_error: OSError | None = None

    def pread(self, size: int, offset: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, offset)
            if len(data) == size or not data:
                return data
            # A short read is the end of the file, or the kernel's limit of 2 GiB per call.
            parts = [data]
            done = len(data)
            while done < size and (data := os.pread(self._descriptor, size - done, offset + done)):
                parts.append(data)
                done += len(data)
            return b"".join(parts)
        except OSError as error:
            raise _disk_error(error, self.path) from error

    def pwrite(self, data: Buffer, offset: int) -> None:
        try:
            written = os.pwrite(self._descriptor, data, offset)
            if written == len(data):
                return
            view = memoryview(data).cast("B")
            while written < len(view):
                written += os.pwrite(self._descriptor, view[written:], offset + written)
        except OSError as error:
            raise _disk_error(error, self.path) from error

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        for start in range(0, len(buffers), IOV_MAX):
            group = buffers[start : start + IOV_MAX]
            size = sum(map(len, group))
            try:
                written = os.pwritev(self._descriptor, group, offset)
            except OSError as error:
                raise _disk_error(error, self.path) from error
            if written < size:
                self.pwrite(memoryview(b"".join(group))[written:], offset + written)
            offset += size

    def truncate(self, size: int) -> None:
        with _disk_errors(self.path):
            os.ftruncate(self._descriptor, size)

    def allocate(self, offset: int, size: int) -> None:
        # Where it is not supported, a full disk shows at the write itself.
        while _fallocate is not None and _fallocate(self._descriptor, _KEEP_SIZE, offset, size):
            code = ctypes.get_errno()
            if code in _NOT_SUPPORTED:
                return
            if code != errno.EINTR:
                raise _disk_error(OSError(code, os.strerror(code)), self.path)

    def forget_cached(self, offset: int, size: int) -> None:
        with _disk_errors(self.path):
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._descriptor, offset, size, os.POSIX_FADV_DONTNEED)

    def size(self) -> int:
        with _disk_errors(self.path):
            return os.fstat(self._descriptor).st_size

    def fdatasync(self) -> None:
        # One at a time: of two the kernel might tell the wrong one, whose own writes have been written.
        with self._syncing, _disk_errors(self.path):
            if self._sync_error is not None:
                raise OSError(self._sync_error.errno, self._sync_error.strerror)
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                self._sync_error = error
                raise

    @property
    def sync_failed(self) -> bool:
        return self._sync_error is not None

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with _disk_errors(self.path):
                os.close(descriptor)


class RealDisk:
    """The host's file systems. Stateless, so any number of them may be used side by side."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        with _disk_errors(path):
            return RealFile(path, os.open(path, flags, 0o644))

    def read_file(self, path: str) -> bytes:
        file = self.open(path, read_only=True)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def list_directory(self, path: str) -> list[str]:
        with _disk_errors(path):
            try:
                return sorted(os.listdir(path))
            except FileNotFoundError:
                return []

    def exists(self, path: str) -> bool:
        return self._mode(path) is not None

    def is_directory(self, path: str) -> bool:
        mode = self._mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def make_directory(self, path: str) -> None:
        if self.is_directory(path):
            return
        parent = os.path.dirname(path.rstrip("/")) or "."
        self.make_directory(parent)
        with _disk_errors(path):
            try:
                os.mkdir(path, 0o755)
            except FileExistsError:
                if not self.is_directory(path):
                    raise
        self.sync_directory(parent)

    def sync_parents(self, path: str) -> None:
        child = Path(path).resolve()  # of a symbolic link that is in the path, the parents of what it names
        while not child.is_mount():
            child = child.parent
            try:
                self.sync_directory(str(child))
            except DiskError as error:
                if error.errno in (errno.EACCES, errno.EPERM):
                    return  # nothing in there was made by this process
                raise

    def rename(self, old: str, new: str) -> None:
        with _disk_errors(old):
            os.replace(old, new)

    def unlink(self, path: str) -> None:
        with _disk_errors(path):
            os.unlink(path)

    def sync_directory(self, path: str) -> None:
        with _disk_errors(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def free_space(self, path: str) -> tuple[int, int]:
        with _disk_errors(path):
            facts = os.statvfs(path)
            free = facts.f_bavail * facts.f_frsize
            return free, (facts.f_blocks - facts.f_bfree) * facts.f_frsize + free

    def _mode(self, path: str) -> int | None:
        with _disk_errors(path):
            try:
                return os.stat(path).st_mode
            except FileNotFoundError:
                return None
