"""A disk in memory that knows what would survive: written bytes until a sync, names until a directory's sync."""

import errno
from collections.abc import Callable, Sequence
from random import Random

from disk.disk import Buffer, DiskError, NoSpaceError

SECTOR = 512


class _Node:
    """A file's content: `durable` with the writes since the last sync in `pending`, and `now` as readers see it."""

    def __init__(self) -> None:
        self.now = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes] | int] = []  # (offset, data), or a length that was set

    def write(self, offset: int, data: bytes) -> None:
        self.pending.append((offset, data))
        apply(self.now, (offset, data))

    def truncate(self, size: int) -> None:
        self.pending.append(size)
        apply(self.now, size)

    def sync(self) -> None:
        for change in self.pending:
            apply(self.durable, change)
        self.pending.clear()

    def survivor(self, random: Random) -> "_Node":
        """What a power loss leaves: of each pending change all, nothing, or (of a write) any of its sectors."""
        node = _Node()
        node.durable = bytearray(self.durable)
        for change in self.pending:
            fate = random.random()
            if fate < 0.3:
                continue
            if isinstance(change, int) or fate < 0.6:
                apply(node.durable, change)
                continue
            offset, data = change
            first = offset - offset % SECTOR
            for sector in range(first, offset + len(data), SECTOR):
                if random.random() < 0.5:
                    start = max(sector, offset)
                    part = data[start - offset : sector + SECTOR - offset]
                    apply(node.durable, (start, part))
        node.now = bytearray(node.durable)
        return node


def apply(content: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        del content[change:]
        content.extend(bytes(change - len(content)))
        return
    offset, data = change
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


class CrashFile:
    def __init__(self, disk: "CrashDisk", path: str, node: _Node) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._closed = False
        self.sync_failed = False

    def pread(self, size: int, offset: int) -> bytes:
        self._check()
        return bytes(self._node.now[offset : offset + size])

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._check("pwrite", self.path)
        self._node.write(offset, bytes(data))

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self.pwrite(b"".join(buffers), offset)

    def truncate(self, size: int) -> None:
        self._check("truncate", self.path)
        self._node.truncate(size)

    def allocate(self, offset: int, size: int) -> None:
        self._check("allocate", self.path)

    def forget_cached(self, offset: int, size: int) -> None:
        self._check()

    def size(self) -> int:
        self._check()
        return len(self._node.now)

    def fdatasync(self) -> None:
        self._check("fdatasync", self.path)
        self._node.sync()

    def close(self) -> None:
        self._closed = True

    def _check(self, operation: str = "", path: str = "") -> None:
        assert not self._closed, f"{self.path}: used after close()"
        self._disk.check(operation, path)


class CrashDisk:
    """`fail` is asked before each change and may raise; crash() gives the disk as a power loss would leave it."""

    def __init__(self) -> None:
        self.fail: Callable[[str, str], None] = lambda operation, path: None
        self.directories: set[str] = {"", "."}
        self._names: dict[str, _Node] = {}
        self._durable_names: dict[str, _Node] = {}

    def check(self, operation: str, path: str) -> None:
        if operation:
            self.fail(operation, path)

    def crash(self, random: Random) -> "CrashDisk":
        after = CrashDisk()
        after.directories = set(self.directories)
        survivors: dict[int, _Node] = {}
        for path in sorted(self._names.keys() | self._durable_names.keys()):
            old, new = self._durable_names.get(path), self._names.get(path)
            node = random.choice((old, new))
            if node is not None:
                if id(node) not in survivors:
                    survivors[id(node)] = node.survivor(random)
                after._names[path] = after._durable_names[path] = survivors[id(node)]
        return after

    def fail_write_back(self) -> None:
        """What is unsynced will never be on disk, yet still reads back: the pages count as clean."""
        for node in self._names.values():
            node.pending.clear()

    def content(self, path: str) -> bytearray:
        """What readers see, to be changed in place."""
        return self._names[path].now

    def paths(self) -> list[str]:
        return sorted(self._names)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> CrashFile:
        if path not in self._names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "missing", path)
            self.check("create", path)
            self._names[path] = _Node()
        return CrashFile(self, path, self._names[path])

    def read_file(self, path: str) -> bytes:
        return bytes(self.content(path))

    def list_directory(self, path: str) -> list[str]:
        names = [*self._names, *self.directories]
        return sorted(name.rpartition("/")[2] for name in names if name and name.rpartition("/")[0] == path)

    def exists(self, path: str) -> bool:
        return path in self._names or path in self.directories

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def make_directory(self, path: str) -> None:
        self.directories.add(path)

    def sync_parents(self, path: str) -> None:
        """Here the names of directories are durable at once."""

    def rename(self, old: str, new: str) -> None:
        self.check("rename", new)
        self._names[new] = self._names.pop(old)

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        del self._names[path]

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        for name in list(self._durable_names):
            if name.rpartition("/")[0] == path and name not in self._names:
                del self._durable_names[name]
        for name, node in self._names.items():
            if name.rpartition("/")[0] == path:
                self._durable_names[name] = node

    def free_space(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 40


def no_space(operation: str, path: str) -> None:
    raise NoSpaceError(errno.ENOSPC, f"{operation}: no space", path)


def broken(operation: str, path: str) -> None:
    raise DiskError(errno.EIO, f"{operation}: broken", path)
