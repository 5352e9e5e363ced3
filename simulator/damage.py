"""One place of a simulated disk that is not as it was."""

from dataclasses import dataclass

from dledger.entry import INDEX_UNIT_SIZE, Index, Pos
from simulator.disk import SimDisk


@dataclass(frozen=True, slots=True)
class Damage:
    disk: SimDisk
    path: str
    offset: int
    original: bytes

    @property
    def lasts(self) -> bool:
        """The file is there, and is not as it was."""
        content = self.disk.content(self.path)
        return content is not None and self._part(content) != self.original

    def undo(self, content: bytearray) -> None:
        """In `content` of the file."""
        content[self.offset : self.offset + len(self.original)] = self.original

    def is_before(self, begin_index: Index, begin_pos: Pos) -> bool:
        """It lies where the log begins only later: nobody reads there again, and the file may stay for what follows."""
        directory, _, name = self.path.rpartition("/")
        begin = begin_index * INDEX_UNIT_SIZE if directory.endswith("/index") else begin_pos
        return int(name) + self.offset + len(self.original) <= begin

    def _part(self, content: bytes) -> bytes:
        return content[self.offset : self.offset + len(self.original)]
