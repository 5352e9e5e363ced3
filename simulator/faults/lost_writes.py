"""Writes that a disk acknowledged and lost: sectors of data and index files are again as they were before a cut, with
entries that the group went on without.

Entries and their units are not both hit: where both are of the earlier history, nothing but the seam behind them tells.
Nor is an entry that was written twice with one unit, as by a leader that found no space when it wrote it first.
"""

from collections.abc import Iterator

from zlib_ng.zlib_ng import crc32

from dledger.entry import ENTRY_HEADER_SIZE, ENTRY_MAGIC, INDEX_UNIT_SIZE, parse_header
from simulator.faults.damage import Damage, as_it_was
from simulator.faults.damage_maker import DamageMaker
from simulator.faults.may_be_damaged import committed_mark
from simulator.world.disk_nodes import SECTOR_SIZE
from simulator.world.sim_member import SimMember

LOST_WRITE_KINDS = ("lost_write", "lost_unit_write")
_SECTOR_COUNTS = (1, 1, 4, 64)


class LostWrites(DamageMaker):
    def start(self) -> None:
        self._faults.recur(self._random, self._options.lost_write_interval_ms, self._one)

    def _one(self) -> None:
        member, kind = self._random.choice(self._members), self._random.choice(LOST_WRITE_KINDS)
        if self._faults.may_damage(member) and self._lose(member, kind):
            self._count(kind, member)

    def _lose(self, member: SimMember, kind: str) -> bool:
        mark = committed_mark(member, self._oracle)
        if mark is None:
            return False
        is_data = kind == "lost_write"
        if is_data:
            name, size = "data", self._options.data_file_size
            low, high = int(mark.begin_pos), int(mark.end_pos)
        else:
            name, size = "index", self._options.index_file_size
            low, high = (mark.before_begin_index + 1) * INDEX_UNIT_SIZE, (mark.index + 1) * INDEX_UNIT_SIZE
        if any(damage.is_of_index is is_data for damage in member.damages if damage.is_of(member.disk)):
            return False
        places = [
            (start, sector)
            for start in range(low - low % size, high, size)
            for sector in sorted(member.disk.former(_path(member, name, start)))
            if low < start + sector + SECTOR_SIZE and start + sector < high
        ]
        if not places:
            return False
        start, first = self._random.choice(places)
        path, count = _path(member, name, start), self._random.choice(_SECTOR_COUNTS)
        former = member.disk.former(path)
        offset, end = max(first, low - start), min(first, high - start)
        while count and end < high - start and end in former:
            end, count = min(end + SECTOR_SIZE, high - start), count - 1
        if any(damage.is_of(member.disk) and damage.is_at(path, offset, end) for damage in member.damages):
            return False
        data = b"".join(former[at] for at in range(first, end, SECTOR_SIZE))[offset - first : end - first]
        content = member.disk.durable(path)
        if content is None or content[offset:end] == data:
            return False
        sound = as_it_was(content, member.disk, path, member.damages)
        if is_data and _has_twins(sound, content[:offset] + data + content[end:]):
            return False
        if not member.disk.damage(path, offset, data):
            return False
        original = content[offset:end]
        member.damages.append(
            Damage(member.disk, path, offset, original, self._loop.now_us, is_lost_write=True)
        )
        return True


def _has_twins(content: bytes, other: bytes) -> bool:
    """Whether an entry of the data file `content` is another one in `other`, sound in itself, of which its unit tells
    the same.
    """
    for start, end in _entries(content):
        if content[start:end] != other[start:end]:
            header, twin = parse_header(content, start), parse_header(other, start)
            unit = header.magic, header.pos, header.size, header.index, header.term
            is_sound = crc32(other[start + ENTRY_HEADER_SIZE : end]) == twin.body_crc & 0xFFFFFFFF
            if is_sound and unit == (twin.magic, twin.pos, twin.size, twin.index, twin.term):
                return True
    return False


def _entries(content: bytes) -> Iterator[tuple[int, int]]:
    """Where each of them begins and ends, as far as there are any."""
    start = 0
    while start + ENTRY_HEADER_SIZE <= len(content):
        header = parse_header(content, start)
        if header.magic != ENTRY_MAGIC or header.size < ENTRY_HEADER_SIZE:
            return
        yield start, start + header.size
        start += header.size


def _path(member: SimMember, name: str, start: int) -> str:
    return f"{member.config.directory}/{name}/{start:020d}"
