"""A log of one member as files, made with the entry codec; and what a test damages in it."""

from dataclasses import dataclass, field
from pathlib import Path

from dledger.entry import BLANK_HEADER_SIZE, EntryKind, blank, seal_entries
from message.encoder import encode_record
from message.message_id import pack_host
from message.properties import encode_properties

HOST = pack_host("127.0.0.1:10911")
BORN_MS = 1_700_000_000_000


@dataclass
class MadeLog:
    """`positions[i]` is where entry i begins in the log."""

    root: Path
    file_size: int
    positions: list[int] = field(default_factory=list)

    def path(self, pos: int) -> Path:
        base = pos // self.file_size * self.file_size
        return self.root / "dledger-n0" / "data" / f"{base:020d}"

    def write(self, pos: int, data: bytes) -> None:
        with self.path(pos).open("r+b") as file:
            file.seek(pos % self.file_size)
            file.write(data)

    def flip(self, pos: int) -> None:
        with self.path(pos).open("r+b") as file:
            file.seek(pos % self.file_size)
            byte = file.read(1)[0]
            file.seek(pos % self.file_size)
            file.write(bytes([byte ^ 1]))


def made_record(number: int, phy_offset: int, *, body: bytes | None = None, sys_flag: int = 0) -> bytes:
    return encode_record(
        b"Orders" if number % 3 else b"Payments",
        number % 4,
        0,
        number,
        phy_offset,
        sys_flag,
        BORN_MS + number,
        HOST,
        BORN_MS + 1 + number,
        HOST,
        0,
        0,
        b"body %d " % number * 20 if body is None else body,
        encode_properties({"UNIQ_KEY": f"{number:032X}", "TAGS": f"Tag{number % 2}", "KEYS": f"k{number}"}),
    )


def make_log(root: Path, count: int = 120, *, file_size: int = 16 * 1024, terms: int = 3) -> MadeLog:
    """`count` messages in about equally long terms, in as many data files as they need."""
    log = MadeLog(root, file_size)
    (root / "dledger-n0" / "data").mkdir(parents=True)
    chunks: dict[int, list[bytes]] = {}
    pos, chain = 0, 0
    for number in range(count):
        size = len(made_record(number, 0)) + 48
        left = file_size - pos % file_size
        if size + BLANK_HEADER_SIZE > left:
            chunks.setdefault(pos // file_size, []).append(blank(left))
            pos += left
        record = made_record(number, pos + 48)
        parts, chain = seal_entries(
            [record], [pos], number, 1 + number * terms // count, EntryKind.MESSAGE, chain
        )
        chunks.setdefault(pos // file_size, []).extend(parts)
        log.positions.append(pos)
        pos += size
    for number, parts in chunks.items():
        log.path(number * file_size).write_bytes(b"".join(parts).ljust(file_size, b"\0"))
    return log
