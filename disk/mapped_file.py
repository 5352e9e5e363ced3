"""One fixed-size file of a queue of files, and the cache that keeps the number of open descriptors small.

RocketMQ's name is kept although nothing is mapped (see real_disk.py). A broker has thousands of ConsumeQueues, so a
file is opened when first used and closed again when too many are open.
"""

from collections import deque

from disk.disk import Disk, File


class DescriptorCache:
    """Descriptors of mapped files, closed by second chance beyond `open_max`.

    Closing a file that has unsynced bytes loses nothing: fdatasync through a later descriptor covers the whole file.
    It could hide a failed write-back on old kernels, so whoever acknowledges by a sync holds the file until then.
    """

    __slots__ = ("_open", "disk", "open_max")

    def __init__(self, disk: Disk, open_max: int = 256) -> None:
        assert open_max > 0
        self.disk = disk
        self.open_max = open_max
        self._open: deque[MappedFile] = deque()

    @property
    def open_count(self) -> int:
        return len(self._open)

    def add(self, mapped_file: "MappedFile") -> None:
        """Notes a file that has just been opened, and closes others if there are too many."""
        self._open.append(mapped_file)
        # Two rounds at most: the first takes the second chances away. All held: the limit is exceeded for now.
        for _ in range(2 * len(self._open)):
            if len(self._open) <= self.open_max:
                return
            oldest = self._open.popleft()
            if oldest is mapped_file or not oldest.evict():
                self._open.append(oldest)

    def forget(self, mapped_file: "MappedFile") -> None:
        self._open.remove(mapped_file)


class MappedFile:
    """Invariant: the descriptor is not closed while anybody holds the file, so no job ever meets a reused number."""

    __slots__ = (
        "_descriptors",
        "_file",
        "_holds",
        "_retired",
        "_used",
        "end_offset",
        "file_from_offset",
        "file_size",
        "path",
    )

    def __init__(
        self, descriptors: DescriptorCache, path: str, file_from_offset: int, file_size: int
    ) -> None:
        self.path = path
        self.file_from_offset = file_from_offset
        self.file_size = file_size
        self.end_offset = file_from_offset + file_size
        self._descriptors = descriptors
        self._file: File | None = None
        self._holds = 0
        self._used = False
        self._retired = False

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def file(self) -> File:
        """The open file, for use before control returns to the caller's loop; hold() it for longer use."""
        if self._file is not None:
            self._used = True  # the second use: files touched once only give way to those in use
        else:
            assert not self._retired, f"{self.path} is closed for good"
            self._file = self._descriptors.disk.open(self.path)
            self._descriptors.add(self)
        return self._file

    def hold(self) -> File:
        """The open file, kept open until as many release() calls. Called by the owning thread only."""
        file = self.file()  # first, for it may fail
        self._holds += 1
        return file

    def release(self) -> None:
        assert self._holds > 0, f"{self.path} is not held"
        self._holds -= 1
        # After a sync that failed the file is opened anew, for whoever writes again what may be lost. Nobody does for a
        # log, whose jobs hold its files until the member has ended.
        if self._holds == 0 and (self._retired or self._has_failed_sync()):
            self._close()

    def _has_failed_sync(self) -> bool:
        return self._file is not None and self._file.sync_failed

    def evict(self) -> bool:
        """For the cache: closes the file unless it is held or was used since the last call."""
        if self._holds or self._used:
            self._used = False
            return False
        assert self._file is not None, "only open files are in the cache"
        file, self._file = self._file, None
        file.close()
        return True

    def retire(self) -> None:
        """No use after this. The descriptor is closed at once, or by the last release()."""
        self._retired = True
        if self._holds == 0:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._descriptors.forget(self)
            file, self._file = self._file, None
            file.close()
