"""A stored message as gRPC clients get it."""

from __future__ import annotations

import gzip
import logging
from hashlib import md5
from typing import Final

from message import const
from message.compression import decompress
from message.decoder import MessageExt
from message.errors import MessageError
from message.sys_flag import COMPRESSED_FLAG
from proxy.messages.settings import ATTEMPTS_MAX
from proxy.messages.times import TIMESTAMP_MS_MAX, set_ms
from proxy.protocol.definition import DigestType, Encoding, Message, MessageType

log = logging.getLogger(__name__)

_GZIP_MAGIC: Final = b"\x1f\x8b"
# Clients of three languages take messages of 4 MiB at most, all fields included.
_PLAIN_SIZE_MAX: Final = (4 << 20) - (64 << 10)
_DIGITS_MAX: Final = 18
_PRIORITY_MAX: Final = 2**31 - 1
_TYPE_PROPERTIES: Final = (
    (const.DELAY_TIME_LEVEL, MessageType.DELAY),
    (const.TIMER_DELIVER_MS, MessageType.DELAY),
    (const.TIMER_DELAY_MS, MessageType.DELAY),
    (const.TIMER_DELAY_SEC, MessageType.DELAY),
    (const.SHARDING_KEY, MessageType.FIFO),
    (const.PRIORITY, MessageType.PRIORITY),
)


def v2_message(message: MessageExt, receipt_handle: str = "") -> Message:
    """Convert a stored message. Its body may still be compressed."""
    properties = message.properties
    v2 = Message()
    v2.topic.name = message.topic
    for name, value in properties.items():
        if name not in const.RESERVED_PROPERTIES:
            v2.user_properties[name] = value
    v2.body, encoding = _body(message)

    system = v2.system_properties
    if (tag := message.tags) is not None:
        system.tag = tag
    system.keys.extend((message.keys or "").split())
    system.message_id = message.uniq_key or message.msg_id
    # Clients drop a message without these two, or fail.
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = md5(v2.body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = encoding
    system.message_type = _message_type(message)
    set_ms(system.born_timestamp, message.born_timestamp)
    system.born_host = properties.get(const.BORN_HOST) or message.born_host.rpartition(":")[0]
    set_ms(system.store_timestamp, message.store_timestamp)
    system.store_host = message.store_host
    if (deliver_ms := _number(properties.get(const.TIMER_DELIVER_MS), TIMESTAMP_MS_MAX)) is not None:
        set_ms(system.delivery_timestamp, deliver_ms)
    if receipt_handle:
        system.receipt_handle = receipt_handle
    system.queue_id = message.queue_id
    system.queue_offset = message.queue_offset
    system.delivery_attempt = min(message.reconsume_times + 1, ATTEMPTS_MAX)
    if (message_group := properties.get(const.SHARDING_KEY)) is not None:
        system.message_group = message_group
    if (trace_context := properties.get(const.TRACE_CONTEXT)) is not None:
        system.trace_context = trace_context
    if (priority := _number(properties.get(const.PRIORITY), _PRIORITY_MAX)) is not None:
        system.priority = priority
    origin_topic = properties.get(const.DLQ_ORIGIN_TOPIC)
    origin_message_id = properties.get(const.DLQ_ORIGIN_MESSAGE_ID)
    if origin_topic is not None and origin_message_id is not None:
        system.dead_letter_queue.topic = origin_topic
        system.dead_letter_queue.message_id = origin_message_id
    return v2


def _body(message: MessageExt) -> tuple[bytes, Encoding]:
    """Return the body and its encoding.

    Some clients read nothing but gzip as GZIP, and Remoting producers write none. So their bodies are inflated.
    """
    body = message.body
    if not message.sys_flag & COMPRESSED_FLAG or not body:
        return body, Encoding.IDENTITY
    if body.startswith(_GZIP_MAGIC):
        return body, Encoding.GZIP
    try:
        inflated = decompress(body, message.sys_flag)
    except MessageError as error:
        log.warning(
            "body handed over as stored topic=%s id=%s reason=%s", message.topic, message.msg_id, error
        )
        return body, Encoding.IDENTITY
    if len(inflated) <= _PLAIN_SIZE_MAX:
        return inflated, Encoding.IDENTITY
    return gzip.compress(inflated, 1, mtime=0), Encoding.GZIP


def _message_type(message: MessageExt) -> MessageType:
    properties = message.properties
    if properties.get(const.TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION
    return next((kind for name, kind in _TYPE_PROPERTIES if name in properties), MessageType.NORMAL)


def _number(text: str | None, most: int) -> int | None:
    """Return the number; None if the text is none, or it is above `most`: its sender may have written anything."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return None
    return number if (number := int(text)) <= most else None
