"""The plain CommitLog that came before a DLedger log: where a plain broker of RocketMQ's became a member of a group, it
went on behind it. Its records lie in `commitlog/`, below the position of the first entry, and without entry headers.

Read, and deleted file by file; nothing is written there. Raft knows nothing of it: each member has its own, or none.
"""

import logging
from collections.abc import Mapping
from typing import Final

from disk.mapped_file import DescriptorCache
from disk.mapped_file_queue import MappedFileQueueError
from dledger.entry import Index, Pos, Term, VerifiedRange
from dledger.log.range_read import RangeRead, read_range
from dledger.log.scrub_job import Place
from message.dispatch_columns import scan_records
from message.record_layout import RECORD_SIZE_MIN
from store.dispatch_request import dispatch_requests
from store.errors import StoreDamagedError
from store.plain.plain_log import PlainDataFiles
from store.plain.plain_records import RecordReader, next_records, record_size_at
from store.queues.consume_queue_store import ConsumeQueueStore
from store.store_config import StoreConfig

log = logging.getLogger(__name__)

# Units that wait in memory while all queues are built: some MiB of them.
_RANGES_PER_FLUSH: Final = 16


class OldCommitLog:
    """Invariant: empty, or its files lie end to end up to `end_pos`, where the log under the store begins."""

    def __init__(self, config: StoreConfig, descriptors: DescriptorCache, ledger_begin_pos: int) -> None:
        """Raises StoreDamagedError, DiskError."""
        self._disk = descriptors.disk
        directory = config.old_commit_log_directory
        self._data = PlainDataFiles(descriptors, directory or "", config.mapped_file_size_commit_log, 0)
        queue = self._data.queue
        # A log that begins at 0 has none, whatever lies about.
        if directory is None or not ledger_begin_pos or not queue.list_files():
            return
        try:
            queue.load()
        except MappedFileQueueError as error:
            raise StoreDamagedError(f"{error} {_what_to_do(directory)}") from error
        if queue.end_offset != ledger_begin_pos:
            log.warning(
                "%s ends at %d, the log begins at %d: messages in the former are not read",
                directory, queue.end_offset, ledger_begin_pos,
            )  # fmt: skip
            queue.close()
            return
        log.info("a plain commit log comes before this log begin=%d end=%d", self.begin_pos, self.end_pos)

    @property
    def begin_pos(self) -> int:
        return self._data.queue.min_offset

    @property
    def end_pos(self) -> int:
        """0 when it is empty."""
        return self._data.queue.end_offset

    def begin_after_power_loss(self, durable_begin_pos: Pos) -> int:
        """Where the messages begin if power is lost now; `durable_begin_pos` is that of the log behind this one. What
        is derived from those further in front need not be kept; all else must be, although it may not be there to be
        read any more.
        """
        return self.begin_pos if self.end_pos else durable_begin_pos

    @property
    def first_file_end(self) -> int:
        """Of one that is not empty."""
        return self._data.queue.mapped_files[0].end_offset

    def read(self, phy_offset: int, size: int) -> bytes:
        """Bytes within one file; fewer only where there is no file."""
        return self._data.read(phy_offset, size)

    def record_size_at(self, phy_offset: int) -> int | None:
        """None if by its looks no record begins there."""
        return record_size_at(self.read(phy_offset, RECORD_SIZE_MIN), phy_offset)

    def records_from(self, pos: int, size: int) -> VerifiedRange | None:
        """About `size` bytes of records from `pos` on, where one begins; None where none does any more."""
        reader = RecordReader(self._data, Index(-1), Term(-1), Pos(max(pos, self.begin_pos)), size)
        return next(reader.ranges(), None)

    def read_behind(self, place: Place, size_max: int) -> RangeRead:
        """Some records behind `place`. In any thread. Raises DiskError."""
        queue = self._data.queue
        return read_range(
            self._disk,
            queue.directory,
            PlainDataFiles,
            queue.mapped_file_size,
            place,
            lambda data, place: next_records(data, place, size_max),
        )

    def dispatch_to(self, queues: ConsumeQueueStore, delay_levels: Mapping[int, int]) -> None:
        """Puts the units of all that is here into `queues`, which have none yet. Blocks: all of it is read.

        Raises StoreDamagedError, DiskError.
        """
        if not self.end_pos:
            return
        log.info("messages before the log are dispatched from=%d to=%d", self.begin_pos, self.end_pos)
        reader = RecordReader(self._data, Index(-1), Term(-1), Pos(self.begin_pos))
        for number, verified in enumerate(reader.ranges(), start=1):
            columns = scan_records(verified.buffer, verified.offsets, delay_levels=delay_levels)
            queues.put(dispatch_requests(columns))
            if number % _RANGES_PER_FLUSH == 0:
                _flush(queues)
        if not reader.blanks or sum(reader.blanks[-1]) != self.end_pos:
            directory = self._data.queue.directory
            raise StoreDamagedError(
                f"{directory}: readable up to {reader.end_pos} ({reader.stopped_by or 'zeros follow'}), and not up to "
                f"{self.end_pos}, where the log begins. Nothing was changed. {_what_to_do(directory)}"
            )

    def delete_first_file(self) -> None:
        """Raises DiskError."""
        self._data.queue.delete_before(self.first_file_end)
        self._disk.sync_directory(self._data.queue.directory)

    def close(self) -> None:
        """Closes the files, which stay. It is empty then."""
        self._data.queue.close()


def _flush(queues: ConsumeQueueStore) -> None:
    dirty = queues.dirty()
    while (job := queues.flush_job(dirty)) is not None:
        succeeded = False
        try:
            job.run()
            succeeded = True
        finally:
            queues.flush_done(job, succeeded=succeeded)


def _what_to_do(directory: str) -> str:
    return f"Copy {directory} from another member, or move it away: its messages cannot be read here then, others can"
