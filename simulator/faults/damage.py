"""One place of a simulated disk that is not as it was."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dledger.entry import INDEX_UNIT_SIZE, Index, Pos
from simulator.world.sim_disk import SimDisk


@dataclass(frozen=True, slots=True)
class Damage:
    disk: SimDisk
    path: str
    offset: int
    original: bytes
    done_us: int
    is_lost_write: bool = False  # what shows is sound in itself

    @property
    def shows(self) -> bool:
        """The file is there, and what is read of it is not as it was."""
        return self._is_in(self.disk.content(self.path))

    @property
    def lasts(self) -> bool:
        """It shows, or a power loss would bring it back: what a repair has written is not on the medium yet. Or
        the file is not there yet in which it will show.
        """
        return self.shows or self.disk.is_lost(self.path) or self._is_in(self.disk.durable(self.path))

    @property
    def is_of_index(self) -> bool:
        return self.path.rpartition("/")[0].endswith("/index")

    @property
    def _start(self) -> int:
        """In the whole log, or the whole index."""
        return int(self.path.rpartition("/")[2]) + self.offset

    def is_of(self, disk: SimDisk) -> bool:
        """It is there, and on that disk."""
        return self.disk is disk and self.lasts

    def is_at(self, path: str, offset: int, end: int) -> bool:
        """It lies between, or in part."""
        return self.path == path and self.offset < end and offset < self.offset + len(self.original)

    def overlaps(self, other: "Damage") -> bool:
        return self.is_at(other.path, other.offset, other.offset + len(other.original))

    def changed_offsets(self, begin_index: Index, begin_pos: Pos) -> Iterator[int]:
        """Of bytes that are others, in the whole log or the whole index, not before where the log begins: nobody reads
        there again, and the file may stay for what follows.
        """
        part = self._part(self.disk.content(self.path) or b"")
        begin = begin_index * INDEX_UNIT_SIZE if self.is_of_index else begin_pos
        for at in range(max(0, begin - self._start), len(self.original)):
            if part[at : at + 1] != self.original[at : at + 1]:
                yield self._start + at

    def shows_behind(self, begin_index: Index, begin_pos: Pos) -> bool:
        return self.shows and any(True for _ in self.changed_offsets(begin_index, begin_pos))

    def _is_in(self, content: bytes | None) -> bool:
        return content is not None and self._part(content) != self.original

    def _part(self, content: bytes) -> bytes:
        return content[self.offset : self.offset + len(self.original)]


def as_it_was(content: bytes, disk: SimDisk, path: str, damages: Sequence[Damage]) -> bytes:
    """`content` of a file without what `damages` did to it, the oldest first."""
    sound = bytearray(content)
    for damage in reversed(damages):
        if damage.disk is disk and damage.path == path:
            sound[damage.offset : damage.offset + len(damage.original)] = damage.original
    return bytes(sound)
