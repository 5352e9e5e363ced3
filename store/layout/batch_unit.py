"""A unit of a BatchConsumeQueue, 46 bytes: where a batch that is stored as one record lies, and which queue offsets its
messages have.
"""

import struct
from typing import Final

BATCH_UNIT: Final = struct.Struct(
    ">q"  # phy_offset
    "i"  # size of the record in bytes
    "q"  # tags_code
    "q"  # store_timestamp, ms
    "q"  # queue offset of the first message
    "h"  # number of messages
    "i"  # compacted offset, of compacted topics alone
    "i"  # reserved
)
BATCH_UNIT_SIZE: Final = BATCH_UNIT.size
BATCH_FILE_UNITS: Final = 300_000  # of a file, unless the conf says otherwise
BATCH_COUNT_MAX: Final = 0x7FFF  # messages of one batch

_NOT_COMPACTED: Final = -1


def pack_batch_unit(
    phy_offset: int, size: int, tags_code: int, store_timestamp: int, base_offset: int, count: int
) -> bytes:
    return BATCH_UNIT.pack(
        phy_offset, size, tags_code, store_timestamp, base_offset, count, _NOT_COMPACTED, 0
    )
