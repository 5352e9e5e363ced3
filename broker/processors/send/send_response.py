"""The answer to a stored message as bytes: what is the same in every answer is rendered once.

Yields the frames of remoting's encode_response; being the one answer that is written per message, it is worth two
templates of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from remoting.codes import MQ_VERSION, LanguageCode
from remoting.frame.command import (
    BINARY_HEADER,
    EXT_KEY,
    EXT_LENGTH,
    FRAME_PREFIX,
    RESPONSE_FLAG,
    encode_response,
)

_BINARY_TYPE = 1 << 24
_pack_prefix = FRAME_PREFIX.pack


class SendResponseEncoder:
    def __init__(self, common_fields: Mapping[str, str], message_id_prefix: str) -> None:
        """`common_fields` are in every answer to a send; so is the beginning of its message id, before the offset."""
        self._common = dict(common_fields)
        self._message_id_prefix = message_id_prefix
        marker = "@%d@"
        fields = {**self._common, **{name: marker % index for index, name in enumerate(_FIELDS)}}
        header = encode_response(0, 0, 0, fields)[FRAME_PREFIX.size :].decode()
        template = header.replace("%", "%%").replace('"opaque":0', '"opaque":%d')
        template = template.replace(marker % 0, f"{message_id_prefix}%016X")
        for index in range(1, len(_FIELDS)):
            template = template.replace(marker % index, "%s")
        self._json = template
        common = b"".join(_binary_field(name, value) for name, value in self._common.items())
        message_id = _binary_field("msgId", self.message_id(0))
        self._binary_head = common + message_id[:-_OFFSET_DIGITS]

    def message_id(self, phy_offset: int) -> str:
        return f"{self._message_id_prefix}{phy_offset:016X}"

    def json(
        self, opaque: int, phy_offset: int, queue_id: str, queue_offset: int, transaction_id: str
    ) -> bytes:
        if not transaction_id.isalnum() or not transaction_id.isascii():
            return self._escaped(opaque, phy_offset, queue_id, queue_offset, transaction_id)
        header = (self._json % (phy_offset, queue_id, queue_offset, transaction_id, opaque)).encode()
        size = len(header)
        return _pack_prefix(4 + size, size) + header

    def binary(
        self, opaque: int, phy_offset: int, queue_id: str, queue_offset: int, transaction_id: str
    ) -> bytes:
        offset = b"%d" % queue_offset
        unique_key = transaction_id.encode()
        ext_fields = b"".join(
            (
                self._binary_head,
                b"%016X" % phy_offset,
                _QUEUE_ID_KEY,
                len(queue_id).to_bytes(4, "big"),
                queue_id.encode(),
                _QUEUE_OFFSET_KEY,
                len(offset).to_bytes(4, "big"),
                offset,
                _TRANSACTION_ID_KEY,
                len(unique_key).to_bytes(4, "big"),
                unique_key,
            )
        )
        size = BINARY_HEADER.size + EXT_LENGTH.size + len(ext_fields)
        return b"".join(
            (
                _pack_prefix(4 + size, _BINARY_TYPE | size),
                BINARY_HEADER.pack(0, LanguageCode.PYTHON, MQ_VERSION, opaque, RESPONSE_FLAG, 0),
                len(ext_fields).to_bytes(4, "big"),
                ext_fields,
            )
        )

    def _escaped(
        self,
        opaque: int,
        phy_offset: int,
        queue_id: str,
        queue_offset: int,
        transaction_id: str,
    ) -> bytes:
        """A client's key with characters that JSON has to escape."""
        values = (self.message_id(phy_offset), queue_id, str(queue_offset), transaction_id)
        fields = {**self._common, **dict(zip(_FIELDS, values, strict=True))}
        return encode_response(opaque, 0, 0, fields)


def _binary_key(name: str) -> bytes:
    return EXT_KEY.pack(len(name)) + name.encode()


def _binary_field(name: str, value: str) -> bytes:
    return _binary_key(name) + EXT_LENGTH.pack(len(value.encode())) + value.encode()


_OFFSET_DIGITS = 16  # hexadecimal, of a message id
_FIELDS = ("msgId", "queueId", "queueOffset", "transactionId")
_QUEUE_ID_KEY = _binary_key("queueId")
_QUEUE_OFFSET_KEY = _binary_key("queueOffset")
_TRANSACTION_ID_KEY = _binary_key("transactionId")
