"""Where a bit may flip in the files of a member that is down: one place in each kind of file that it has.

Only places of which somebody has another copy: entries that a majority holds, one slot of two that say the same.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from damaged_files import MemberFiles

from disk.slots import SLOT_SIZE, newest_payload
from dledger.entry import INDEX_UNIT, INDEX_UNIT_SIZE, IndexUnit
from store.layout.consume_queue_unit import CQ_UNIT_SIZE

SLOT_FILES: Final = ("quorum-state", "synced-mark", "begin-mark", "key-index-mark", "faulty-ranges")
SLOTS: Final = 2
# The last of what is in the mark may still be on its way to the others.
LAST_SPARED: Final = 50


@dataclass(frozen=True, slots=True)
class Place:
    """`said`: what in a line of the member's log is about it."""

    path: Path
    offset: int
    said: Callable[[str], bool]
    bit: int = 0


Find = Callable[[MemberFiles, random.Random], Place | None]


def body_of_an_entry(files: MemberFiles, dice: random.Random) -> Place | None:
    return _in_entry(files, dice, lambda unit: unit.size - 1)


def header_of_an_entry(files: MemberFiles, dice: random.Random) -> Place | None:
    return _in_entry(files, dice, lambda _: 23)  # the lowest byte of its term


def unit_of_the_index(files: MemberFiles, dice: random.Random) -> Place | None:
    found = _some_unit(files, dice)
    if found is None:
        return None
    path, offset, unit = found
    return Place(path, offset + 11, _range_is_said(r"index units rebuilt first=(\d+) last=(\d+)", unit.index))


def blank_of_a_full_file(files: MemberFiles, dice: random.Random) -> Place | None:
    full = files.data_files[:-1]  # each of them has one
    if not full:
        return None
    path = dice.choice(full)
    low, high = int(path.name), int(path.name) + path.stat().st_size
    return Place(
        path,
        path.stat().st_size - 1,
        lambda line: any(low <= int(pos) < high for pos in re.findall(r"blank rebuilt pos=(\d+)", line)),
    )


def slot_of(name: str) -> Find:
    def find(files: MemberFiles, dice: random.Random) -> Place | None:
        path = files.own(name)
        if not path.exists():
            return None
        content = path.read_bytes()
        spare = [
            slot
            for slot in range(SLOTS)
            if any(content[slot * SLOT_SIZE : (slot + 1) * SLOT_SIZE])
            and newest_payload(_without(content, slot)) == newest_payload(content)
        ]
        if not spare:
            return None
        slot = dice.choice(spare)
        return Place(path, slot * SLOT_SIZE + 10, lambda line: f"path={path} slot={slot}" in line)

    return find


def checkpoint(files: MemberFiles, dice: random.Random) -> Place | None:
    found = files.checkpoints()
    return _middle_of(found[-1]) if found else None


def unit_of_a_consume_queue(files: MemberFiles, dice: random.Random) -> Place | None:
    used = [path for path in sorted(files.directory.glob("consumequeue/*/*/*")) if _begins_used(path)]
    if not used:
        return None
    path = dice.choice(used)
    # The sign of the size in its first unit.
    return Place(path, 8, lambda line: str(path.parent) in line or "ConsumeQueues are damaged" in line, bit=7)


def index_file(files: MemberFiles, dice: random.Random) -> Place | None:
    paths = sorted(files.directory.glob("index/*"))
    # The store time of its newest message, in the header.
    return Place(paths[-1], 15, lambda line: str(paths[-1]) in line) if paths else None


def export(files: MemberFiles, dice: random.Random) -> Place | None:
    paths = sorted(files.directory.glob("config/*.json"))
    return _middle_of(dice.choice(paths), bit=7) if paths else None


KINDS: Final[dict[str, Find]] = {
    "body of an entry": body_of_an_entry,
    "header of an entry": header_of_an_entry,
    "unit of the index": unit_of_the_index,
    "blank": blank_of_a_full_file,
    **{f"slot of {name}": slot_of(name) for name in SLOT_FILES},
    "checkpoint": checkpoint,
    "unit of a ConsumeQueue": unit_of_a_consume_queue,
    "IndexFile": index_file,
    "export": export,
}

# What only other members have.
OF_THE_LOG: Final = frozenset({"body of an entry", "header of an entry"})


def _in_entry(files: MemberFiles, dice: random.Random, offset_in: Callable[[IndexUnit], int]) -> Place | None:
    found = _some_unit(files, dice)
    if found is None:
        return None
    _, _, unit = found
    path = _file_of(files.ledger / "data", unit.pos)
    said = _range_is_said(r"entries (\d+)\.\.(\d+)", unit.index)
    return Place(path, unit.pos - int(path.name) + offset_in(unit), said)


def _some_unit(files: MemberFiles, dice: random.Random) -> tuple[Path, int, IndexUnit] | None:
    """Of the index: the file, where in it, and what it says."""
    first_file, *_ = sorted((files.ledger / "index").iterdir())
    first = int(first_file.name) // INDEX_UNIT_SIZE
    last = files.synced_mark().index - LAST_SPARED
    for _ in range(100):  # the first file may begin below the log
        if last <= first:
            return None
        at = dice.randint(first, last) * INDEX_UNIT_SIZE
        path = _file_of(files.ledger / "index", at)
        with path.open("rb") as file:
            file.seek(at - int(path.name))
            unit = IndexUnit(*INDEX_UNIT.unpack(file.read(INDEX_UNIT_SIZE)))
        if unit.magic and unit.pos >= int(files.data_files[0].name):
            return path, at - int(path.name), unit
    return None


def _file_of(directory: Path, at: int) -> Path:
    """Files are named by where they begin."""
    return max(path for path in directory.iterdir() if int(path.name) <= at)


def _range_is_said(pattern: str, index: int) -> Callable[[str], bool]:
    return lambda line: any(int(first) <= index <= int(last) for first, last in re.findall(pattern, line))


def _without(content: bytes, slot: int) -> bytes:
    return content[: slot * SLOT_SIZE] + bytes(SLOT_SIZE) + content[(slot + 1) * SLOT_SIZE :]


def _middle_of(path: Path, bit: int = 0) -> Place:
    return Place(path, path.stat().st_size // 2, lambda line: str(path) in line, bit)


def _begins_used(path: Path) -> bool:
    with path.open("rb") as file:
        return any(file.read(CQ_UNIT_SIZE))
