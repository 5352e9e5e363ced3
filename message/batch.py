"""The body of a batch send (code 320): messages without topic, one behind the other, each with a small
frame."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from message.errors import MessageDecodeError, MessageEncodeError
from message.properties import PROPERTIES_LENGTH_MAX

_HEAD = struct.Struct(">iiiii")  # size of all, magic 0, CRC 0, flag, body length
_PROPERTIES_LENGTH = struct.Struct(">h")
_FRAME_SIZE = _HEAD.size + _PROPERTIES_LENGTH.size


class BatchMessage(NamedTuple):
    flag: int
    body: bytes
    properties: bytes  # encoded


def encode_batch(messages: Iterable[BatchMessage]) -> bytes:
    """Raises MessageEncodeError for properties beyond their length field."""
    parts: list[bytes] = []
    for flag, body, properties in messages:
        if len(properties) > PROPERTIES_LENGTH_MAX:
            raise MessageEncodeError(
                f"properties have {len(properties)} bytes, the limit is {PROPERTIES_LENGTH_MAX}"
            )
        size = _FRAME_SIZE + len(body) + len(properties)
        parts += (
            _HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            _PROPERTIES_LENGTH.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch_body(buffer: bytes | bytearray | memoryview) -> list[BatchMessage]:
    """Raises MessageDecodeError unless the frames fill the buffer exactly."""
    data = bytes(buffer)
    end = len(data)
    messages: list[BatchMessage] = []
    offset = 0
    while offset < end:
        if end - offset < _FRAME_SIZE:
            raise MessageDecodeError(f"batch at {offset}: {end - offset} bytes left")
        size, _, _, flag, body_length = _HEAD.unpack_from(data, offset)
        body_start = offset + _HEAD.size
        body_end = body_start + body_length
        properties_start = body_end + _PROPERTIES_LENGTH.size
        next_offset = offset + size
        if body_length < 0 or next_offset > end or properties_start > next_offset:
            raise MessageDecodeError(f"batch at {offset}: size {size}, body length {body_length}")
        if _PROPERTIES_LENGTH.unpack_from(data, body_end)[0] != next_offset - properties_start:
            raise MessageDecodeError(f"batch at {offset}: properties do not fill size {size}")
        messages.append(BatchMessage(flag, data[body_start:body_end], data[properties_start:next_offset]))
        offset = next_offset
    return messages
