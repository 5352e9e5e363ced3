"""The store's checkpoint file: up to which times and offsets its files were on disk."""

import struct
from typing import Final

import msgspec

CHECKPOINT_SIZE: Final = 4096
_VALUES: Final = struct.Struct(">qqqqqq")


class StoreCheckpoint(msgspec.Struct, frozen=True):
    """Timestamps are store times in ms. The last two values were left 0 by older versions."""

    physic_msg_timestamp: int = 0  # CommitLog
    logics_msg_timestamp: int = 0  # ConsumeQueues
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0  # since 5.5

    @property
    def min_timestamp(self) -> int:
        """Files that begin no later than this need no look in a recovery after a crash."""
        return max(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - 3000, 0)

    def pack(self) -> bytes:
        """The whole file."""
        values = _VALUES.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
            self.logics_physical_offset,
        )
        return values.ljust(CHECKPOINT_SIZE, b"\0")


def parse_checkpoint(buffer: bytes | bytearray | memoryview) -> StoreCheckpoint:
    """Raises struct.error for a file that is too short to be one."""
    return StoreCheckpoint(*_VALUES.unpack_from(buffer))
