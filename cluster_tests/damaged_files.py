"""The files of one member, to be looked at and damaged between its stop and its start: one bit here and there."""

import os
from dataclasses import dataclass
from pathlib import Path

from disk.slots import SLOT_SIZE, newest_payload
from dledger.entry import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, EntryHeader, walk
from dledger.log.synced_mark import SyncedMark, unpack_mark
from store.derived.checkpoint_file import unpack_checkpoint
from store.layout.consume_queue_unit import CQ_UNIT_SIZE


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of a data file, and where its header begins in that file."""

    path: Path
    offset: int
    header: EntryHeader


def flip_bit(path: Path, offset: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))
        file.flush()
        os.fsync(file.fileno())


class MemberFiles:
    """Of a store directory. What it is asked for must be there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self.ledger,) = directory.glob("dledger-*")

    # -- log ---------------------------------------------------------------------------------------------------

    @property
    def data_files(self) -> list[Path]:
        """Those that have an entry, oldest first."""
        return [path for path in sorted((self.ledger / "data").iterdir()) if _begins_used(path)]

    def data(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.data_files}

    def entries(self, path: Path) -> list[StoredEntry]:
        """Of one data file."""
        content = path.read_bytes()
        start = int(path.name)
        return [
            StoredEntry(path, header.pos - start, header) for header, _ in walk(memoryview(content), start)
        ]

    def blank_pos(self, path: Path) -> int:
        """Where the blank at the end of a full data file begins, in the log."""
        last = self.entries(path)[-1].header
        return last.pos + last.size

    def flip_in_body(self, entry: StoredEntry) -> None:
        flip_bit(entry.path, entry.offset + entry.header.size - entry.header.body_length // 2)

    def flip_in_header(self, entry: StoredEntry) -> None:
        """The lowest bit of its term."""
        flip_bit(entry.path, entry.offset + 23)

    def flip_in_blank(self, path: Path) -> None:
        flip_bit(path, path.stat().st_size - 1)

    def flip_in_unit(self, index: int) -> None:
        """The position of an entry in the index."""
        first, *_ = sorted((self.ledger / "index").iterdir())
        flip_bit(first, index * INDEX_UNIT_SIZE - int(first.name) + 11)

    # -- slots -------------------------------------------------------------------------------------------------

    def own(self, name: str) -> Path:
        return self.ledger / "pydledger" / name

    def flip_in_slot(self, name: str, slot: int) -> None:
        flip_bit(self.own(name), slot * SLOT_SIZE + 10)

    def synced_mark(self) -> SyncedMark:
        payload = newest_payload(self.own("synced-mark").read_bytes())
        assert payload is not None, f"{self.own('synced-mark')} is readable"
        return unpack_mark(payload)

    # -- derived files -----------------------------------------------------------------------------------------

    def checkpoints(self) -> list[Path]:
        """The newest last."""
        found = []
        for path in self.ledger.glob("pydledger/applied-state-*"):
            checkpoint = unpack_checkpoint(path.read_bytes())
            assert checkpoint is not None, f"{path} is readable"
            found.append((checkpoint.applied_index, path))
        return [path for _, path in sorted(found)]

    def flip_in_checkpoint(self, path: Path) -> None:
        flip_bit(path, path.stat().st_size // 2)

    def consume_queue(self, topic: str) -> Path:
        """The first file of one of its queues that has messages."""
        paths = sorted((self.directory / "consumequeue" / topic).glob("*/*"))
        return next(path for path in paths if any(path.read_bytes()[:CQ_UNIT_SIZE]))

    def flip_in_consume_queue(self, path: Path) -> None:
        """The sign of the size in the first unit."""
        flip_bit(path, 8, 7)

    def flip_in_tags_code(self, path: Path, number: int) -> None:
        """Of a unit, the last byte: whoever does not look at tags reads on as ever."""
        flip_bit(path, number * CQ_UNIT_SIZE + CQ_UNIT_SIZE - 1)

    def index_file(self) -> Path:
        """The newest."""
        return max((self.directory / "index").iterdir())

    def flip_in_index_file(self, path: Path) -> None:
        """The store time of its newest message, in the header."""
        flip_bit(path, 15)

    def config(self, name: str) -> Path:
        return self.directory / "config" / name

    def flip_in_config(self, path: Path) -> None:
        flip_bit(path, path.stat().st_size // 2, 7)


def _begins_used(data_file: Path) -> bool:
    with data_file.open("rb") as file:
        return any(file.read(ENTRY_HEADER_SIZE))
