"""A ConsumeQueue unit, 20 bytes: where a queue's message lies, how long it is, what its tags hash to."""

import struct
from collections.abc import Iterable
from typing import Final

CQ_UNIT: Final = struct.Struct(">qiq")  # phy_offset, size of the record in bytes, tags_code
CQ_UNIT_SIZE: Final = CQ_UNIT.size
CQ_FILE_UNITS: Final = 300_000  # of a file, unless the conf says otherwise

# What stands in front of the first message of a queue that does not begin at its file's start.
FILLER_SIZE: Final = 0x7FFFFFFF
FILLER: Final = CQ_UNIT.pack(0, FILLER_SIZE, 0)

Unit = tuple[int, int, int]


def pack_units(phy_offsets: Iterable[int], sizes: Iterable[int], tags_codes: Iterable[int]) -> bytes:
    """Units of one queue, one behind the other."""
    return b"".join(map(CQ_UNIT.pack, phy_offsets, sizes, tags_codes))


def parse_units(buffer: bytes | bytearray | memoryview) -> list[Unit]:
    """(phy_offset, size, tags_code) up to the first unit that was never written. Fillers are among them.

    `buffer` holds whole units.
    """
    units: list[Unit] = []
    for unit in CQ_UNIT.iter_unpack(buffer):
        if unit[1] == 0:
            break
        units.append(unit)
    return units


def parse_unit(buffer: bytes | bytearray | memoryview, offset: int = 0) -> Unit:
    """Raises struct.error when less than a unit is there."""
    phy_offset, size, tags_code = CQ_UNIT.unpack_from(buffer, offset)
    return phy_offset, size, tags_code


def is_filler(unit: Unit) -> bool:
    return unit == (0, FILLER_SIZE, 0)
