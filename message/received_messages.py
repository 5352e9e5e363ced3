"""The records of an answer as consumers are to see them: inflated, and inner batches as their single messages.

What a message says of its body need not be true, for its sender may have set any flag. Such a body is handed over as
it was stored, its flag still set, with a warning: one message must not keep its readers from the next ones.
"""

from __future__ import annotations

import logging

from message.compression import decompress
from message.decoder import MessageExt, decode_messages
from message.errors import MessageError
from message.inner_batch import unwrapped
from message.sys_flag import COMPRESSED_FLAG, clear_compressed_flag

log = logging.getLogger(__name__)


def received_messages(records: bytes | memoryview, from_offset: int | None = 0) -> list[MessageExt]:
    """The messages at queue offset `from_offset` or later; None: the records, inner batches as such.

    Raises MessageDecodeError for bytes that are no records.
    """
    messages: list[MessageExt] = []
    untrue: dict[str, list[MessageExt]] = {}
    for message in decode_messages(records):
        try:
            if message.sys_flag & COMPRESSED_FLAG and message.body:
                message.body = decompress(message.body, message.sys_flag)
                message.sys_flag = clear_compressed_flag(message.sys_flag)
            messages += [message] if from_offset is None else unwrapped([message], from_offset)
        except MessageError as error:
            untrue.setdefault(str(error), []).append(message)
            messages.append(message)
    for reason, those in untrue.items():
        # One line for many: of a topic whose compression nobody here can read, each message is such a one.
        first = those[0]
        log.warning(
            "%d message%s handed over as stored topic=%s queue=%d from=%d reason=%s",
            *(len(those), "" if len(those) == 1 else "s", first.topic, first.queue_id, first.queue_offset),
            reason,
        )
    return messages
