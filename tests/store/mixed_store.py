"""Stores of a DLedger group that a plain CommitLog precedes: of the recorded plain store and the recorded group, whose
entries are moved behind it. Java's broker leaves such stores when a plain one becomes a group's member.
"""

import gzip
import json
import shutil
from pathlib import Path

from golden_store import DLEDGER_STORE, GOLDEN, NODES, expected, unpack_store

from dledger.entry import walk
from message.decoder import decode_message
from message.sys_flag import TRANSACTION_PREPARED_TYPE

PLAIN_STORE = "single-5.5.0-clean"
FILE_SIZE = 1 << 20
BEGIN_POS = 3 * FILE_SIZE  # of the first entry
_ENTRY_POS_AT = 24
_ENTRY_BODY_AT = 48
_QUEUE_OFFSET_AT = 20
_PHY_OFFSET_AT = 28

Units = dict[tuple[str, int], list[tuple[int, int, int]]]


def units_before() -> Units:
    """Of the plain part, as the real broker says."""
    lines = expected(PLAIN_STORE)["consumequeue"]
    return {(line["topic"], line["queueId"]): [tuple(unit[1:]) for unit in line["units"]] for line in lines}


def units_of_both() -> Units:
    path = GOLDEN / "store" / f"{DLEDGER_STORE}.broker-view.expected.jsonl.gz"
    units = units_before()
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if line["type"] == "consumequeue":
                of_queue = units.setdefault((line["topic"], line["queueId"]), [])
                of_queue += [(pos + BEGIN_POS, size, code) for _, pos, size, code in line["units"]]
    return units


def make_mixed_stores(directory: Path) -> Path:
    """The stores of three members, without their index files. Returns the directory that they are in."""
    left_out = ["/index/", "/consumequeue/"]
    wanted = [f"/{name}/" for name in ("config", "data")]
    root = unpack_store(
        DLEDGER_STORE,
        directory,
        lambda path: (
            not any(part in path for part in left_out)
            and (any(part in path for part in wanted) or "/dledger-" in path)
        ),
    )
    plain = unpack_store(PLAIN_STORE, directory, lambda path: "/commitlog/" in path) / "commitlog"
    _end_with_a_blank(plain)
    counts = {key: len(units) for key, units in units_before().items()}
    for node in NODES:
        data = root / node / f"dledger-{node}/data"
        for path in sorted(data.iterdir(), reverse=True):
            path.write_bytes(_moved(path.read_bytes(), int(path.name), counts))
            path.rename(data / f"{int(path.name) + BEGIN_POS:020d}")
        shutil.copytree(plain, root / node / "commitlog")
    shutil.rmtree(plain.parent)
    return root


def _end_with_a_blank(plain: Path) -> None:
    last = max(plain.iterdir())
    end = max(line["commitLogOffset"] + line["storeSize"] for line in expected(PLAIN_STORE)["msg"])
    assert int(last.name) < end < BEGIN_POS == int(last.name) + FILE_SIZE
    with last.open("r+b") as file:
        file.seek(end - int(last.name))
        file.write((BEGIN_POS - end).to_bytes(4, "big") + 0xCBD43194.to_bytes(4, "big"))


def _moved(content: bytes, file_pos: int, counts: dict[tuple[str, int], int]) -> bytes:
    """A data file of Java's, whose CRCs are 0, as it would be behind the plain log."""
    moved = bytearray(content)

    def add(at: int, count: int) -> None:
        moved[at : at + 8] = (int.from_bytes(moved[at : at + 8], "big") + count).to_bytes(8, "big")

    for header, body in walk(content, file_pos):
        start = header.pos - file_pos
        add(start + _ENTRY_POS_AT, BEGIN_POS)
        add(start + _ENTRY_BODY_AT + _PHY_OFFSET_AT, BEGIN_POS)
        record = decode_message(body)
        if not record.sys_flag & TRANSACTION_PREPARED_TYPE:
            add(start + _ENTRY_BODY_AT + _QUEUE_OFFSET_AT, counts.get((record.topic, record.queue_id), 0))
    return bytes(moved)
