"""An inner batch unwrapped: several messages that lie in the log as one record."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from message.batch import decode_batch_body
from message.decoder import MessageExt
from message.properties import decode_properties
from message.sys_flag import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG

_FLAGS: Final = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG


def unwrapped(messages: Sequence[MessageExt], from_offset: int = 0) -> list[MessageExt]:
    """`messages` as consumers are to see them: those of inner batches one by one, from queue offset `from_offset` on.

    Where a batch lies is where each of its messages does. Raises MessageDecodeError.
    """
    found: list[MessageExt] = []
    for message in messages:
        if message.sys_flag & _FLAGS != _FLAGS:
            found.append(message)
            continue
        for queue_offset, (flag, body, properties) in enumerate(
            decode_batch_body(message.body), message.queue_offset
        ):
            if queue_offset >= from_offset:
                found.append(
                    replace(
                        message,
                        queue_offset=queue_offset,
                        flag=flag,
                        sys_flag=message.sys_flag & ~_FLAGS,
                        body=body,
                        properties=decode_properties(properties),
                    )
                )
    return found
