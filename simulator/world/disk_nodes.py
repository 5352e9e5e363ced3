"""What a simulated disk is made of: files and directories, as programs see them and as they are on the medium.

Between the two lie the changes that no sync has covered yet, in the order in which they were made. A process crash
keeps them (they are in the page cache), a power loss leaves of them what chance wrote back, down to single sectors.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Union

SECTOR_SIZE = 512


class Survival(Enum):
    """How a power loss treats what was not synced; drawn once per loss."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    CHANGES = "changes"  # each change whole or not at all, in any order
    SECTORS = "sectors"  # each sector by itself: torn writes
    PREFIX = "prefix"  # in order up to one of them, which is torn


class DeferredRun:
    """A blocking job whose code has run at once and whose effects come to pass in the course of virtual time.

    Its changes fall into stages: stage 0 happens when it starts, stage n when its n-th sync is done. Each sync takes
    its own time; a crash in between leaves the stages that had begun.
    """

    __slots__ = ("error", "latencies_us", "nodes", "stage", "stage_starts_us", "syncs")

    def __init__(self) -> None:
        self.stage = 0
        self.syncs: list[tuple[Node, int]] = []  # (what, covers changes with a lower number)
        self.latencies_us: list[int] = []
        self.stage_starts_us: list[int] = []
        self.nodes: set[int] = set()  # ids of the files it writes
        self.error: Exception | None = None

    def schedule(self, start_us: int) -> None:
        """The code has run; from here on it is known when each stage begins."""
        starts = [start_us]
        for latency_us in self.latencies_us:
            starts.append(starts[-1] + latency_us)
        self.stage_starts_us = starts

    @property
    def end_us(self) -> int:
        return self.stage_starts_us[-1]


@dataclass(slots=True)
class Change:
    """One write, truncation or change of a directory, not durable yet."""

    number: int  # in order of all changes of the disk
    run: DeferredRun | None
    stage: int

    def has_begun(self, now_us: int | None) -> bool:
        """None: at the end of time."""
        return self.run is None or now_us is None or self.run.stage_starts_us[self.stage] <= now_us


@dataclass(slots=True)
class Write(Change):
    offset: int
    data: bytes | None  # None: a truncation to `offset`

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            resize(content, self.offset)
        else:
            put(content, self.offset, self.data)

    def apply_torn(self, content: bytearray, random: Random) -> int:
        """Applies each sector or not. Returns how many bytes were left out."""
        if self.data is None:
            self.apply(content)
            return 0
        lost = 0
        offset, end = self.offset, self.offset + len(self.data)
        while offset < end:
            sector_end = min(end, offset - offset % SECTOR_SIZE + SECTOR_SIZE)
            if random.random() < 0.5:
                put(content, offset, self.data[offset - self.offset : sector_end - self.offset])
            else:
                lost += sector_end - offset
            offset = sector_end
        return lost


@dataclass(slots=True)
class Relink(Change):
    """Names that get another node, or none, in one step."""

    names: tuple[tuple[str, Union["Node", None]], ...]

    @property
    def unlinks(self) -> bool:
        """It takes names away and gives none."""
        return all(node is None for _, node in self.names)

    def apply(self, entries: dict[str, "Node"]) -> None:
        for name, node in self.names:
            if node is None:
                entries.pop(name, None)
            else:
                entries[name] = node


