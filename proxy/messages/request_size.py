"""How much a request holds besides the bodies of its messages, found without parsing it.

Parsed, a field of two bytes takes forty: a client could fill the memory with a request that no limit of bytes refuses.
"""

from __future__ import annotations

from typing import Final

from proxy.protocol.definition import Message
from proxy.protocol.service import SendMessageRequest

_MESSAGES: Final = SendMessageRequest.DESCRIPTOR.fields_by_name["messages"].number
_BODY: Final = Message.DESCRIPTOR.fields_by_name["body"].number
_FIELD_SIZE: Final = 40
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


def is_larger_besides_bodies(payload: bytes, size_max: int) -> bool:
    """Whether a SendMessageRequest has more than that many bytes, without the bodies and with 40 more for each field.

    What cannot be read ends the look, as it will end the parsing.
    """
    size = position = message_end = 0
    try:
        while position < len(payload) and size <= size_max:
            is_in_message = position < message_end
            key, position = _number(payload, position)
            field, kind = key >> 3, key & 7
            begin = position
            if kind == _VARINT:
                _, position = _number(payload, position)
            elif kind == _FIXED_64:
                position += 8
            elif kind == _FIXED_32:
                position += 4
            elif kind == _BYTES:
                length, begin = _number(payload, position)
                position = begin + length
            else:
                return True  # a group: no client sends any
            size += _FIELD_SIZE
            if kind == _BYTES and field == _MESSAGES and not is_in_message:
                message_end, position = position, begin
            elif not (kind == _BYTES and field == _BODY and is_in_message):
                size += position - begin
    except IndexError:
        return False
    return size > size_max


def _number(payload: bytes, position: int) -> tuple[int, int]:
    """Read a number of seven bits a byte. Returns it and the position behind it. Raises IndexError at the end."""
    number = shift = 0
    while (byte := payload[position]) >= 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
        position += 1
    return number | byte << shift, position + 1
