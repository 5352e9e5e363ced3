"""RocketMQ's config/timercheck: how far its timer wheel is."""

import struct
from typing import Final

TIMER_CHECK: Final = "timercheck"
TIMER_CHECK_POINT: Final = struct.Struct(
    ">q"  # lastReadTimeMs
    "q"  # lastTimerLogFlushPos
    "q"  # lastTimerQueueOffset
    "q"  # masterTimerQueueOffset
    "q"  # dataVersion: stateVersion
    "q"  # timestamp
    "q"  # counter
)
