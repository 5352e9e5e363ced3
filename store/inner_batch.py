"""An inner batch: messages of one send, stored as one record of a topic with queue.type=BatchCQ.

The record's body is the batch as it was sent; consumers unwrap it. It takes a queue offset for each message, and its
properties say how many they are and which is the first.
"""

from typing import Final

import msgspec

from message import const
from message.properties import find_property, join_properties
from message.sys_flag import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from store.layout.batch_unit import BATCH_COUNT_MAX
from store.put_message import PutMessage

_NUM: Final = const.INNER_NUM.encode()
_BASE_DIGITS: Final = 19
# Filled in when the queue offset is known, and by then nothing may change its length: hence the leading zeros, which
# Java's Long.parseLong() takes.
_BASE_UNKNOWN: Final = f"{const.INNER_BASE}\x01{0:0{_BASE_DIGITS}d}\x02".encode()


def inner_batch(message: PutMessage, count: int) -> PutMessage:
    """`message`, whose body holds `count` messages, as it is put."""
    more = f"{const.INNER_NUM}\x01{count}\x02".encode() + _BASE_UNKNOWN
    properties = join_properties(message.properties, more)
    sys_flag = message.sys_flag | INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
    return msgspec.structs.replace(message, properties=properties, sys_flag=sys_flag, message_count=count)


def properties_at(properties: bytes, queue_offset: int) -> bytes:
    """Those of inner_batch(), for a batch whose first message gets `queue_offset`."""
    return b"%s%0*d\x02" % (properties[: -_BASE_DIGITS - 1], _BASE_DIGITS, queue_offset)


def inner_count(sys_flag: int, properties: bytes) -> int:
    """Of how many messages a record is an inner batch; 0 if it is none."""
    if not sys_flag & INNER_BATCH_FLAG:
        return 0
    number = find_property(properties, _NUM) or b""
    # Without a number it comes from other hands, and nobody can say what is in it.
    count = int(number) if number.isdigit() and len(number) <= len(str(BATCH_COUNT_MAX)) else 0
    return count if count <= BATCH_COUNT_MAX else 0
