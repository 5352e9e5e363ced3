"""RocketMQ's timer files: timerwheel has a slot for each second, timerlog a unit for each message.

The units of a slot are a chain: each says where the one before it is, and the slot where the last one is.
"""

import struct
from typing import Final

TIMER_WHEEL: Final = "timerwheel"
TIMER_LOG: Final = "timerlog"
WHEEL_SLOTS: Final = 7 * 86_400
# RocketMQ rolls what is due later than this, whatever timerRollWindowSlot says.
ROLL_WINDOW_SLOTS_MAX: Final = WHEEL_SLOTS - 60
_SLOTS: Final = 2 * WHEEL_SLOTS
SLOT: Final = struct.Struct(
    ">q"  # its time / precision
    "q"  # where its first unit begins in the timerlog
    "q"  # the last unit
    "i"  # how many messages, less those that are recalls
    "i"  # magic, 0
)
WHEEL_SIZE: Final = _SLOTS * SLOT.size
UNIT: Final = struct.Struct(
    ">i"  # its size
    "q"  # where the unit before it in its slot begins; -1: none
    "i"  # magic: see below
    "q"  # when it was put there, ms
    "i"  # from then to the time of its slot, ms
    "q"  # physical offset of the message
    "i"  # its size
    "i"  # Java's hash of its real topic
    "q"  # 0
)
MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4
NO_UNIT: Final = -1
FILE_END: Final = struct.Struct(
    ">i"  # how much space is left in the file
    "q"  # 0
    "i"  # BLANK_MAGIC
)
BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)


def slot_position(time_ms: int, precision_ms: int) -> int:
    """Where a slot lies in the wheel."""
    return time_ms // precision_ms % _SLOTS * SLOT.size
