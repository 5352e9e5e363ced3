"""How large a message may be: what a frame carries to a client and back, and an entry of the log holds."""

from __future__ import annotations

from typing import Final

from dledger.entry import ENTRY_HEADER_SIZE, entry_size_max
from message.encoder import record_size
from message.names import RETRY_TOPIC_MAX_LENGTH
from message.properties import PROPERTIES_LENGTH_MAX
from remoting.frame.connection import FRAME_SIZE_MAX

# Of an answer to a pull, in bytes: headers of frames have the rest.
ANSWER_SIZE_MAX: Final = FRAME_SIZE_MAX - 32 * 1024
# Of a body. RocketMQ sets 64 KiB aside for all of a record that is no body.
BODY_SIZE_MAX: Final = FRAME_SIZE_MAX - 64 * 1024
# Of a record, but for its body: a message may get a longer topic and more properties when it is tried again.
_RECORD_ROOM: Final = record_size(
    RETRY_TOPIC_MAX_LENGTH, PROPERTIES_LENGTH_MAX, 0, v2=True, born_v6=True, store_v6=True
)


def body_size_max(data_file_size: int) -> int:
    """The largest `maxMessageSize` that can be honoured with data files of this size."""
    return min(BODY_SIZE_MAX, entry_size_max(data_file_size) - ENTRY_HEADER_SIZE - _RECORD_ROOM)
