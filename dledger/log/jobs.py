"""Blocking disk work of the ledger, to be run in another thread (or, by the simulator, at a time of its choice).

A job touches only what it captured when it was made. It is made and settled (`sync_done` and its like) in the
ledger's own thread, which meanwhile goes on appending.
"""

from collections.abc import Sequence
from typing import Protocol

from disk.disk import Disk, DiskError, File, NoSpaceError
from disk.mapped_file import DescriptorCache, MappedFile
from disk.mapped_file_queue import MappedFileQueue, make_file
from disk.readable import write_over
from dledger.entry import Index, Pos
from dledger.log.faulty_ranges import FaultyRange, FaultyRangesFile
from dledger.log.synced_mark import SyncedMark, SyncedMarkFile

_ZEROS = bytes(1024 * 1024)


class DiskJob(Protocol):
    """Raises DiskError. A failed sync is final for the process: the pages count as clean although they are lost."""

    @property
    def kind(self) -> str:
        """One word for log lines."""
        ...

    def run(self) -> None: ...


class SyncJob:
    """Makes all entries up to `end_index` durable. The index files are not in it: they are derived from the data."""

    __slots__ = ("_files", "durable_index", "durable_pos", "end_index", "held", "log_generation")
    kind = "sync"

    def __init__(
        self, log_generation: int, end_index: Index, end_pos: Pos, files: Sequence[MappedFile]
    ) -> None:
        self.log_generation = log_generation
        self.end_index = end_index
        # What a successful run proves; lowered by each cut that begins before the job is settled.
        self.durable_index = end_index
        self.durable_pos = end_pos
        self.held = list(files)
        self._files = [mapped_file.hold() for mapped_file in files]

    def run(self) -> None:
        for file in self._files:
            file.fdatasync()

    def limit(self, last_index: Index, end_pos: Pos) -> None:
        """A cut leaves entries up to `last_index`."""
        if self.durable_index > last_index:
            self.durable_index, self.durable_pos = last_index, end_pos


class MarkJob:
    """Moves the synced mark up. The index files are synced first, so that none below the mark needs repair."""

    __slots__ = ("_files", "_mark_file", "cancelled", "held", "lacks_space", "mark")
    kind = "mark"

    def __init__(self, mark_file: SyncedMarkFile, mark: SyncedMark, files: Sequence[MappedFile]) -> None:
        self.mark = mark
        self.held = list(files)
        self.cancelled = False  # by a cut: the mark must not be raised over what is being cut
        # For it or for the begin mark: either may be on disk or not, and is to be written again.
        self.lacks_space = False
        self._mark_file = mark_file
        self._files = [mapped_file.hold() for mapped_file in files]

    def run(self) -> None:
        for file in self._files:
            file.fdatasync()
        try:
            self._mark_file.write_unless(lambda: self.cancelled, self.mark, needs_begin=True)
        except NoSpaceError:
            self.lacks_space = True


class NoteFaultsJob:
    """Makes durable which entries are known to be damaged."""

    __slots__ = ("_file", "_ranges")
    kind = "note-faults"

    def __init__(self, file: FaultyRangesFile, ranges: tuple[FaultyRange, ...]) -> None:
        self._file = file
        self._ranges = ranges

    def run(self) -> None:
        self._file.write(self._ranges)


class MoveBeginJob:
    """Deletes files at the beginning of the ledger. The mark says first where the ledger begins from now on: a crash
    in between leaves files that recovery knows to be of no use, instead of a ledger whose beginning is missing.
    """

    __slots__ = ("_directories", "_disk", "_mark_file", "_unlinked", "cancelled", "is_done", "mark")
    kind = "move-begin"

    def __init__(
        self,
        disk: Disk,
        mark_file: SyncedMarkFile,
        mark: SyncedMark,
        *,
        unlinked: Sequence[str],
        directories: Sequence[str],
    ) -> None:
        """`unlinked`: paths, the oldest file first."""
        self.mark = mark
        self.cancelled = False  # by a cut, whose own mark says where the ledger begins
        self.is_done = False
        self._disk = disk
        self._mark_file = mark_file
        self._unlinked = unlinked
        self._directories = directories

    def run(self) -> None:
        if not self._mark_file.write_unless(lambda: self.cancelled, self.mark):
            return
        for path in self._unlinked:
            if self._disk.exists(path):
                self._disk.unlink(path)
        for directory in self._directories:
            self._disk.sync_directory(directory)
        self.is_done = True


