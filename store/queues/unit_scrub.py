"""The walk of the scrub over ConsumeQueues: the units of each block are compared with their sum.

A block whose sum is another is compared with the log and rebuilt (unit_rebuild.py). Where no sum is known, it is taken
from the units as they stand. Units that no file holds durably yet are in memory, and are left alone.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from zlib import crc32

import msgspec

from disk.disk import Disk, DiskError
from dledger.log.scrub_walk import Finding
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_queue import UnitQueue
from store.queues.unit_rebuild import Rebuilding, UnitRebuild

log = logging.getLogger(__name__)

_BLOCKS_PER_JOB: Final = 64


class BlockRead(msgspec.Struct, frozen=True, eq=False):
    """Where the units of a block lie that are in its file, and what their sum is."""

    queue: UnitQueue
    block: int
    first: int  # unit
    end: int  # the unit behind the last
    path: str
    offset: int  # in the file
    size: int
    sum: int


class CheckUnitsJob:
    """Fulfils ScrubJob. Reads the medium, through descriptors of its own."""

    kind = "scrub"
    writes = False

    def __init__(self, disk: Disk, reads: Sequence[BlockRead]) -> None:
        self.reads = reads
        self.size = 0
        self.found: list[int | None] = []  # the sum of each; None: the disk does not give all of it
        self._disk = disk

    def run(self) -> None:
        for read in self.reads:
            try:
                self.found.append(self._sum_of(read))
            except (DiskError, FileNotFoundError):
                self.found.append(None)

    def _sum_of(self, read: BlockRead) -> int | None:
        # Of thousands of queues, so none stays open.
        file = self._disk.open(read.path, read_only=True)
        try:
            with suppress(DiskError):
                file.forget_cached(read.offset, read.size)
            units = file.pread(read.size, read.offset)
        finally:
            file.close()
        self.size += len(units)
        return crc32(units) if len(units) == read.size else None


class UnitScrub:
    """Fulfils ScrubWalk."""

    def __init__(self, disk: Disk, queues: ConsumeQueueStore, rebuild: UnitRebuild) -> None:
        self._disk = disk
        self._queues = queues
        self._rebuild = rebuild
        self._to_read: list[UnitQueue] = []  # from `_block` on in the last one
        self._block = 0
        self._suspects: list[BlockRead] = []  # the last one is being rebuilt
        self._rebuilding: Rebuilding | None = None

    @property
    def size(self) -> int:
        return sum((queue.flushed_unit - queue.first_unit) * queue.unit_size for queue in self._queues)

    def begin_round(self) -> None:
        self.end_round()
        self._to_read = list(self._queues)

    def end_round(self) -> None:
        self._to_read = []
        self._block = 0
        self._suspects = []
        self._rebuilding = None

    @property
    def is_over(self) -> bool:
        return not self._to_read and not self._suspects

    def next_job(self, size_max: int) -> CheckUnitsJob | None:
        if not self._suspects:
            return CheckUnitsJob(self._disk, self._next_reads(size_max))
        suspect = self._suspects[-1]
        if self._rebuilding is None:
            first = max(suspect.first, suspect.queue.first_unit)
            self._rebuilding = self._rebuild.want_block(suspect.queue, first, suspect.end)
        if not self._rebuilding.is_over:
            return None
        again = self._read_of(suspect.queue, suspect.block)
        return CheckUnitsJob(self._disk, [again] if again is not None else [])

    def settle(self, job: CheckUnitsJob) -> list[Finding]:
        wrong = []
        for read, found in zip(job.reads, job.found, strict=True):
            if not self._queues.is_known(read.queue):
                continue
            if found is None or (read.sum and read.sum != found):
                wrong.append(read)
            elif read.sum == 0 and read.queue.sums.is_known_to(read.end):
                read.queue.sums.set(read.block, found)
        if self._rebuilding is None:
            self._suspects += wrong
            return []
        rebuilding, self._rebuilding = self._rebuilding, None
        suspect = self._suspects.pop()
        is_mended = not wrong or rebuilding.is_done
        if wrong and is_mended:
            log.warning("sum of right units was another directory=%s", suspect.queue.files.directory)
            suspect.queue.sums.set(suspect.block, job.found[0] or 0)
        if is_mended and not rebuilding.rebuilt:
            return []  # it was read wrong, or its sum was
        where = f"{suspect.queue.files.directory} units {suspect.first}..{suspect.end - 1}"
        return [Finding("consumequeue", where, "their sum is another", is_mended)]

    def _next_reads(self, size_max: int) -> list[BlockRead]:
        reads: list[BlockRead] = []
        while self._to_read and len(reads) < _BLOCKS_PER_JOB and size_max > 0:
            queue = self._to_read[-1]
            block = max(self._block, queue.sums.block_of(queue.first_unit))
            self._block = block + 1
            if queue.sums.bounds(block)[0] >= queue.flushed_unit:
                self._to_read.pop()
                self._block = 0
            elif (read := self._read_of(queue, block)) is not None:
                reads.append(read)
                size_max -= read.size
        return reads

    def _read_of(self, queue: UnitQueue, block: int) -> BlockRead | None:
        """None where no unit counts, or the sum has units that are not in the file yet."""
        first, block_end = queue.sums.bounds(block)
        end = min(block_end, queue.flushed_unit)
        is_known = self._queues.is_known(queue) and queue.sums.is_known_to(end)
        if queue.first_unit >= end or not is_known:
            return None
        size, file_size = queue.unit_size, queue.files.mapped_file_size
        offset = first * size
        in_file = offset % file_size
        path = queue.files.path_of(offset - in_file)
        return BlockRead(queue, block, first, end, path, in_file, (end - first) * size, queue.sums.get(block))
