"""One place of a simulated disk that is not as it was."""

from dataclasses import dataclass

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

    def _part(self, content: bytes) -> bytes:
        return content[self.offset : self.offset + len(self.original)]
