"""Logs written entry by entry, so that a test can say what no member would ever write.

Records are rolled-back messages: they leave nothing in ConsumeQueues or indexes, so such a store has nothing but a log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dledger.entry import BLANK_HEADER_SIZE, ENTRY_HEADER, GENESIS_CHAIN, blank, seal_entries
from message.const import UNIQ_CLIENT_MESSAGE_ID_KEYIDX
from message.encoder import encode_record
from message.properties import encode_properties
from message.sys_flag import TRANSACTION_ROLLBACK_TYPE

FILE_SIZE = 4096
_HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
_TIME_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Entry:
    """`text` makes the body; entries of one index and another text are another leader's."""

    index: int
    term: int
    text: str = "a"
    body: bytes = b""  # instead of one made of the text
    key: str = ""

    def record(self, pos: int) -> bytes:
        body = self.body or f"{self.text} {self.index} ".encode() * 12
        head = (0, 0, 0, pos + 48, TRANSACTION_ROLLBACK_TYPE, _TIME_MS, _HOST, _TIME_MS, _HOST, 0, 0)
        key = self.key or f"{self.text}{self.index}"
        return encode_record(b"T", *head, body, encode_properties({UNIQ_CLIENT_MESSAGE_ID_KEYIDX: key}))


def three_terms(count: int = 120) -> list[Entry]:
    """Indexes 0 .. count - 1, a third in each term."""
    return [Entry(index, 1 + 3 * index // count) for index in range(count)]


def write_log(root: Path, entries: Iterable[Entry], *, sealed: bool = True) -> Path:
    """A replica that holds these entries one behind the other, whatever their indexes; not `sealed`: as Java writes
    them. Returns `root`."""
    data = root / f"dledger-{root.name}" / "data"
    data.mkdir(parents=True)
    content = bytearray()
    chain = GENESIS_CHAIN
    for entry in entries:
        size = len(entry.record(0)) + 48
        left = FILE_SIZE - len(content) % FILE_SIZE
        if size + BLANK_HEADER_SIZE > left:
            content += blank(left)
        pos = len(content)
        body = entry.record(pos)
        if sealed:
            buffers, chain = seal_entries([body], [pos], entry.index, entry.term, 0, chain)
            content += b"".join(buffers)
        else:
            content += ENTRY_HEADER.pack(1, size, entry.index, entry.term, pos, 0, 0, 0, len(body)) + body
    content += bytes(-len(content) % FILE_SIZE)
    for start in range(0, len(content), FILE_SIZE):
        (data / f"{start:020d}").write_bytes(content[start : start + FILE_SIZE])
    return root


def write_group(directory: Path, *logs: Sequence[Entry], sealed: bool = True) -> list[Path]:
    """n0, n1, … with these logs."""
    return [
        write_log(directory / f"n{number}", entries, sealed=sealed) for number, entries in enumerate(logs)
    ]


def changed(entries: Sequence[Entry], first: int, last: int, **fields: object) -> list[Entry]:
    """Entries `first` .. `last` with other fields."""
    return [
        replace(entry, **fields) if first <= entry.index <= last else entry  # type: ignore[arg-type]
        for entry in entries
    ]
