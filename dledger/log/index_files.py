"""The index files: 32 bytes per entry that say where it lies. Derived from the data files and rebuilt from them."""

from collections.abc import Iterator

from disk.mapped_file import DescriptorCache, MappedFile
from disk.mapped_file_queue import MappedFileQueue
from disk.readable import read_what_there_is, write_over
from dledger.entry import ENTRY_MAGIC, INDEX_UNIT, INDEX_UNIT_SIZE, Index, IndexUnit
from dledger.log.errors import LedgerDamagedError
from dledger.log.jobs import zero_range


def count_before_other(found: bytes, right: bytes) -> int:
    """How many of the units `right` come before the first in whose place a unit of another entry with the same index
    was found. What is no unit tells of none.
    """
    units = zip(INDEX_UNIT.iter_unpack(right), INDEX_UNIT.iter_unpack(found[: _whole(found)]), strict=False)
    for number, (values, found_values) in enumerate(units):
        unit, other = IndexUnit(*values), IndexUnit(*found_values)
        if other != unit and (other.magic, other.index) == (unit.magic, unit.index):
            return number
    return len(right) // INDEX_UNIT_SIZE


def count_confirmed(found: bytes, units: bytes) -> int:
    """How many entries of a range there are up to the last that its unit tells of and that another one follows, where
    `units` are theirs and `found` what is in their place. Those in front of it are sound whatever their units tell.
    """
    for at in range(len(units) - 2 * INDEX_UNIT_SIZE, -1, -INDEX_UNIT_SIZE):
        if found[at : at + INDEX_UNIT_SIZE] == units[at : at + INDEX_UNIT_SIZE]:
            return at // INDEX_UNIT_SIZE + 1
    return 0


def _whole(units: bytes) -> int:
    return len(units) // INDEX_UNIT_SIZE * INDEX_UNIT_SIZE


class IndexFiles:
    """The unit of entry i lies at byte i x 32 of the queue."""

    def __init__(self, descriptors: DescriptorCache, directory: str, file_size: int) -> None:
        assert file_size % INDEX_UNIT_SIZE == 0, "a unit never crosses a file end"
        self.queue = MappedFileQueue(descriptors, directory, file_size)

    def write(self, first_index: int, units: bytes) -> list[MappedFile]:
        """Returns the files written to. Raises DiskError; some may have been written then."""
        offset = first_index * INDEX_UNIT_SIZE
        first = self.queue.find_mapped_file_by_offset(offset) or self.ensure_file(first_index)
        end = offset + len(units)
        if end <= first.end_offset:
            first.file().pwrite(units, offset - first.file_from_offset)
            return [first]
        self.ensure_file(end // INDEX_UNIT_SIZE - 1)
        self.queue.write(offset, units)
        return [f for f in self.queue.mapped_files if f.end_offset > offset and f.file_from_offset < end]

    def read(self, first_index: int, size: int) -> bytes:
        """Bytes from the unit of an entry on, for whoever proves them: what the disk does not give is no unit."""
        offset = first_index * INDEX_UNIT_SIZE
        end = min(offset + size, self.queue.end_offset)
        parts: list[bytes] = []
        while offset < end and (mapped_file := self.queue.find_mapped_file_by_offset(offset)) is not None:
            part_size = min(end, mapped_file.end_offset) - offset
            file = mapped_file.file()
            parts.append(read_what_there_is(file, part_size, offset - mapped_file.file_from_offset))
            offset += part_size
        return b"".join(parts)

    def correct(self, first_index: int, units: bytes) -> Iterator[MappedFile]:
        """As write(), over units that are not right, or cannot even be read; each file once it is written."""
        while units:
            mapped_file = self.ensure_file(first_index)
            offset = first_index * INDEX_UNIT_SIZE
            part = units[: mapped_file.end_offset - offset]
            write_over(mapped_file.file(), part, offset - mapped_file.file_from_offset)
            yield mapped_file
            units, first_index = units[len(part) :], first_index + len(part) // INDEX_UNIT_SIZE

    def unit(self, index: int) -> IndexUnit:
        """Raises LedgerDamagedError when there is no unit of this entry."""
        data = self.read(index, INDEX_UNIT_SIZE)
        if len(data) == INDEX_UNIT_SIZE:
            unit = IndexUnit(*INDEX_UNIT.unpack(data))
            if unit.magic == ENTRY_MAGIC and unit.index == index:
                return unit
        raise self.damaged(index)

    def units(self, first_index: int, last_index: int) -> list[IndexUnit]:
        """Units of both ends and all between. Raises LedgerDamagedError at the first that is not sound."""
        size = (last_index - first_index + 1) * INDEX_UNIT_SIZE
        data = self.read(first_index, size)
        units = [IndexUnit(*values) for values in INDEX_UNIT.iter_unpack(data[: len(data) // 32 * 32])]
        for index, unit in enumerate(units, first_index):
            if unit.magic != ENTRY_MAGIC or unit.index != index:
                raise self.damaged(index)
        if len(data) < size:
            raise self.damaged(first_index + len(units))
        return units

    def first_index_of_term(self, term: int, low: int, high: int) -> Index:
        """First index in [low, high] whose term is `term`; terms never fall, and the one at `high` is `term`."""
        while low < high:
            middle = (low + high) // 2
            if self.unit(middle).term < term:
                low = middle + 1
            else:
                high = middle
        return Index(high)

    def zero(self, first_index: int, last_index: int) -> None:
        """Clears the units of both ends and all between, where files exist."""
        start, end = first_index * INDEX_UNIT_SIZE, (last_index + 1) * INDEX_UNIT_SIZE
        for mapped_file in self.queue.mapped_files:
            from_offset = mapped_file.file_from_offset
            first, last = max(start, from_offset), min(end, mapped_file.end_offset)
            if first < last:
                zero_range(mapped_file.file(), first - from_offset, last - from_offset)

    def ensure_file(self, index: int) -> MappedFile:
        """The file that holds the entry's unit; made now, durably, if nobody has made it ahead."""
        offset = index * INDEX_UNIT_SIZE
        mapped_file = self.queue.find_mapped_file_by_offset(offset)
        while mapped_file is None:
            size = self.queue.mapped_file_size
            next_offset = self.queue.end_offset if self.queue.mapped_files else offset - offset % size
            self.queue.create_mapped_file(next_offset, durable=True)
            mapped_file = self.queue.find_mapped_file_by_offset(offset)
        return mapped_file

    def damaged(self, index: int) -> LedgerDamagedError:
        """To be raised where the unit of an entry is not sound."""
        offset = index * INDEX_UNIT_SIZE
        path = self.queue.path_of(offset - offset % self.queue.mapped_file_size)
        return LedgerDamagedError(
            f"{path}: no sound unit for entry {index} at byte {offset}. Stop the member and delete the file: "
            "it is rebuilt from the data files at the next start"
        )
