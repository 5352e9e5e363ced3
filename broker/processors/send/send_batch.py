"""What is put of a batch send (SEND_BATCH_MESSAGE, 320): a record for each of its messages, or one for all of them
where the topic has queue.type=BatchCQ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from broker.topics.topic_config_manager import TopicEntry
from message.batch import decode_batch_body
from message.errors import MessageDecodeError
from message.properties import delete_property, find_property
from message.sys_flag import COMPRESSED_FLAG, INNER_BATCH_FLAG
from message.tags import tags_code_of_bytes
from remoting.codes import ResponseCode
from remoting.frame.command import RemotingCommand
from store.inner_batch import inner_batch
from store.layout.batch_unit import BATCH_COUNT_MAX
from store.put_message import PutMessage

# Of a client's system flags only compression and multi tags are its own to set: the bits of transactions and hosts say
# how a record is laid out or dispatched. That of inner batches the store refuses.
CLIENT_SYS_FLAGS = 0x703 | INNER_BATCH_FLAG
# A batch of the largest size, of messages of 100 bytes, has fewer. Beyond that it is ever smaller messages, at 10 us
# of all three members each: 170,000 in one request kept a leader silent until its followers elected another.
BATCH_MESSAGES_MAX = 32_768
NOT_FOR_BATCHES = "batch request does not support this topic"


class SendRefused(Exception):
    """One request is not stored; the others of its read are."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


def illegal(max_message_size: int) -> str:
    """RocketMQ's words for a message that is empty or too long."""
    return (
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
        f"{max_message_size}B, msg properties length limit 32KB."
    )


def batch_of(
    command: RemotingCommand,
    fields: Mapping[str, str],
    entry: TopicEntry,
    queue_id: int,
    born_host: bytes,
    born_flag: int,
    max_message_size: int,
) -> list[PutMessage]:
    """Returns each message of a batch as one of its own, without a handle of an earlier pop. Raises SendRefused."""
    if len(entry.topic_bytes) > 127:
        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, NOT_FOR_BATCHES)
    if len(command.body) > max_message_size:
        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, illegal(max_message_size))
    try:
        messages = decode_batch_body(command.body)
    except MessageDecodeError as error:
        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be read: {error}") from None
    if not messages:
        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, illegal(max_message_size))
    if len(messages) > BATCH_MESSAGES_MAX:
        raise SendRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"batch of {len(messages)} messages: {BATCH_MESSAGES_MAX} are allowed",
        )
    sys_flag = int(fields["f"]) & CLIENT_SYS_FLAGS | born_flag
    born_timestamp = int(fields["g"])
    return [
        PutMessage(
            entry.topic_bytes,
            queue_id,
            body,
            delete_property(properties, b"POP_CK"),
            tags_code_of_bytes(find_property(properties, b"TAGS") or b""),
            born_timestamp,
            born_host,
            flag,
            sys_flag,
        )
        for flag, body, properties in messages
    ]


def inner_batch_of(
    batch: Sequence[PutMessage],
    command: RemotingCommand,
    fields: Mapping[str, str],
    properties: bytes,
    code_of_tags: int,
) -> PutMessage:
    """`batch`, which is not empty, as one record with the `properties` of its request. Raises SendRefused."""
    first = batch[0]
    if first.sys_flag & COMPRESSED_FLAG:
        # The flag would be that of the whole body, which the broker could read as it is.
        remark = "the messages of a batch for a topic of queue.type=BatchCQ cannot be compressed each"
        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
    if len(batch) > BATCH_COUNT_MAX:
        remark = f"batch of {len(batch)} messages: {BATCH_COUNT_MAX} are allowed with queue.type=BatchCQ"
        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, remark)
    whole = msgspec.structs.replace(
        first,
        body=bytes(command.body),
        properties=properties,
        tags_code=code_of_tags,
        flag=int(fields["h"]),
        reconsume_times=int(fields.get("j", 0)),
    )
    return inner_batch(whole, len(batch))
