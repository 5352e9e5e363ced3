"""The fixed part of a CommitLog record, from totalSize to the body's length.

Two bits of sysFlag say whether the two hosts in it are IPv6; so there are four forms. All lengths in bytes.
"""

import struct
from typing import Final

MESSAGE_MAGIC_V1: Final = 0xDAA320A7
MESSAGE_MAGIC_V2: Final = 0xDAA320AB  # the topic's length has two bytes instead of one
# In a plain CommitLog, after a size: the rest of the file is empty. (In DLedger's files blanks are entries' matter.)
BLANK_MAGIC: Final = 0xCBD43194
BLANK_HEADER: Final = struct.Struct(">iI")  # space left, magic
TOPIC_LENGTH_MAX_V1: Final = 127
TOPIC_LENGTH_MAX_V2: Final = 32767
PROPERTIES_LENGTH_SIZE: Final = 2


def _head(born_host: int, store_host: int) -> struct.Struct:
    return struct.Struct(
        ">i"  # totalSize
        "I"  # magic
        "i"  # bodyCRC
        "i"  # queueId
        "i"  # flag
        "q"  # queueOffset
        "q"  # physicalOffset
        "i"  # sysFlag
        "q"  # bornTimestamp
        f"{born_host}s"  # bornHost
        "q"  # storeTimestamp
        f"{store_host}s"  # storeHost
        "i"  # reconsumeTimes
        "q"  # preparedTransactionOffset
        "i"  # bodyLength
    )


# Index: (sysFlag & HOSTS_V6_MASK) >> HOSTS_V6_SHIFT.
RECORD_HEADS: Final = (_head(8, 8), _head(20, 8), _head(8, 20), _head(20, 20))
HOSTS_V6_MASK: Final = 0x30
HOSTS_V6_SHIFT: Final = 4
RECORD_HEAD_V4: Final = RECORD_HEADS[0]
QUEUE_OFFSET_AT: Final = 20
SYS_FLAG_AT: Final = 36
# Lengths of topic (V1) and properties behind an IPv4 head: what every record has at least.
RECORD_SIZE_MIN: Final = RECORD_HEAD_V4.size + 1 + 2
