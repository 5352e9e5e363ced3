"""The disk of a simulated host: it remembers what no sync has covered, so that it can lose it.

Holds the contract of disk/disk.py at its most literal: bytes are durable after an fdatasync of their file that began
after the write; a creation, rename or unlink after sync_directory of the parent. Calls in the member's own thread take
no virtual time; blocking jobs go through `run_deferred`, so that a crash can fall between any two of their syncs.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from disk.disk import Buffer, DiskError, NoSpaceError
from simulator.world.disk_nodes import (
    DeferredRun,
    DirectoryNode,
    FileNode,
    Node,
    Relink,
    Survival,
    Write,
    resize,
)


class CrashPointReached(BaseException):
    """The process was to be killed before this disk operation."""


class SimFile:
    """An open file. Reads see what was written, synced or not."""

    __slots__ = ("_disk", "_node", "path", "sync_failed")

    def __init__(self, disk: "SimDisk", path: str, node: FileNode) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self.sync_failed = False

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self._node.content[offset : offset + size])

    def pwrite(self, data: Buffer, offset: int) -> None:
        node = self._node
        content, end = node.content, offset + len(data)
        disk = self._disk
        disk.before_change(self.path, node, end)
        data = bytes(data)
        if end > len(content):
            content.extend(bytes(end - len(content)))
        content[offset:end] = data
        node.pending.append(disk.write(node, offset, data))

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self.pwrite(b"".join(buffers), offset)

    def truncate(self, size: int) -> None:
        disk, node = self._disk, self._node
        disk.before_change(self.path, node, 0)
        resize(node.content, size)
        node.pending.append(disk.write(node, size, None))

    def allocate(self, offset: int, size: int) -> None:
        node = self._node
        self._disk.before_change(self.path, node, offset + size)

    def forget_cached(self, offset: int, size: int) -> None:
        pass  # what a fault has changed on the medium it has changed in the cache

    def size(self) -> int:
        return len(self._node.content)

    def fdatasync(self) -> None:
        if self.sync_failed:
            raise DiskError(errno.EIO, "input/output error", self.path)
        try:
            self._disk.sync(self._node, self.path)
        except DiskError:
            self.sync_failed = True
            raise

    def close(self) -> None:
        pass  # a closed file keeps nothing, and MappedFile's own tests see to it that nobody uses one


class SimDisk:
    """Invariant: content = durable + pending, in order, for each file; likewise the entries of each directory."""

    def __init__(
        self,
        random: Random,
        clock_us: Callable[[], int],
        sync_latency_us: Callable[[], int],
        *,
        keeps_former: bool = False,
    ) -> None:
        """`sync_latency_us` draws how long one sync takes. `keeps_former`: for former()."""
        self._keeps_former = keeps_former
        self.is_full = False
        self.crash_after: int | None = None  # so many operations from now the process is killed
        self._is_looked_at = False
        self.failing_syncs = 0  # so many of the next ones fail
        self.failing_log_syncs = 0  # likewise, of data files of the log alone
        self.failing_writes = 0  # likewise
        self.hangs_until_us = 0  # jobs begin no sooner
        self.hung_runs = 0  # jobs that came later for it
        self.refused_for_space = 0  # writes
        self._has_failed_sync = False
        self._random = random
        self._clock_us = clock_us
        self._sync_latency_us = sync_latency_us
        self._root = DirectoryNode()
        self._number = 0
        self._runs: list[DeferredRun] = []  # under way
        self._lost: set[str] = set()  # files that a fault took, until they are on the medium again
        self._deferred: DeferredRun | None = None  # whose code is running

    # -- Disk --------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimFile:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.before_change(path, None, 0)
            node = FileNode(former={} if self._keeps_former else None)
            self._relink(parent, ((name, node),))
        if isinstance(node, DirectoryNode):
            raise DiskError(errno.EISDIR, "is a directory", path)
        return SimFile(self, path, node)

    def read_file(self, path: str) -> bytes:
        file = self.open(path, read_only=True)
        return file.pread(file.size(), 0)

    def list_directory(self, path: str) -> list[str]:
        node = self._find(path)
        return sorted(node.entries) if isinstance(node, DirectoryNode) else []

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), DirectoryNode)

    def make_directory(self, path: str) -> None:
        if self.is_directory(path):
            return
        parent_path = path.rpartition("/")[0]
        if parent_path:
            self.make_directory(parent_path)
        parent, name = self._parent(path)
        self.before_change(path, None, 0)
        self._relink(parent, ((name, DirectoryNode()),))
        self.sync(parent, parent_path)

    def sync_parents(self, path: str) -> None:
        while path:
            path = path.rpartition("/")[0]
            node = self._find(path) if path else self._root
            assert node is not None, "what is above it is there"
            self.sync(node, path)

    def rename(self, old: str, new: str) -> None:
        old_parent, old_name = self._parent(old)
        new_parent, new_name = self._parent(new)
        node = old_parent.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self.before_change(old, None, 0)
        if old_parent is new_parent:
            self._relink(new_parent, ((old_name, None), (new_name, node)))
        else:
            self._relink(new_parent, ((new_name, node),))
            self._relink(old_parent, ((old_name, None),))

    def unlink(self, path: str) -> None:
        parent, name = self._parent(path)
        if name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.before_change(path, None, 0)
        self._relink(parent, ((name, None),))
        self._lost.discard(path)

    def sync_directory(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, DirectoryNode):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.sync(node, path)

    def free_space(self, path: str) -> tuple[int, int]:
        return (0 if self.is_full else 1 << 40), 1 << 41

    # -- jobs --------------------------------------------------------------------------------------------------

    def run_deferred(self, code: Callable[[], None]) -> DeferredRun:
        """Runs a blocking job: its code now, its effects by and by. Call complete() at its `end_us`."""
        run = self._deferred = DeferredRun()
        try:
            code()
        except DiskError as error:
            run.error = error
        finally:
            self._deferred = None
            start_us = self._clock_us()
            if self.hangs_until_us > start_us:
                start_us = self.hangs_until_us
                self.hung_runs += 1
            # Jobs that write one file take turns by a lock of their own; the one that came first has it.
            for other in self._runs:
                if other.nodes & run.nodes:
                    start_us = max(start_us, other.end_us)
            run.schedule(start_us)
            self._runs.append(run)
        return run

    @property
    def busy_until_us(self) -> int:
        """When the last of the jobs under way ends; 0 if there is none."""
        return max((run.end_us for run in self._runs), default=0)

    def complete(self, run: DeferredRun) -> None:
        self._runs.remove(run)
        self._settle(run, run.end_us)

    def _settle(self, run: DeferredRun, now_us: int) -> None:
        """Makes durable what the syncs of `run` that are done by `now_us` cover."""
        for stage, (node, number) in enumerate(run.syncs):
            if run.stage_starts_us[stage + 1] > now_us:
                return
            node.sync(number, run.stage_starts_us[stage])

    def unwritten_positions(self, directory: str) -> Iterator[int]:
        """Of bytes, in a queue of files named by offsets, that a failed sync has left in the page cache alone."""
        if not self._has_failed_sync:
            return
        for name in self.list_directory(directory):
            node = self._find(f"{directory}/{name}")
            assert isinstance(node, FileNode)
            yield from (int(name) + offset for offset in node.unwritten_offsets())

    # -- crashes -----------------------------------------------------------------------------------------------

    def process_crash(self) -> None:
        """Jobs end where they are; the page cache stays."""
        now_us = self._clock_us()
        self._end_runs(now_us)
        for node in self._nodes():
            node.forget_unbegun(now_us)

    def power_loss(self) -> int:
        """Returns how many unsynced bytes (and changes of directories, one each) were lost."""
        self.process_crash()
        survival = self._random.choice(list(Survival))
        # All nodes before any changes: a directory may lose the names of its files.
        return sum([node.lose_power(survival, self._random) for node in list(self._nodes())])

    def _end_runs(self, now_us: int) -> None:
        runs, self._runs = self._runs, []
        for run in runs:
            self._settle(run, now_us)
        self.crash_after = None

    def _nodes(self) -> Iterator[Node]:
        stack: list[Node] = [self._root]
        seen: set[int] = set()
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            if isinstance(node, DirectoryNode):
                stack += node.entries.values()
                stack += node.durable.values()

    # -- for damage ----------------------------------------------------------------------------------------------

    def content(self, path: str) -> bytes | None:
        """As programs read it; None where no such file is."""
        node = self._find(path)
        return bytes(node.content) if isinstance(node, FileNode) else None

    def durable(self, path: str) -> bytes | None:
        """As it is on the medium."""
        node = self._find(path)
        return bytes(node.durable) if isinstance(node, FileNode) else None

    def former(self, path: str) -> dict[int, bytes]:
        """Sectors of the medium as they were before bytes of theirs became others, by where they begin."""
        node = self._find(path)
        return node.former or {} if isinstance(node, FileNode) else {}

    def lose(self, path: str) -> None:
        """A file is gone, from the medium and from the page cache. Nobody has it open."""
        parent, name = self._parent(path)
        for entries in (parent.entries, parent.durable):
            entries.pop(name, None)
        parent.pending = [
            relink for relink in parent.pending if all(name != other for other, _ in relink.names)
        ]
        self._lost.add(path)

    def is_lost(self, path: str) -> bool:
        """Since lose() nobody has made it anew on the medium, nor meant it to go."""
        if path not in self._lost:
            return False
        parent, name = self._parent(path)
        if name in parent.durable:
            self._lost.discard(path)
        return path in self._lost

    def shorten(self, path: str, size: int) -> None:
        """What lies behind `size` is gone from a file, from the medium and from the page cache. Nobody has it open."""
        node = self._find(path)
        assert isinstance(node, FileNode), "damage hits a file"
        node.pending, node.unwritten = [], []
        node.durable = node.durable[:size]
        node.content = bytearray(node.durable)

    def zero(self, path: str) -> None:
        """A whole file comes back as zeros, what was still to be written to it included. Nobody has it open."""
        node = self._find(path)
        assert isinstance(node, FileNode), "damage hits a file"
        node.pending, node.unwritten = [], []
        node.durable = bytearray(len(node.durable))
        node.content = bytearray(node.durable)

    def damage(self, path: str, offset: int, data: bytes) -> bool:
        """Bytes become others, on the medium and as read; not where a write is under way."""
        node = self._find(path)
        assert isinstance(node, FileNode), "damage hits a file"
        end = offset + len(data)
        if any(
            write.data is None or (write.offset < end and offset < write.offset + len(write.data))
            for write in (*node.pending, *node.unwritten)
        ):
            return False
        node.durable[offset:end] = data
        node.content[offset:end] = data
        return True

    @contextmanager
    def looked_at(self) -> Iterator[None]:
        """Who looks at a member writes where it meets damage, and has to see all that the last step has done: a crash
        point that comes meanwhile is reached with the next operation of the member's own.
        """
        self._is_looked_at = True
        try:
            yield
        finally:
            self._is_looked_at = False

    # -- for SimFile -------------------------------------------------------------------------------------------

    def before_change(self, path: str, node: FileNode | None, end: int) -> None:
        """Raises CrashPointReached, NoSpaceError. `end`: of the bytes of `node` that need space."""
        if self.crash_after is not None:
            self._count_down()
        if self.failing_writes and node is not None:
            self.failing_writes -= 1
            raise DiskError(errno.EIO, "input/output error", path)
        if node is not None and end > node.allocated:
            if self.is_full:
                self.refused_for_space += 1
                raise NoSpaceError(errno.ENOSPC, "no space left on device", path)
            node.allocated = end

    def write(self, node: FileNode, offset: int, data: bytes | None) -> Write:
        self._number += 1
        run = self._deferred
        if run is None:
            return Write(self._number, None, 0, offset, data)
        run.nodes.add(id(node))
        return Write(self._number, run, run.stage, offset, data)

    def sync(self, node: Node, path: str) -> None:
        if self.crash_after is not None:
            self._count_down()
        if isinstance(node, FileNode) and node.pending and self._fails(path):
            # It begins when those under way have ended, and what they cover is not dirty any more by then.
            node.fail_sync(
                max((number for run in self._runs for at, number in run.syncs if at is node), default=0)
            )
            self._has_failed_sync = True
            raise DiskError(errno.EIO, "input/output error", path)
        number = self._number + 1
        run = self._deferred
        if run is None:
            # In the member's own thread nothing of a job counts as not begun: it wrote the same file, say.
            if isinstance(node, DirectoryNode):
                node.sync_at_once(self._clock_us())
            else:
                node.sync(number, None)
            return
        run.syncs.append((node, number))
        run.latencies_us.append(self._sync_latency_us())
        run.stage += 1

    def _fails(self, path: str) -> bool:
        if self.failing_log_syncs and "/data/" in path:
            self.failing_log_syncs -= 1
            return True
        if self.failing_syncs:
            self.failing_syncs -= 1
            return True
        return False

    # -- inside ------------------------------------------------------------------------------------------------

    def _count_down(self) -> None:
        assert self.crash_after is not None
        self.crash_after -= 1
        if self.crash_after < 0 and not self._is_looked_at:
            raise CrashPointReached

    def _relink(self, directory: DirectoryNode, names: tuple[tuple[str, Node | None], ...]) -> None:
        self._number += 1
        run = self._deferred
        relink = Relink(self._number, run, run.stage if run is not None else 0, names)
        relink.apply(directory.entries)
        directory.pending.append(relink)

    def _find(self, path: str) -> Node | None:
        node: Node = self._root
        for name in path.strip("/").split("/"):
            if not isinstance(node, DirectoryNode):
                return None
            found = node.entries.get(name)
            if found is None:
                return None
            node = found
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        parent_path, _, name = path.strip("/").rpartition("/")
        parent = self._find(parent_path) if parent_path else self._root
        if not isinstance(parent, DirectoryNode):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return parent, name
