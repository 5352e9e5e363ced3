"""The bits of a message's sysFlag and of a pull request's sysFlag."""

from enum import IntEnum
from typing import Final

COMPRESSED_FLAG: Final = 0x1
MULTI_TAGS_FLAG: Final = 0x2
TRANSACTION_NOT_TYPE: Final = 0
TRANSACTION_PREPARED_TYPE: Final = 0x4
TRANSACTION_COMMIT_TYPE: Final = 0x8
TRANSACTION_ROLLBACK_TYPE: Final = 0xC  # also the mask of the three
BORNHOST_V6_FLAG: Final = 0x10
STOREHOSTADDRESS_V6_FLAG: Final = 0x20
NEED_UNWRAP_FLAG: Final = 0x40
INNER_BATCH_FLAG: Final = 0x80
COMPRESSION_TYPE_MASK: Final = 0x700

PULL_COMMIT_OFFSET: Final = 0x1
PULL_SUSPEND: Final = 0x2
PULL_SUBSCRIPTION: Final = 0x4
PULL_CLASS_FILTER: Final = 0x8
PULL_LITE: Final = 0x10


class CompressionType(IntEnum):
    """Values of bits 8-10."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression_type(sys_flag: int) -> CompressionType:
    """How a body with COMPRESSED_FLAG is compressed. Raises ValueError for a type that nobody has defined."""
    # Clients from before the type bits existed compress with ZLIB and leave them 0.
    return CompressionType((sys_flag & COMPRESSION_TYPE_MASK) >> 8 or CompressionType.ZLIB)


def compressed_by(compression: CompressionType) -> int:
    """The bits to set for a body compressed this way."""
    return COMPRESSED_FLAG | compression << 8


def clear_compressed_flag(sys_flag: int) -> int:
    return sys_flag & ~COMPRESSED_FLAG


def has_consume_queue_unit(sys_flag: int) -> bool:
    """Whether a message gets a ConsumeQueue unit: not the prepared and rolled back ones."""
    return sys_flag & TRANSACTION_PREPARED_TYPE == 0


def has_index_entry(sys_flag: int) -> bool:
    """Whether a message is found by its keys: not the rolled back ones."""
    return sys_flag & TRANSACTION_ROLLBACK_TYPE != TRANSACTION_ROLLBACK_TYPE


def pull_sys_flag(
    *, commit_offset: bool, suspend: bool, subscription: bool, class_filter: bool, lite_pull: bool = False
) -> int:
    return (
        (PULL_COMMIT_OFFSET if commit_offset else 0)
        | (PULL_SUSPEND if suspend else 0)
        | (PULL_SUBSCRIPTION if subscription else 0)
        | (PULL_CLASS_FILTER if class_filter else 0)
        | (PULL_LITE if lite_pull else 0)
    )