@dataclass(slots=True, eq=False)
class FileNode:
    content: bytearray = field(default_factory=bytearray)  # as read
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)
    # Read back although a failed write-back dropped them: the page cache calls them clean.
    unwritten: list[Write] = field(default_factory=list)
    allocated: int = 0  # bytes that the disk has space for in any case
    # By sector: what was durable before other bytes were. None: it is not kept.
    former: dict[int, bytes] | None = None

    def sync(self, number: int, began_us: int | None) -> None:
        """Makes changes before `number` durable, those that had begun when the sync did."""
        kept = []
        for write in self.pending:
            if write.number < number and write.has_begun(began_us):
                if self.former is not None and write.data is not None:
                    self._keep_former(self.former, write.offset, write.data)
                write.apply(self.durable)
            else:
                kept.append(write)
        self.pending = kept

    def _keep_former(self, former: dict[int, bytes], offset: int, data: bytes) -> None:
        """Of sectors in which bytes that are not zeros become others."""
        end = min(offset + len(data), len(self.durable))
        for sector in range(offset - offset % SECTOR_SIZE, end, SECTOR_SIZE):
            start, stop = max(sector, offset), min(sector + SECTOR_SIZE, end)
            old = self.durable[start:stop]
            if any(old) and old != data[start - offset : stop - offset]:
                former[sector] = bytes(self.durable[sector : sector + SECTOR_SIZE])

    def fail_sync(self, from_number: int) -> None:
        """The pages of changes from `from_number` on count as clean from now on. A length is the journal's, which does
        not forget it.
        """
        kept: list[Write] = []
        for write in self.pending:
            (kept if write.number < from_number or write.data is None else self.unwritten).append(write)
        self.pending = kept

    def unwritten_offsets(self) -> Iterator[int]:
        """Where a failed sync has left other bytes on the medium than are read."""
        for write in self.unwritten:
            assert write.data is not None, "fail_sync() leaves lengths out"
            start, end = write.offset, min(write.offset + len(write.data), len(self.content))
            read, kept = self.content[start:end], self.durable[start:end]
            if read != kept:
                kept += bytes(len(read) - len(kept))
                yield from (start + at for at, byte in enumerate(read) if byte != kept[at])

    def forget_unbegun(self, now_us: int) -> None:
        """A crash: what a job had not come to was never written."""
        begun = [write for write in self.pending if write.has_begun(now_us)]
        if len(begun) < len(self.pending):
            self.pending = begun
            self.content = bytearray(self.durable)
            for write in sorted(begun + self.unwritten, key=lambda write: write.number):
                write.apply(self.content)

    def lose_power(self, survival: Survival, random: Random) -> int:
        """Returns how many bytes were lost."""
        pending = self.pending
        lost = sum(len(write.data) for write in self.unwritten if write.data is not None)
        torn_at = random.randrange(len(pending)) if survival is Survival.PREFIX and pending else -1
        for number, write in enumerate(pending):
            size = len(write.data) if write.data is not None else 0
            match survival:
                case Survival.NOTHING:
                    lost += size
                case Survival.EVERYTHING:
                    write.apply(self.durable)
                case Survival.CHANGES:
                    if random.random() < 0.5:
                        write.apply(self.durable)
                    else:
                        lost += size
                case Survival.SECTORS:
                    lost += write.apply_torn(self.durable, random)
                case Survival.PREFIX:
                    if number < torn_at:
                        write.apply(self.durable)
                    elif number == torn_at:
                        lost += write.apply_torn(self.durable, random)
                    else:
                        lost += size
        self.pending = []
        self.unwritten = []
        self.content = bytearray(self.durable)
        return lost


@dataclass(slots=True, eq=False)
class DirectoryNode:
    entries: dict[str, "Node"] = field(default_factory=dict)
    durable: dict[str, "Node"] = field(default_factory=dict)
    pending: list[Relink] = field(default_factory=list)

    def sync(self, number: int, began_us: int) -> None:
        self._sync(lambda relink: relink.number < number and relink.has_begun(began_us))

    def sync_at_once(self, now_us: int) -> None:
        """In the member's own thread. It may have found a file that a job was still to make: that one counts as made.
        What a job was still to unlink is not gone for that: the sync before it has not come back.
        """
        self._sync(lambda relink: not relink.unlinks or relink.has_begun(now_us))

    def _sync(self, is_covered: Callable[[Relink], bool]) -> None:
        kept = []
        for relink in self.pending:
            if is_covered(relink):
                relink.apply(self.durable)
            else:
                kept.append(relink)
        self.pending = kept

    def forget_unbegun(self, now_us: int) -> None:
        begun = [relink for relink in self.pending if relink.has_begun(now_us)]
        if len(begun) < len(self.pending):
            self.pending = begun
            self.entries = dict(self.durable)
            for relink in begun:
                relink.apply(self.entries)

    def lose_power(self, survival: Survival, random: Random) -> int:
        """Returns how many changes were lost."""
        pending = self.pending
        if survival is Survival.EVERYTHING:
            kept = pending
        elif survival is Survival.NOTHING:
            kept = []
        elif survival is Survival.PREFIX:
            kept = pending[: random.randrange(len(pending) + 1)]
        else:
            kept = [relink for relink in pending if random.random() < 0.5]
        for relink in kept:
            relink.apply(self.durable)
        self.pending = []
        self.entries = dict(self.durable)
        return len(pending) - len(kept)


Node = FileNode | DirectoryNode


def put(content: bytearray, offset: int, data: bytes) -> None:
    end = offset + len(data)
    if end > len(content):
        content.extend(bytes(end - len(content)))
    content[offset:end] = data


def resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
