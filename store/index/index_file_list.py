"""RocketMQ's IndexFiles: from hashes of `topic#key` to the physical offsets of messages.

They trail the log: somebody else reads committed messages, hands their keys over by put(), and asks `covered_pos` where
to go on after a start. Keys wait in memory and get to the files by flush jobs, in another thread. Whatever is lost or
damaged is built anew from the log. Time, disk and threads are the caller's.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence

from disk.disk import Disk, DiskError
from disk.mapped_file import DescriptorCache
from store.index.index_file import (
    IndexFile,
    delete_index_files,
    next_file_name,
    utc_file_name,
)
from store.index.index_file_flush import IndexFileFlushJob, Pause, PendingKeys
from store.index.index_file_mark import IndexFileMark, IndexFileMarkFile
from store.index.index_file_query import IndexFileQuery
from store.index.index_file_recovery import recover_index_files
from store.layout.index_file import IndexFileShape

log = logging.getLogger(__name__)

FileNameAt = Callable[[int], str]  # ms since the epoch -> yyyyMMddHHmmssSSS


def no_pause() -> None:
    """Of those who run a job in their own thread."""


class IndexFileDeleteJob:
    """Fulfils DiskJob: unlinks files. What a power loss brings back of them goes another time."""

    __slots__ = ("_disk", "index_files", "unlinked")
    kind = "delete-index-file"

    def __init__(self, disk: Disk, index_files: Sequence[IndexFile]) -> None:
        self.index_files = index_files  # held, for a query may be on its way through them
        self.unlinked: list[IndexFile] = []
        self._disk = disk
        held: list[IndexFile] = []
        try:
            for index_file in index_files:
                index_file.hold()
                held.append(index_file)
        except DiskError:
            for index_file in held:
                index_file.mapped_file.release()
            raise

    def run(self) -> None:
        for index_file in self.index_files:
            if self._disk.exists(index_file.mapped_file.path):
                self._disk.unlink(index_file.mapped_file.path)
            self.unlinked.append(index_file)


IndexFileJob = IndexFileFlushJob | IndexFileDeleteJob


class IndexFileList:
    """Invariant: all keys of records that begin before `covered_pos` are in the files, in the job under way or pending,
    those before `flushed_pos` durably in the files. At most one job is under way.
    """

    def __init__(
        self,
        descriptors: DescriptorCache,
        directory: str,
        mark_path: str,
        shape: IndexFileShape,
        keys_per_flush: int,
        file_name_at: FileNameAt = utc_file_name,
        pause: Pause = no_pause,
    ) -> None:
        """Then open(). `directory`: of the IndexFiles. `mark_path`: elsewhere, for Java takes all files there.
        `pause`: sleeps for a tenth of a millisecond or so, in the thread of a flush job.
        """
        self.covered_pos = 0
        self._descriptors = descriptors
        self._disk = descriptors.disk
        self._directory = directory
        self._mark_file = IndexFileMarkFile(self._disk, mark_path)
        self._mark = IndexFileMark(shape=shape)  # what is durably true, once leftovers are gone
        self._shape = shape
        self._keys_per_flush = keys_per_flush
        self._file_name_at = file_name_at
        self._pause = pause
        self._index_files: list[IndexFile] = []  # oldest first; none is empty
        self._pending = PendingKeys()
        self._flushing = PendingKeys()
        self._last_phy_offset = -1  # of the newest message whose keys are here
        self._job: IndexFileJob | None = None
        self._has_leftovers = False  # files, or parts of one, that the next flush takes away

    def open(self, *, stopped_cleanly: bool) -> None:
        """Takes up what is in the files; blocks. `stopped_cleanly`: whoever wrote them last, this broker or Java's.

        Raises DiskError.
        """
        if self._mark_file.unreadable is not None:
            log.warning("mark of the IndexFiles is lost: %s", self._mark_file.unreadable)
        if not stopped_cleanly:
            self._mark_file.make_durable()
        recovered = recover_index_files(
            self._descriptors,
            self._directory,
            self._shape,
            self._mark_file.mark,
            stopped_cleanly=stopped_cleanly,
        )
        self._index_files = recovered.index_files
        mark = self._mark = recovered.mark
        self.covered_pos = mark.covered_pos
        self._last_phy_offset = mark.last_phy_offset
        if mark != (self._mark_file.mark or IndexFileMark(shape=self._shape)) or self._mark_file.was_damaged:
            # Files of other hands may have been copied here a moment ago.
            for index_file in self._index_files:
                index_file.mapped_file.file().fdatasync()
            self._mark_file.write(mark)
        delete_index_files(self._disk, self._directory, recovered.refused)
        log.info(
            "IndexFiles opened files=%d end_phy_offset=%d covered_pos=%d",
            len(self._index_files), self.end_phy_offset, self.covered_pos,
        )  # fmt: skip

    def close(self) -> None:
        """With no job running. What is not flushed is read from the log again after the next start."""
        for index_file in self._index_files:
            index_file.mapped_file.retire()
        self._mark_file.close()

    # -- what is known -----------------------------------------------------------------------------------------

    @property
    def flushed_pos(self) -> int:
        """Where a start after a crash would have to go on, once leftovers are gone."""
        return self._mark.covered_pos

    @property
    def index_files(self) -> Sequence[IndexFile]:
        """Oldest first."""
        return self._index_files

    def is_writing(self, index_file: IndexFile) -> bool:
        """Or has to take back what it has written."""
        is_newest = self._index_files[-1:] == [index_file]
        return is_newest and (isinstance(self._job, IndexFileFlushJob) or self._has_leftovers)

    @property
    def pending_count(self) -> int:
        """Keys that no job has taken yet."""
        return len(self._pending)

    @property
    def is_flush_due(self) -> bool:
        return self._job is None and (self.is_full or self._has_leftovers)

    @property
    def is_full(self) -> bool:
        """Put no more until a flush has taken what is pending: the disk is behind."""
        return len(self._pending) >= self._keys_per_flush

    @property
    def end_phy_offset(self) -> int:
        """Of the newest message with a key; 0: there is none. RocketMQ's answers to queries carry it."""
        for keys in (self._pending, self._flushing):
            if keys:
                return keys.phy_offsets[-1]
        return self._index_files[-1].header.end_phy_offset if self._index_files else 0

    @property
    def end_timestamp(self) -> int:
        """Store time of that message, ms."""
        for keys in (self._pending, self._flushing):
            if keys:
                return keys.store_timestamps[-1]
        return self.flushed_timestamp

    @property
    def flushed_timestamp(self) -> int:
        """Store time of the newest message in the files, ms."""
        return self._index_files[-1].header.end_timestamp if self._index_files else 0

    # -- keys --------------------------------------------------------------------------------------------------

    def put(
        self,
        key_hashes: Sequence[int],
        phy_offsets: Sequence[int],
        store_timestamps: Sequence[int],
        covered_pos: int,
    ) -> None:
        """Keys of committed messages in log order, hashes as of index_key_hash, times in ms. All keys of a message come
        in one call; what is there already is left alone. `covered_pos`: the log is covered up to there now.
        """
        repeated = bisect_right(phy_offsets, self._last_phy_offset)
        if repeated < len(phy_offsets):
            if repeated:
                key_hashes, phy_offsets = key_hashes[repeated:], phy_offsets[repeated:]
                store_timestamps = store_timestamps[repeated:]
            self._pending.extend(key_hashes, phy_offsets, store_timestamps)
            self._last_phy_offset = phy_offsets[-1]
        self.covered_pos = max(self.covered_pos, covered_pos)

    def query(self, key_hash: int, begin_ms: int, end_ms: int) -> IndexFileQuery:
        """Of messages stored from `begin_ms` to `end_ms`, both included."""
        in_memory = self._pending.find(key_hash, begin_ms, end_ms)
        in_memory += self._flushing.find(key_hash, begin_ms, end_ms)
        return IndexFileQuery(key_hash, begin_ms, end_ms, in_memory, self._index_files[::-1])

    # -- jobs --------------------------------------------------------------------------------------------------

    def flush(self, now_ms: int) -> IndexFileFlushJob | None:
        """A job that brings to disk what is here now; None: nothing is new, or a job is under way. Its keys are found
        by queries all the while. Raises DiskError when the newest file cannot be opened; then nothing has changed.
        """
        is_new = self._pending or self.covered_pos != self.flushed_pos or self._has_leftovers
        if self._job is not None or not is_new:
            return None
        newest = self._index_files[-1] if self._index_files else None
        new_name = self._file_name_at(now_ms)
        if newest is not None:
            new_name = max(new_name, next_file_name(newest.name))
        job = IndexFileFlushJob(
            self._disk,
            self._directory,
            self._shape,
            self._mark_file,
            self._mark,
            newest,
            self._pending,
            self.covered_pos,
            self._last_phy_offset,
            first_new_name=new_name,
            leftovers=self._has_leftovers,
            pause=self._pause,
        )
        self._flushing, self._pending = self._pending, PendingKeys()
        self._job = job
        return job

    def delete_before(self, min_phy_offset: int) -> IndexFileDeleteJob | None:
        """A job that deletes files all of whose messages lie before, but for the newest: in it Java finds how far the
        index has come. None: there is nothing to delete, or a job is under way. Raises DiskError; then nothing has
        changed.
        """
        count = 0
        for index_file in self._index_files[:-1]:
            if index_file.header.end_phy_offset >= min_phy_offset:
                break
            count += 1
        if self._job is not None or not count:
            return None
        job = self._job = IndexFileDeleteJob(self._disk, self._index_files[:count])
        return job

    def job_done(self, job: IndexFileJob, *, succeeded: bool) -> None:
        """What failed is in the next job of its kind again."""
        assert job is self._job, f"{job.kind} is not the job under way"
        self._job = None
        match job:
            case IndexFileFlushJob():
                self._flush_done(job, succeeded=succeeded)
            case IndexFileDeleteJob():
                for index_file in job.index_files:
                    index_file.mapped_file.release()
                for index_file in job.unlinked:
                    self._index_files.remove(index_file)
                    index_file.delete()

    def begin_anew(self) -> None:
        """Forgets all that it has. The next flush says so durably and takes the files away; a start before that takes
        them up, all of them. With no job under way.
        """
        assert self._job is None, "jobs are settled first"
        for index_file in self._index_files:
            index_file.delete()
        self._index_files = []
        self._pending = PendingKeys()
        self.covered_pos = 0
        self._mark = IndexFileMark(shape=self._shape)
        self._last_phy_offset = -1
        self._has_leftovers = True

    def _flush_done(self, job: IndexFileFlushJob, *, succeeded: bool) -> None:
        job.settle()
        flushing, self._flushing = self._flushing, PendingKeys()
        self._has_leftovers = not succeeded
        if not succeeded:
            pending = self._pending
            flushing.extend(pending.key_hashes, pending.phy_offsets, pending.store_timestamps)
            self._pending = flushing
            return
        self._mark = job.mark
        for name, header in job.written.items():
            if self._index_files and self._index_files[-1].name == name:
                self._index_files[-1].header = header
            else:
                self._index_files.append(
                    IndexFile(self._descriptors, self._directory, name, self._shape, header)
                )
