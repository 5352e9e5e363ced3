"""Some entries behind a known one, read back and proved: for those who compare with a log what is derived from it.

Reads through descriptors of its own and touches nothing of the ledger in memory, so that it may run in any thread.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from disk.disk import Disk
from disk.mapped_file import DescriptorCache
from dledger.entry import (
    EntryCorruptError,
    Index,
    Pos,
    Term,
    VerifiedRange,
    index_units_of,
    parse_header,
)
from dledger.log.data_files import DataFiles
from dledger.log.entry_reader import EntryReader, SequentialReader, entry_alone
from dledger.log.index_files import count_before_other
from dledger.log.scrub_job import Place


class RangeRead(msgspec.Struct, frozen=True):
    """Neither a range nor a fault: the end of a file was passed."""

    verified: VerifiedRange | None
    behind: Place  # where to go on
    fault: str | None = None  # why what lies at the place is no sound entry


def read_range(
    disk: Disk,
    directory: str,
    data_files: type[DataFiles],
    file_size: int,
    place: Place,
    read: Callable[[DataFiles, Place], RangeRead],
) -> RangeRead:
    """What `read` finds behind `place`, in the one file that it lies in. Raises DiskError."""
    data = data_files(DescriptorCache(disk), directory, file_size, 0)
    data.queue.adopt(place.end_pos - place.end_pos % file_size)
    try:
        return read(data, place)
    finally:
        data.queue.close()


def next_entries(data: DataFiles, place: Place, size_max: int) -> RangeRead:
    """Where the place has no chain, the entry behind it is taken alone, at its word about what comes before it."""
    if place.chain is not None:
        reader = EntryReader(
            data, place.index, place.term, place.end_pos, place.chain, chunk_size=max(size_max, 1)
        )
        return next_range(reader, place)
    try:
        verified = entry_alone(data, place.end_pos, None)
    except EntryCorruptError as error:
        return RangeRead(None, place, str(error))
    if verified.first_index != place.index + 1:
        return RangeRead(None, place, f"entry {verified.first_index} lies at pos {place.end_pos}")
    behind = Place(verified.last_index, verified.last_term, verified.next_pos, verified.chain)
    return RangeRead(verified, behind)


def up_to_other_units(read: RangeRead, place: Place, units: bytes) -> RangeRead:
    """Without the first entry whose unit tells of another, and what is behind it: where a write was lost, entries of an
    earlier history may lie, which are sound in themselves.
    """
    verified = read.verified
    assert verified is not None, "units are those of entries"
    right = index_units_of(verified)
    if units == right or (count := count_before_other(units, right)) == verified.count:
        return read
    end = verified.offsets[count]
    if not count:
        pos = verified.first_pos
        return RangeRead(None, place, f"entry {verified.first_index} at pos {pos}: its unit tells of another")
    last = parse_header(verified.buffer, verified.offsets[count - 1])
    behind = Place(
        Index(verified.first_index + count - 1),
        Term(verified.terms[count - 1]),
        Pos(verified.first_pos + end),
        last.chain_crc,
    )
    part = replace(
        verified,
        count=count,
        last_index=behind.index,
        next_pos=behind.end_pos,
        last_term=behind.term,
        chain=last.chain_crc,
        offsets=verified.offsets[:count],
        terms=verified.terms[:count],
        kinds=verified.kinds[:count],
        buffer=memoryview(verified.buffer)[:end],
    )
    return RangeRead(part, behind)


def next_range(reader: SequentialReader, place: Place) -> RangeRead:
    """`reader` stands at `place`."""
    verified = next(reader.ranges(), None)
    if verified is not None:
        return RangeRead(verified, Place(reader.index, reader.term, reader.end_pos, reader.chain))
    if reader.blanks:
        return RangeRead(None, replace(place, end_pos=Pos(sum(reader.blanks[-1]))))
    return RangeRead(None, place, reader.stopped_by or f"no entry begins at pos {place.end_pos}")