class CutJob:
    """Removes all bytes from `pos` on, so that a crash at any moment leaves a log that recovery can finish cutting.

    The order is what makes it so: first the record of the cut with the mark lowered below it, then the bytes, then
    the record away. Only after that may anything be appended, or the redone cut would take it.
    """

    __slots__ = (
        "_directories",
        "_disk",
        "_mark_file",
        "_unlinked",
        "_zeroed",
        "held",
        "mark",
        "mark_while_cutting",
    )
    kind = "cut"

    def __init__(
        self,
        disk: Disk,
        mark_file: SyncedMarkFile,
        *,
        mark_while_cutting: SyncedMark,
        mark: SyncedMark,
        zeroed: Sequence[tuple[MappedFile, int, int]],
        unlinked: Sequence[str],
        directories: Sequence[str],
    ) -> None:
        """`zeroed`: (file, first offset in it, offset behind the last). `unlinked`: paths, the last file first."""
        self.mark = mark
        self.mark_while_cutting = mark_while_cutting
        self.held = [mapped_file for mapped_file, _, _ in zeroed]
        self._disk = disk
        self._mark_file = mark_file
        self._zeroed = [(mapped_file.hold(), start, end) for mapped_file, start, end in zeroed]
        self._unlinked = unlinked
        self._directories = directories

    def run(self) -> None:
        self._mark_file.write(self.mark_while_cutting)
        # Later files are unlinked while a sync of them may still run: it holds the descriptor, its bytes go nowhere.
        for path in self._unlinked:
            if self._disk.exists(path):
                self._disk.unlink(path)
        for directory in self._directories:
            self._disk.sync_directory(directory)
        for file, start, end in self._zeroed:
            # Not behind the end of a file that somebody has cut short: with its length back nobody would know.
            zero_range(file, start, min(end, file.size()))
            file.fdatasync()
        self._mark_file.write(self.mark)
        # The record of the cut must not come back by damage to one slot: it would take what is appended from now on.
        self._mark_file.slots.sync_copy()


class PrepareFileJob:
    """Makes the next file ahead, or finds space for the next step of writes, so that no append waits for either."""

    __slots__ = ("_allocate", "_descriptors", "allocated_to", "held", "log_generation", "made")
    kind = "prepare-file"

    def __init__(
        self,
        descriptors: DescriptorCache,
        log_generation: int,
        *,
        allocate: tuple[MappedFile, int, int] | None,
        made: Sequence[tuple[MappedFileQueue, int]],
    ) -> None:
        """`allocate`: (file, offset in it, size). `made`: (queue, offset of the file to be made for it)."""
        self.log_generation = log_generation
        self.made = made
        self.held: list[MappedFile] = []
        self.allocated_to = 0
        self._descriptors = descriptors
        self._allocate: tuple[File, int, int] | None = None
        if allocate is not None:
            mapped_file, offset, size = allocate
            self.held.append(mapped_file)
            self.allocated_to = mapped_file.file_from_offset + offset + size
            self._allocate = mapped_file.hold(), offset, size

    def run(self) -> None:
        if self._allocate is not None:
            file, offset, size = self._allocate
            file.allocate(offset, size)
        for queue, offset in self.made:
            # The directory and the size of a queue never change, so another thread may ask for them.
            make_file(self._descriptors, queue.directory, offset, queue.mapped_file_size, durable=True)


class ProbeSpaceJob:
    """Finds out whether the disk takes writes again, in a file that never has a name for long: a crash leaves nothing
    of it. Raises NoSpaceError when it does not. Before that, zeros become durable where an append without space had
    written; a sync of theirs that fails is final like any other, also for want of space.
    """

    __slots__ = ("_disk", "_path", "_size", "_zeroed", "held")
    kind = "probe-space"

    def __init__(self, disk: Disk, path: str, size: int, zeroed: Sequence[MappedFile]) -> None:
        self.held = list(zeroed)
        self._disk = disk
        self._path = path
        self._size = size
        self._zeroed = [mapped_file.hold() for mapped_file in zeroed]

    def run(self) -> None:
        for zeroed in self._zeroed:
            try:
                zeroed.fdatasync()
            except NoSpaceError as error:
                raise DiskError(error.errno, error.strerror, error.filename) from error
        file = self._disk.open(self._path, create=True)
        try:
            self._disk.unlink(self._path)
            file.allocate(0, self._size)
            # Where nothing can be set aside, only a write tells.
            zero_range(file, 0, min(self._size, len(_ZEROS)))
        finally:
            file.close()


def zero_range(file: File, start: int, end: int) -> None:
    for at in range(start, end, len(_ZEROS)):
        write_over(file, memoryview(_ZEROS)[: end - at], at)
