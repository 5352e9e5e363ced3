"""Units of one queue, of one size: what a ConsumeQueue and a BatchConsumeQueue have in common.

Units are appended in memory and get to the files by a flush job, in another thread: dispatching costs no system call.
A crash loses units that were not flushed; they are dispatched again from the log, which is where they come from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from disk.mapped_file import DescriptorCache
from disk.mapped_file_queue import MappedFileQueue
from message.record_layout import RECORD_SIZE_MIN
from store.dispatch_request import DispatchRequest
from store.layout.consume_queue_unit import FILLER_SIZE
from store.queues.unit_sums import UnitSums

_ZERO_CHUNK = bytes(64 * 1024)
# More than lie in a sector, in which what a disk loses is lost together.
_UNITS_THAT_PROVE = 256

Unit = tuple[int, int, int]  # phy_offset, size of the record in bytes, tags_code


class UnitQueue(ABC):
    """Invariant: units [tail_from, end_unit) are in memory, [first_unit, flushed_unit) are in synced files, the sums go
    up to unit sums.end, and tail_from <= flushed_unit <= sums.end <= end_unit. These are numbers of units, from the
    beginning of the queue's files; offsets are queue offsets.
    """

    is_batch: ClassVar[bool]
    unit_size: ClassVar[int]
    __slots__ = (
        "_tail",
        "_tail_from",
        "end_unit",
        "files",
        "first_unit",
        "flushed_unit",
        "queue_id",
        "sums",
        "topic",
        "units_per_file",
    )

    def __init__(
        self, descriptors: DescriptorCache, directory: str, file_size: int, topic: bytes, queue_id: int
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(descriptors, directory, file_size)
        self.units_per_file = file_size // self.unit_size
        self.sums = UnitSums(self.unit_size, self.units_per_file)
        self.first_unit = 0  # that counts: of a message which the log still has
        self.end_unit = 0
        self.flushed_unit = 0
        self._tail = bytearray()
        self._tail_from = 0

    # -- by queue offset ---------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def min_offset(self) -> int: ...

    @property
    @abstractmethod
    def max_offset(self) -> int: ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no message to be read: then a queue of the other kind may take its place."""
        return self.min_offset == self.max_offset

    @abstractmethod
    def put(self, request: DispatchRequest) -> int:
        """Appends its units. Returns how many were new: what is there is left alone."""

    @abstractmethod
    def units(self, offset: int, count: int) -> bytes:
        """Up to `count` units from that of the message at `offset` on; fewer at the end. Those that a file has
        lost lead to no record.
        """

    @abstractmethod
    def unit(self, offset: int) -> Unit | None:
        """That of the message at `offset`; None outside min_offset .. max_offset - 1."""

    @abstractmethod
    def parse(self, units: bytes, offset: int) -> Iterator[tuple[Unit, int, int]]:
        """What units() has given for `offset`, each with its first queue offset and the one behind it."""

    @abstractmethod
    def first_offset_of_next_file(self, offset: int) -> int: ...

    @abstractmethod
    def restore(self, min_offset: int, max_offset: int) -> str | None:
        """Takes up what a checkpoint says is in the files. Returns what is wrong with them, or None.

        Whatever lies in the files behind `max_offset` came after the checkpoint: it is zeroed, and will be dispatched
        again; files before `min_offset` are what is left of a deletion. Raises DiskError and MappedFileQueueError.
        """

    @abstractmethod
    def start_empty(self, offset: int) -> None:
        """A new queue that goes on where an earlier life of it ended, with no message left of that."""

    @abstractmethod
    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Moves min_offset over units that point before the log's first byte."""

    @abstractmethod
    def begin_with(self, number: int) -> None:
        """The messages of all units before this one are gone."""

    def let_go(self) -> None:
        """None of its messages is to be read any more. The next one's offset stays, and so do the files."""
        self.begin_with(self.end_unit)

    @abstractmethod
    def number_of(self, offset: int) -> int:
        """Of the unit that the message at `offset` has, or would have."""

    @abstractmethod
    def unit_at(self, number: int) -> tuple[int, Unit] | None:
        """With its first queue offset, whatever it says; None where no file holds it, or it does not count."""

    # -- by number of unit -------------------------------------------------------------------------------------

    @property
    def topic_name(self) -> str:
        return self.topic.decode("utf-8", "surrogateescape")

    @property
    def unflushed_count(self) -> int:
        return self.end_unit - self.flushed_unit

    def unflushed(self) -> tuple[int, bytes]:
        """(number of the first unit, units) that no file holds durably yet."""
        self.sum_up()
        return self.flushed_unit, self._tail_bytes(self.flushed_unit)

    def sum_up(self) -> None:
        """The sums are of all units then."""
        self.sums.add(self._tail_bytes(self.sums.end))

    def _tail_bytes(self, number: int) -> bytes:
        """The units from that on, which are in memory."""
        return bytes(self._tail[(number - self._tail_from) * self.unit_size :])

    def flushed(self, end: int, keep_count: int) -> None:
        """Units before number `end` are in synced files now; of these the newest `keep_count` stay in memory."""
        self.flushed_unit = end
        drop = end - keep_count - self._tail_from
        if drop > 0:
            # CPython moves a bytearray's start instead of its bytes.
            del self._tail[: drop * self.unit_size]
            self._tail_from += drop

    def part_of(self, request: DispatchRequest) -> DispatchRequest | None:
        """The request as this queue takes it, None if it is not for this queue."""
        if (request.topic, request.queue_id) != (self.topic, self.queue_id):
            return None
        if request.is_batch is self.is_batch:
            return request
        return request.as_batches() if self.is_batch else None

    @property
    def has_units(self) -> bool:
        """In files or in memory, whether they still point to something or not."""
        return bool(self.files.mapped_files or self.unflushed_count)

    def has_files_before(self, number: int) -> bool:
        """Whether delete_files_before() would delete any."""
        files = self.files.mapped_files
        return len(files) > 1 and files[0].end_offset <= number * self.unit_size

    def delete_files_before(self, number: int) -> None:
        """Deletes files that end there or before, but for the last: in it Java finds how far the queue has come."""
        if self.has_files_before(number):
            last = self.files.mapped_files[-1].file_from_offset
            self.files.delete_before(min(number * self.unit_size, last))

    def delete_files_if_empty(self) -> bool:
        """The last one, too: nothing may be left to be read, nor to be flushed."""
        if not self.is_empty or self.unflushed_count:
            return False
        self.files.delete_from(0)
        self._tail.clear()
        self._tail_from = self.end_unit
        return True

    def _read(self, number: int, count: int) -> bytes:
        """Up to `count` units from `number` on."""
        size = self.unit_size
        count = min(count, self.end_unit - number)
        if count <= 0:
            return b""
        start = (number - self._tail_from) * size
        if start >= 0:
            return bytes(self._tail[start : start + count * size])
        from_files = min(count, self._tail_from - number)
        data = self.files.read(number * size, from_files * size)
        if from_files < count and len(data) == from_files * size:
            data += bytes(self._tail[: (count - from_files) * size])
        return data[: len(data) - len(data) % size]

    def _first_at_or_behind(self, min_phy_offset: int) -> int:
        """The number of the first unit that does not point before `min_phy_offset`."""
        low, high = self.first_unit, self.end_unit
        first = self._unit_at(low)
        if first is None or first[0] >= min_phy_offset:
            return low
        while low < high:
            middle = (low + high) // 2
            unit = self._unit_at(middle)
            if unit is None or unit[0] >= min_phy_offset:
                high = middle
            else:
                low = middle + 1
        # A damaged unit may have led the search over messages that are there: then the queue stays as it is, until that
        # is mended or the log begins elsewhere.
        return low if self._are_before(min_phy_offset, low) else self.first_unit

    def _are_before(self, phy_offset: int, end: int) -> bool:
        """Whether the units in front of number `end` are sound, as far as they can tell, and say that their records lie
        before `phy_offset`: one behind the other, as the log has them. One alone says little: a block of zeros may end
        within its phy_offset.
        """
        first = max(self.first_unit, end - _UNITS_THAT_PROVE)
        units = self._read(first, end - first)
        behind = 0
        for (record_offset, size, _), _, _ in self.parse(units, first):
            if size == FILLER_SIZE:
                continue
            if size < RECORD_SIZE_MIN or record_offset < behind:
                return False
            behind = record_offset + size
        return behind <= phy_offset

    @abstractmethod
    def _unit_at(self, number: int) -> Unit | None: ...

    def _fault_of_files(self) -> str | None:
        if self.first_unit == self.end_unit:
            return None
        size = self.unit_size
        first, end = self.first_unit * size, self.end_unit * size
        if not self.files.mapped_files or first < self.files.min_offset or end > self.files.end_offset:
            return (
                f"files hold bytes {self.files.min_offset} to {self.files.end_offset}, not {first} to {end}"
            )
        # A whole look would read gigabytes; what crashes and lost files do shows at the edges of files.
        edges: set[int] = {self.first_unit, self.end_unit - 1}
        for mapped_file in self.files.mapped_files:
            edges.add(mapped_file.file_from_offset // size)
            edges.add(mapped_file.end_offset // size - 1)
        return self._fault_of_units(sorted(edges))

    def _fault_of_units(self, numbers: Sequence[int]) -> str | None:
        before = -1
        for number in numbers:
            unit = self._unit_at(number) if self.first_unit <= number < self.end_unit else None
            if unit is None:
                continue
            phy_offset, size, _ = unit
            if size <= 0 or phy_offset <= before:
                return f"unit {number} says phy_offset {phy_offset}, size {size}, behind {before}"
            before = phy_offset
        return None

    def _zero_behind(self) -> None:
        """Zeroes what is written from the last unit on, and deletes later files."""
        if not self.files.mapped_files:
            return
        offset = self.end_unit * self.unit_size
        last = self.files.find_mapped_file_by_offset(offset)
        self.files.delete_from(offset if last is None or last.file_from_offset == offset else last.end_offset)
        if last is None or last.file_from_offset == offset:
            return
        while offset < last.end_offset:
            size = min(len(_ZERO_CHUNK), last.end_offset - offset)
            written = len(self.files.read(offset, size).rstrip(b"\0"))
            if not written:
                break  # what a torn flush left further behind is overwritten before the queue's end comes there
            # Zeros behind it would take space, of which a member that starts on a full disk has none.
            self.files.write(offset, memoryview(_ZERO_CHUNK)[:written])
            offset += size
