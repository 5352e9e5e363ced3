"""The ConsumeQueue of one topic and queue id: where each of its messages lies, by queue offset.

Units are appended in memory and get to the files by a flush job, in another thread: dispatching costs no system call.
A crash loses units that were not flushed; they are dispatched again from the log, which is where they come from.
"""

import logging
from collections.abc import Sequence

from disk.mapped_file import DescriptorCache
from disk.mapped_file_queue import MappedFileQueue
from store.layout.consume_queue_unit import CQ_UNIT, CQ_UNIT_SIZE, FILLER

log = logging.getLogger(__name__)

_ZERO_CHUNK = bytes(64 * 1024)


class ConsumeQueue:
    """Invariant: units [tail_from, max_offset) are in memory, [min_offset, flushed_offset) are in synced files, and
    tail_from <= flushed_offset <= max_offset. All offsets here are queue offsets: numbers of units.
    """

    __slots__ = (
        "_tail",
        "_tail_from",
        "files",
        "flushed_offset",
        "max_offset",
        "min_offset",
        "queue_id",
        "topic",
        "units_per_file",
    )

    def __init__(
        self, descriptors: DescriptorCache, directory: str, file_size: int, topic: bytes, queue_id: int
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(descriptors, directory, file_size)
        self.units_per_file = file_size // CQ_UNIT_SIZE
        self.min_offset = 0
        self.max_offset = 0
        self.flushed_offset = 0
        self._tail = bytearray()
        self._tail_from = 0

    @property
    def topic_name(self) -> str:
        return self.topic.decode("utf-8", "surrogateescape")

    @property
    def unflushed_count(self) -> int:
        return self.max_offset - self.flushed_offset

    @property
    def tail_size(self) -> int:
        """Bytes of units in memory."""
        return len(self._tail)

    def put(self, queue_offset: int, units: bytes) -> int:
        """Appends units that begin at `queue_offset`. Returns how many were new: what is there is left alone."""
        expected = self.max_offset
        count = len(units) // CQ_UNIT_SIZE
        if expected == self.min_offset and expected:
            self._begin_again()
        if queue_offset != expected:
            if queue_offset < expected:
                repeated = expected - queue_offset
                if repeated >= count:
                    return 0
                units = units[repeated * CQ_UNIT_SIZE :]
                count -= repeated
            elif expected == 0:
                self._begin_at(queue_offset)
            else:
                # A leader gives dense offsets, so this is a log of other hands or a fault; every reader sees the gap.
                log.error(
                    "queue offset gap topic=%s queue_id=%d expected=%d found=%d",
                    self.topic.decode(errors="replace"),
                    self.queue_id,
                    expected,
                    queue_offset,
                )
                self._tail += FILLER * (queue_offset - expected)
                self.max_offset = queue_offset
        self._tail += units
        self.max_offset += count
        return count

    def units(self, offset: int, count: int) -> bytes:
        """Up to `count` units from `offset` on; fewer at the end, or where a file is missing."""
        count = min(count, self.max_offset - offset)
        if count <= 0:
            return b""
        start = (offset - self._tail_from) * CQ_UNIT_SIZE
        if start >= 0:
            return bytes(self._tail[start : start + count * CQ_UNIT_SIZE])
        from_files = min(count, self._tail_from - offset)
        data = self.files.read(offset * CQ_UNIT_SIZE, from_files * CQ_UNIT_SIZE)
        if from_files < count and len(data) == from_files * CQ_UNIT_SIZE:
            data += bytes(self._tail[: (count - from_files) * CQ_UNIT_SIZE])
        return data[: len(data) - len(data) % CQ_UNIT_SIZE]

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags_code), or None outside min_offset .. max_offset - 1."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        data = self.units(offset, 1)
        return CQ_UNIT.unpack(data) if data else None

    def first_offset_of_next_file(self, offset: int) -> int:
        return offset - offset % self.units_per_file + self.units_per_file

    def unflushed(self) -> tuple[int, bytes]:
        """(queue offset, units) that no file holds durably yet."""
        start = (self.flushed_offset - self._tail_from) * CQ_UNIT_SIZE
        return self.flushed_offset, bytes(self._tail[start:])

    def flushed(self, offset: int, keep_count: int) -> None:
        """Units below `offset` are in synced files now; of these the newest `keep_count` stay in memory."""
        self.flushed_offset = offset
        drop = offset - keep_count - self._tail_from
        if drop > 0:
            # CPython moves a bytearray's start instead of its bytes.
            del self._tail[: drop * CQ_UNIT_SIZE]
            self._tail_from += drop

    def restore(self, min_offset: int, max_offset: int) -> str | None:
        """Takes up what a checkpoint says is in the files. Returns what is wrong with them, or None.

        Whatever lies in the files behind `max_offset` came after the checkpoint: it is zeroed, and will be dispatched
        again; files before `min_offset` are what is left of a deletion. Raises DiskError and MappedFileQueueError.
        """
        self.files.delete_listed_before(min_offset * CQ_UNIT_SIZE)
        self.files.load(accept_short=True)
        self.min_offset, self.max_offset = min_offset, max_offset
        self.flushed_offset = self._tail_from = max_offset
        if fault := self._fault_of_files():
            return fault
        self._zero_behind(max_offset * CQ_UNIT_SIZE)
        return None

    def start_empty(self, offset: int) -> None:
        """A new queue that goes on where an earlier life of it ended, with no message left of that."""
        assert self.max_offset == 0, "only a new queue can start anywhere"
        self.min_offset = self.max_offset = self.flushed_offset = self._tail_from = offset

    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Moves min_offset over units that point before the log's first byte."""
        low, high = self.min_offset, self.max_offset
        first = self.unit(low)
        if first is None or first[0] >= min_phy_offset:
            return
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is None or unit[0] >= min_phy_offset:
                high = middle
            else:
                low = middle + 1
        self.min_offset = low

    @property
    def has_units(self) -> bool:
        """In files or in memory, whether they still point to something or not."""
        return bool(self.files.mapped_files or self.unflushed_count)

    def has_files_before(self, offset: int) -> bool:
        """Whether delete_files_before() would delete any."""
        files = self.files.mapped_files
        return len(files) > 1 and files[0].end_offset <= offset * CQ_UNIT_SIZE

    def delete_files_before(self, offset: int) -> None:
        """Deletes files that end there or before, but for the last: in it Java finds how far the queue has come."""
        if self.has_files_before(offset):
            last = self.files.mapped_files[-1].file_from_offset
            self.files.delete_before(min(offset * CQ_UNIT_SIZE, last))

    def let_go(self) -> None:
        """None of its messages is to be read any more. The next one's offset stays, and so do the files."""
        self.min_offset = self.max_offset

    def delete_files_if_empty(self) -> bool:
        """The last one, too: nothing may be left to be read, nor to be flushed."""
        if self.min_offset != self.max_offset or self.unflushed_count:
            return False
        self.files.delete_from(0)
        self._tail.clear()
        self._tail_from = self.max_offset
        return True

    def _begin_again(self) -> None:
        """A unit comes to a queue of which none was left."""
        offset = self.max_offset
        if not self._tail and self.files.find_mapped_file_by_offset(offset * CQ_UNIT_SIZE) is None:
            self._begin_at(offset)

    def _begin_at(self, queue_offset: int) -> None:
        """The first message of a queue whose earlier ones are gone: fillers lead up to it from its file's start."""
        first = queue_offset - queue_offset % self.units_per_file
        self._tail_from = self.flushed_offset = first
        self._tail += FILLER * (queue_offset - first)
        self.min_offset = self.max_offset = queue_offset

    def _fault_of_files(self) -> str | None:
        if self.min_offset == self.max_offset:
            return None
        first, end = self.min_offset * CQ_UNIT_SIZE, self.max_offset * CQ_UNIT_SIZE
        if not self.files.mapped_files or first < self.files.min_offset or end > self.files.end_offset:
            return (
                f"files hold bytes {self.files.min_offset} to {self.files.end_offset}, not {first} to {end}"
            )
        # A whole look would read gigabytes; what crashes and lost files do shows at the edges of files.
        edges: set[int] = {self.min_offset, self.max_offset - 1}
        for mapped_file in self.files.mapped_files:
            edges.add(mapped_file.file_from_offset // CQ_UNIT_SIZE)
            edges.add(mapped_file.end_offset // CQ_UNIT_SIZE - 1)
        return self._fault_of_units(sorted(edges))

    def _fault_of_units(self, offsets: Sequence[int]) -> str | None:
        before = -1
        for offset in offsets:
            unit = self.unit(offset)
            if unit is None:
                continue
            phy_offset, size, _ = unit
            if size <= 0 or phy_offset <= before:
                return f"unit {offset} says phy_offset {phy_offset}, size {size}, behind {before}"
            before = phy_offset
        return None

    def _zero_behind(self, offset: int) -> None:
        """Zeroes what is written from byte `offset` on, and deletes later files."""
        if not self.files.mapped_files:
            return
        last = self.files.find_mapped_file_by_offset(offset)
        self.files.delete_from(offset if last is None or last.file_from_offset == offset else last.end_offset)
        if last is None or last.file_from_offset == offset:
            return
        while offset < last.end_offset:
            size = min(len(_ZERO_CHUNK), last.end_offset - offset)
            if self.files.read(offset, size).count(0) == size:
                break  # what a torn flush left further behind is overwritten before max_offset comes there
            self.files.write(offset, memoryview(_ZERO_CHUNK)[:size])
            offset += size
