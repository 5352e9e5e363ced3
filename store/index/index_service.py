"""Keeps the IndexFiles behind the dispatch, and answers queries by key.

Keys cost as much as the rest of the dispatch, so they have no part in it: a few messages per tick are read again, most
of them from memory. Under load the index falls behind; it catches up when there is less to do. A query waits for what
was visible when it came.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from disk.disk import DiskError
from disk.mapped_file import DescriptorCache
from dledger.entry import EntryKind, Index
from dledger.errors import FaultyEntryError
from dledger.log.errors import LedgerError
from dledger.log.jobs import DiskJob
from dledger.log.recent_batches import RecentBatch
from dledger.log.scrub_walk import Finding
from message.dispatch_columns import scan_records
from message.errors import MessageDecodeError
from message.key_columns import key_hash, scan_keys
from store.errors import StoreDamagedError
from store.index.index_file import IndexFile, IndexFileDamagedError
from store.index.index_file_flush import Pause
from store.index.index_file_list import IndexFileJob, IndexFileList
from store.index.index_file_mark import MARK_FILE_NAME
from store.index.index_file_query import IndexFileQuery
from store.java.old_commit_log import OldCommitLog
from store.replicated_log import Ledger
from store.reput import Reput
from store.store_config import StoreConfig

log = logging.getLogger(__name__)

# At 10 us each these are 6 % of the time between two ticks, and a quarter of it where nothing else was dispatched.
ENTRIES_PER_TICK: Final = 64
ENTRIES_PER_IDLE_TICK: Final = 256
ENTRIES_PER_STOP: Final = 50_000
SIZE_PER_TICK: Final = 1 << 18  # bytes
# Of what lies before the log, which is proven record by record.
OLD_SIZE_PER_TICK: Final = 1 << 16
RETRY_MS: Final = 1000  # after a job that failed


class IndexService:
    """Invariant: the index covers the entries before `next_index`, which are applied ones."""

    def __init__(
        self,
        config: StoreConfig,
        descriptors: DescriptorCache,
        ledger: Ledger,
        old_commit_log: OldCommitLog,
        reput: Reput,
        submit: Callable[[DiskJob], None],
        pause: Pause,
    ) -> None:
        self._ledger = ledger
        self._old = old_commit_log
        self._reput = reput
        self._submit = submit
        self._index_file_list = IndexFileList(
            descriptors,
            f"{config.store_path_root_dir}/index",
            f"{config.ledger_directory}/pydledger/{MARK_FILE_NAME}",
            config.index_file_shape,
            config.index_keys_per_flush,
            pause=pause,
        )
        self.generation = 0  # how often it has begun anew
        self._job: IndexFileJob | None = None
        self._next_index = Index(0)
        self._dispatched_index = Index(-1)  # as of the last tick
        self._begin_pos = 0  # of the log, up to which files are deleted
        self._is_damaged = False  # as a scrub has found it
        self._now_ms = 0  # as of the last tick
        self._next_job_ms = 0

    def open(self, sums: Mapping[str, int], *, stopped_cleanly: bool) -> None:
        """`sums`: of full files. Blocks. Raises DiskError."""
        self._index_file_list.open(stopped_cleanly=stopped_cleanly)
        if self._index_file_list.covered_pos > self._ledger.ledger_end_pos:
            log.warning(
                "IndexFiles are of another log, they are built anew covered_pos=%d",
                self._index_file_list.covered_pos,
            )
            self._index_file_list.begin_anew()
            self.flush(0)  # before the log gets there: then the mark would look like one of it
        for index_file in self.index_files:
            index_file.sum = sums.get(index_file.name)
        # Of the last message of a file the keys may go on in the next one, which is built anew: then the log is covered
        # up to its record, behind the head of its entry.
        covered_pos = max(0, self._index_file_list.covered_pos - self._ledger.head_size)
        self._next_index = self._ledger.first_index_at(covered_pos)
        damage = self._ledger.faulty_at(covered_pos)
        if damage is not None:
            # Nobody knows which of its entries begins there. Keys that are in the index already are left alone.
            self._next_index = damage.first_index

    def catch_up(self, now_ms: int) -> None:
        """As far as does not take seconds: should Java open this store, it adds nothing to the index of what is there.
        With no job under way; blocks. A disk that takes no more of the index ends it: the log is still to be closed.
        Raises StoreDamagedError, DiskError when the log cannot be read.
        """
        if self._is_damaged:
            self.begin_anew()
        if self._is_before_log:
            return
        last_index = self._next_index + ENTRIES_PER_STOP
        while self.behind > 0 and self._next_index < last_index:
            if self._index_file_list.is_full:
                try:
                    self.flush(now_ms)
                except DiskError as error:
                    log.warning("IndexFiles cannot be written, they stay behind the log error=%s", error)
                    return
            before = self._next_index, self._index_file_list.covered_pos
            self._advance(ENTRIES_PER_IDLE_TICK)
            if (self._next_index, self._index_file_list.covered_pos) == before:
                return  # the log is damaged there, and nobody repairs it any more

    def flush(self, now_ms: int) -> None:
        """What waits in memory goes to the files. With no job under way; blocks. Raises DiskError."""
        job = self._index_file_list.flush(now_ms)
        if job is None:
            return
        succeeded = False
        try:
            job.run()
            succeeded = True
        finally:
            self._index_file_list.job_done(job, succeeded=succeeded)

    def close(self) -> None:
        """With no job running."""
        self._index_file_list.close()

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way."""
        return self._job is not None

    @property
    def behind(self) -> int:
        """Entries that are dispatched and not yet indexed."""
        return self._reput.applied_index + 1 - self._next_index

    @property
    def _is_before_log(self) -> bool:
        return self._index_file_list.covered_pos < self._old.end_pos

    def covers(self, index: Index) -> bool:
        return index < self._next_index

    @property
    def end_phy_offset(self) -> int:
        """Of the newest message with a key; 0: there is none."""
        return self._index_file_list.end_phy_offset

    @property
    def end_timestamp(self) -> int:
        """Store time of that message, ms."""
        return self._index_file_list.end_timestamp

    @property
    def flushed_timestamp(self) -> int:
        """Store time of the newest message in the files, ms."""
        return self._index_file_list.flushed_timestamp

    @property
    def has_work(self) -> bool:
        """For the next tick."""
        return self.behind > 0 and not self._index_file_list.is_full

    def tick(self, now_ms: int) -> None:
        """Indexes some more, and submits a job that is due. Raises StoreDamagedError, DiskError: of the log alone."""
        self._now_ms = now_ms
        applied_index = self._reput.applied_index
        is_idle = applied_index == self._dispatched_index
        self._dispatched_index = applied_index
        if self.has_work:
            self._advance(ENTRIES_PER_IDLE_TICK if is_idle else ENTRIES_PER_TICK)
        if self._job is not None or now_ms < self._next_job_ms:
            return
        if self._is_damaged:
            self.begin_anew()
        try:
            if self._index_file_list.is_flush_due:
                self._job = self._index_file_list.flush(now_ms)
            else:
                begin_pos = self._old.begin_after_power_loss(self._ledger.durable_begin_pos)
                if begin_pos != self._begin_pos:
                    self._job = self._index_file_list.delete_before(begin_pos)
                    self._begin_pos = begin_pos
        except DiskError as error:
            self._failed("index-file", error)
        if self._job is not None:
            self._submit(self._job)

    def job_done(self, job: DiskJob, error: Exception | None) -> bool:
        """Whether it was one of the index's. A DiskError is tried again later. Raises any other error."""
        if job is not self._job:
            return False
        mine, self._job = self._job, None
        assert mine is not None
        self._index_file_list.job_done(mine, succeeded=error is None)
        if error is not None:
            if not isinstance(error, DiskError):
                raise error
            self._failed(job.kind, error)
        return True

    def _failed(self, kind: str, error: DiskError) -> None:
        self._next_job_ms = self._now_ms + RETRY_MS
        self._begin_pos = -1  # what was to be deleted is looked for again
        if not isinstance(error, IndexFileDamagedError):
            log.warning("job failed, will be tried again job=%s error=%s", kind, error)
            return
        # What is damaged, or was taken away, would fail each time.
        log.warning("IndexFiles are damaged, they are built anew from the log job=%s error=%s", kind, error)
        self.begin_anew()

    def begin_anew(self) -> None:
        """The log has, or files are damaged; with no job under way."""
        self.generation += 1
        self._is_damaged = False
        self._next_index = self._ledger.ledger_begin_index
        self._index_file_list.begin_anew()

    # -- scrub -------------------------------------------------------------------------------------------------

    @property
    def index_files(self) -> Sequence[IndexFile]:
        """Oldest first."""
        return self._index_file_list.index_files

    @property
    def sums(self) -> dict[str, int]:
        """Those that are known, by name of the file."""
        return {each.name: each.sum for each in self.index_files if each.sum is not None}

    def is_writing(self, index_file: IndexFile) -> bool:
        return self._index_file_list.is_writing(index_file)

    def found_damaged(self, path: str, reason: str) -> Finding:
        """The index is built anew as soon as no job is under way."""
        self._is_damaged = True
        return Finding("keyindex", path, f"{reason}; the index is built anew from the log", is_mended=True)

    def query(self, topic: bytes, key: bytes, begin_ms: int, end_ms: int) -> IndexFileQuery:
        """Of what is indexed so far. Other keys with the same hash are among what it finds."""
        return self._index_file_list.query(key_hash(topic, key), begin_ms, end_ms)

    def _advance(self, count: int) -> None:
        if self._is_before_log:
            self._index_old()
            return
        # Retention may have taken what was not indexed yet.
        first_index = self._next_index = max(self._next_index, self._ledger.ledger_begin_index)
        last_index = min(Index(first_index + count - 1), self._reput.applied_index)
        size = 0
        try:
            for batch in self._ledger.batches_from(first_index, last_index, SIZE_PER_TICK):
                self._index(batch)
                size += len(batch.buffer)
                if size >= SIZE_PER_TICK:
                    return
        except FaultyEntryError:
            return  # they are indexed when they are repaired
        except LedgerError as error:
            raise StoreDamagedError(f"the log cannot be indexed: {error}") from error

    def _index_old(self) -> None:
        """Some of what lies before the log."""
        verified = self._old.records_from(self._index_file_list.covered_pos, OLD_SIZE_PER_TICK)
        if verified is None:
            self._index_file_list.put([], [], [], self._old.end_pos)
            return
        try:
            keys = scan_keys(scan_records(verified.buffer, verified.offsets))
        except MessageDecodeError as error:
            raise StoreDamagedError(
                f"records from {verified.first_pos} hold no sound message: {error}"
            ) from error
        self._index_file_list.put(keys.key_hashes, keys.phy_offsets, keys.store_timestamps, verified.next_pos)

    def _index(self, batch: RecentBatch) -> None:
        buffer = batch.buffer
        messages = [
            offset
            for offset, kind in zip(batch.offsets, self._ledger.kinds_of(batch), strict=True)
            if kind == EntryKind.MESSAGE
        ]
        try:
            keys = scan_keys(scan_records(buffer, messages, shift=self._ledger.head_size))
        except MessageDecodeError as error:
            raise StoreDamagedError(
                f"entries from {batch.first_index} hold no sound message: {error}"
            ) from error
        self._index_file_list.put(keys.key_hashes, keys.phy_offsets, keys.store_timestamps, batch.end_pos)
        self._next_index = Index(batch.last_index + 1)
