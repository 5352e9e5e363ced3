"""What a pull gets from the store, as values."""

from enum import Enum

import msgspec


class GetMessageStatus(Enum):
    """RocketMQ's names; a pull's answer carries them as its remark."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"  # said by the broker, of an offset that was reset by hand


class GetMessageResult(msgspec.Struct):
    """`buffers`: one record each, as it lies in the log; all empty unless FOUND."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    buffers: list[bytes]
    size: int = 0  # of all buffers, bytes
    count: int = 0  # of messages: a record may be a batch of them
    suggest_pulling_from_slave: bool = False  # what comes next is cold: any replica reads it as well
    filter_cost: int = 0  # in bytes of answers: the work of a filter that looked at records


class BoundaryType(Enum):
    """Which of several messages a time stands for."""

    LOWER = "lower"
    UPPER = "upper"
