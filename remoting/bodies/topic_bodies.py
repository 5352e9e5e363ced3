"""Topic configs and what a broker registers with: the bodies of REGISTER_BROKER and GET_ALL_TOPIC_CONFIG.

A register body has two forms. The plain one is JSON. The compressed one (header field `compressed`) is a
zlib stream of length-prefixed pieces, with each topic config in a text form of its own.
"""

from __future__ import annotations

import struct
import zlib
from typing import Annotated

import orjson
from msgspec import field

from remoting.bodies.bodies import DataVersion, RemotingBody, from_json_value, to_json_value
from remoting.codes import MQ_VERSION, V5_0_0
from remoting.errors import RemotingBodyError
from remoting.fastjson import dumps_fastjson, loads_fastjson
from remoting.fastjson_values import java_enum
from remoting.headers.headers import Int32

PERM_MAX = 15  # all of a topic's permissions
INFLATED_SIZE_MAX = 64 * 1024 * 1024  # some 500,000 topics

TopicFilterType = Annotated[str, java_enum("SINGLE_TAG", "MULTI_TAG")]

_INT32 = struct.Struct(">i")


class TopicConfig(RemotingBody):
    """Config of one topic on one broker. `perm`: 4 read, 2 write, 1 inherit, 8 priority."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: TopicFilterType = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] | None = None

    def encode_text(self) -> str:
        """`T 4 8 6 SINGLE_TAG {}`: name, read, write, perm, filter, attributes; the rest is not in it."""
        attributes = dumps_fastjson(self.attributes or {}).decode()
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type} {attributes}"
        )

    @classmethod
    def decode_text(cls, text: str) -> TopicConfig:
        """The attributes may be missing. Raises RemotingBodyError."""
        parts = text.split(" ", 5)
        try:
            topic_name, read, write, perm, topic_filter_type = parts[:5]
            value = {
                "topicName": topic_name,
                "readQueueNums": int(read),
                "writeQueueNums": int(write),
                "perm": int(perm),
                "topicFilterType": topic_filter_type,
                "attributes": loads_fastjson(parts[5].encode()) if len(parts) > 5 else {},
            }
        except ValueError as error:
            raise RemotingBodyError(f"topic config {text[:200]!r}: {error}") from error
        return from_json_value(cls, value)


class TopicConfigSerializeWrapper(RemotingBody):
    """A broker's topics. The mapping fields (static topics) came with 5.0; None is an older peer's."""

    data_version: DataVersion
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_info_map: dict[str, object] | None = None
    topic_queue_mapping_detail_map: dict[str, object] | None = None


class RegisterBrokerBody(RemotingBody):
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper
    filter_server_list: list[str] = field(default_factory=list)

    def encode_compressed(self, version: int = MQ_VERSION) -> bytes:
        """The compressed form; `version` is the sender's, and readers go by the header's."""
        wrapper = self.topic_config_serialize_wrapper
        parts: list[bytes] = []
        _add_sized(parts, wrapper.data_version.encode())
        parts.append(_INT32.pack(len(wrapper.topic_config_table)))
        for topic_config in wrapper.topic_config_table.values():
            _add_sized(parts, topic_config.encode_text().encode())
        _add_sized(parts, orjson.dumps(self.filter_server_list))
        if version >= V5_0_0:
            mappings = wrapper.topic_queue_mapping_info_map or {}
            parts.append(_INT32.pack(len(mappings)))
            for mapping in mappings.values():
                _add_sized(parts, dumps_fastjson(to_json_value(mapping)))
        return zlib.compress(b"".join(parts))

    @classmethod
    def decode_compressed(cls, data: bytes | memoryview, version: int) -> RegisterBrokerBody:
        """Raises RemotingBodyError. A stream that inflates beyond INFLATED_SIZE_MAX is refused."""
        reader = _PieceReader(_inflate(data))
        data_version = DataVersion.decode(reader.piece())
        topics = [TopicConfig.decode_text(reader.text()) for _ in range(reader.count())]
        filter_servers = loads_fastjson(reader.piece())
        mappings: dict[str, object] | None = None
        if version >= V5_0_0:
            mappings = {}
            for _ in range(reader.count()):
                mapping = loads_fastjson(reader.piece())
                if not isinstance(mapping, dict):
                    raise RemotingBodyError("topic queue mapping: an object expected")
                mappings[str(mapping.get("topic"))] = mapping
        return from_json_value(
            cls,
            {
                "topicConfigSerializeWrapper": {
                    "dataVersion": to_json_value(data_version),
                    "topicConfigTable": {topic.topic_name: to_json_value(topic) for topic in topics},
                    "topicQueueMappingInfoMap": mappings,
                },
                "filterServerList": filter_servers,
            },
        )


def body_crc32(body: bytes | memoryview) -> int:
    """The value of header field `bodyCrc32`, over the body as sent; 0 in a header means: not checked."""
    return zlib.crc32(body) & 0x7FFFFFFF


def _add_sized(parts: list[bytes], piece: bytes) -> None:
    parts.append(_INT32.pack(len(piece)))
    parts.append(piece)


def _inflate(data: bytes | memoryview) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, INFLATED_SIZE_MAX)
    except zlib.error as error:
        raise RemotingBodyError(f"compressed register body of {len(data)} bytes: {error}") from error
    if not inflater.eof:
        reason = f"longer than {INFLATED_SIZE_MAX} bytes" if inflater.unconsumed_tail else "truncated"
        raise RemotingBodyError(f"compressed register body: {reason}")
    return inflated


class _PieceReader:
    """Counts and length-prefixed pieces, one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        try:
            (count,) = _INT32.unpack_from(self._data, self._at)
        except struct.error as error:
            raise RemotingBodyError(f"compressed register body: {error}") from error
        self._at += 4
        # Each of the counted things takes at least its own length field.
        if not 0 <= count <= len(self._data) - self._at:
            raise RemotingBodyError(f"compressed register body: count or length {count} at {self._at - 4}")
        return int(count)

    def piece(self) -> bytes:
        size = self.count()
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        piece = self.piece()
        try:
            return piece.decode()
        except UnicodeDecodeError as error:
            raise RemotingBodyError(f"compressed register body: {error}") from error
