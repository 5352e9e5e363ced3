"""Which entries are known to be damaged on this disk: found by recovery, by reads and by the scrub, ended by repair.

The set is durable, so that a member that restarts knows what it must neither cut nor give away. It is no truth that
anything else hangs on: when it is lost, whoever reads the entries finds them again.
"""

import struct
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from disk.disk import Disk
from disk.slots import PAYLOAD_SIZE_MAX, read_or_drop_slots
from dledger.entry import Index, Pos

FAULTY_RANGES_FILE_NAME = "faulty-ranges"

_RANGE = struct.Struct(">qqqq")
# What a slot holds. Beyond it the two ranges next to each other become one, with what is sound between them.
RANGES_MAX = PAYLOAD_SIZE_MAX // _RANGE.size


class FaultyRange(msgspec.Struct, frozen=True):
    """Entries of which at least the first is not sound. The one in front and the one behind are, as far as known."""

    first_index: Index
    last_index: Index
    pos: Pos  # where the first entry lies, or the blank in front of it
    next_pos: (
        Pos  # where the entry behind the last one lies, in the next data file perhaps; the end of the log
    )

    @property
    def size(self) -> int:
        """Bytes, with the blank if a file ends within."""
        return self.next_pos - self.pos

    def __str__(self) -> str:
        return f"entries {self.first_index}..{self.last_index} at pos {self.pos}"


class FaultyRanges:
    """Invariant: the ranges ascend, and between two of them lies at least one entry."""

    def __init__(self, ranges: tuple[FaultyRange, ...] = ()) -> None:
        self._ranges = ranges

    def __iter__(self) -> Iterator[FaultyRange]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    @property
    def ranges(self) -> tuple[FaultyRange, ...]:
        """As they are now; nobody changes the tuple."""
        return self._ranges

    @property
    def size(self) -> int:
        """Bytes in all ranges."""
        return sum(faulty.size for faulty in self._ranges)

    def first_within(self, first_index: int, last_index: int) -> FaultyRange | None:
        """The first range that has an entry of first_index .. last_index."""
        for faulty in self._ranges:
            if faulty.last_index >= first_index:
                return faulty if faulty.first_index <= last_index else None
        return None

    def add(self, new: FaultyRange) -> None:
        """Takes in a range; what overlaps or touches it becomes one with it."""
        before: list[FaultyRange] = []
        behind: list[FaultyRange] = []
        for faulty in self._ranges:
            if faulty.last_index < new.first_index - 1:
                before.append(faulty)
            elif faulty.first_index > new.last_index + 1:
                behind.append(faulty)
            else:
                new = _joined(faulty, new)
        ranges = [*before, new, *behind]
        while len(ranges) > RANGES_MAX:
            number = min(range(1, len(ranges)), key=lambda n: ranges[n].pos - ranges[n - 1].next_pos)
            ranges[number - 1 : number + 1] = [_joined(ranges[number - 1], ranges[number])]
        self._ranges = tuple(ranges)

    def remove(self, repaired: FaultyRange) -> None:
        """Entries of `repaired` are sound. A range that was found or grew meanwhile stays as it is."""
        self._ranges = tuple(faulty for faulty in self._ranges if faulty != repaired)

    def keep_within(self, begin_index: Index, begin_pos: Pos, end_index: Index, end_pos: Pos) -> None:
        """Entries outside begin .. end are gone from the log, which begins at `begin_pos` and ends at `end_pos`."""
        kept: list[FaultyRange] = []
        for faulty in self._ranges:
            if faulty.last_index < begin_index or faulty.first_index > end_index:
                continue
            if faulty.first_index < begin_index or faulty.pos < begin_pos:
                faulty = replace(faulty, first_index=max(faulty.first_index, begin_index), pos=begin_pos)
            if faulty.last_index > end_index:
                faulty = replace(faulty, last_index=end_index, next_pos=end_pos)
            kept.append(faulty)
        self._ranges = tuple(kept)


def _joined(one: FaultyRange, other: FaultyRange) -> FaultyRange:
    # A blank in front of the first entry is damaged as well where one of two begins with that.
    first = min(one, other, key=lambda faulty: (faulty.first_index, faulty.pos))
    last = max(one, other, key=lambda faulty: faulty.last_index)
    return FaultyRange(first.first_index, last.last_index, first.pos, last.next_pos)


class FaultyRangesFile:
    """Two slots on disk, there only once something was found. Written by one job at a time."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """A file that cannot be read is as good as none, with a warning."""
        self.path = f"{directory}/{FAULTY_RANGES_FILE_NAME}"
        self._slots, _ = read_or_drop_slots(
            disk, self.path, "known damage forgotten, reads and scrub will find it again"
        )
        payload = self._slots.payload or b""
        self.ranges = tuple(
            FaultyRange(Index(first), Index(last), Pos(pos), Pos(next_pos))
            for first, last, pos, next_pos in _RANGE.iter_unpack(payload)
        )

    @property
    def was_damaged(self) -> bool:
        """When it was read, one of the slots was."""
        return self._slots.was_damaged

    def write(self, ranges: tuple[FaultyRange, ...]) -> None:
        """Blocks on a sync. Raises DiskError."""
        fields = ((f.first_index, f.last_index, f.pos, f.next_pos) for f in ranges)
        self._slots.write(b"".join(_RANGE.pack(*values) for values in fields))
        self.ranges = ranges

    def close(self) -> None:
        self._slots.close()
