"""The walk of the scrub over files that are written as a whole: checkpoints, and what is exported for Java.

What this process has written is compared with its CRC. Of what earlier ones have written, only our own checkpoints have
one. A damaged file is written anew by the store's flusher, from the state as it is.
"""

from zlib import crc32

from disk.disk import Disk
from dledger.log.scrub_job import read_from_medium
from dledger.log.scrub_walk import Finding
from store.derived.checkpoint_file import is_whole_checkpoint
from store.derived.store_flusher import StoreFlusher


class StateFileJob:
    """Fulfils ScrubJob."""

    kind = "scrub"
    writes = False

    def __init__(self, disk: Disk, path: str, crc: int | None) -> None:
        """`crc` None: a checkpoint of ours, which has its own; it need not be there."""
        self.path = path
        self.crc = crc
        self.size = 0
        self.fault: str | None = None
        self._disk = disk

    def run(self) -> None:
        try:
            file = self._disk.open(self.path, read_only=True)
        except FileNotFoundError:
            self.fault = "the file is gone" if self.crc is not None else None
            return
        try:
            self.size = file.size()
            content = read_from_medium(file, self.size, 0)
        finally:
            file.close()
        if not (is_whole_checkpoint(content) if self.crc is None else crc32(content) == self.crc):
            self.fault = "its content is not what was written"


class StateFilesScrub:
    """Fulfils ScrubWalk."""

    def __init__(self, disk: Disk, flusher: StoreFlusher) -> None:
        self.size = 0  # of a round so far
        self._disk = disk
        self._flusher = flusher
        self._paths: list[str] = []  # still to be read
        self._read_size = 0
        self._suspect: str | None = None  # a first reading found it damaged

    def begin_round(self) -> None:
        self._paths = sorted(self._flusher.written, reverse=True)
        self._read_size = 0
        self._suspect = None

    @property
    def is_over(self) -> bool:
        while self._paths and self._paths[-1] not in self._flusher.written:
            self._paths.pop()  # nobody knows any more what was written there
        return not self._paths

    def next_job(self, size_max: int) -> StateFileJob | None:
        """A file is read as a whole, for all of them are small beside the log."""
        if self._flusher.is_busy:
            return None
        path = self._paths[-1]
        return StateFileJob(self._disk, path, self._flusher.written[path])

    def settle(self, job: StateFileJob) -> list[Finding]:
        written = self._flusher.written
        if self._flusher.is_busy or written.get(job.path, -1) != job.crc:
            return []  # it was being written
        if job.fault is not None and self._suspect != job.path:
            self._suspect = job.path
            return []
        self._paths.pop()
        self._read_size += job.size
        self.size = max(self.size, self._read_size)
        if job.fault is None:
            return []
        self._flusher.write_anew(job.path)
        return [Finding("state", job.path, job.fault, is_mended=True)]
