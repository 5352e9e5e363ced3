"""One Remoting command, and its frame as bytes.

A frame is: int32 length of what follows | int8 serialization, uint24 header length | header | body.
The header has two serializations, JSON and ROCKETMQ (binary), and the answer to a request uses the
request's. Everything here is a function of its arguments; cutting a stream into frames and the
limits on them are in connection.py.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import orjson

from remoting.codes import MQ_VERSION, LanguageCode
from remoting.errors import RemotingBodyError, RemotingEncodeError, RemotingProtocolError
from remoting.fastjson import loads_fastjson
from remoting.fastjson_values import as_text, to_struct

RESPONSE_FLAG = 0x1
ONEWAY_FLAG = 0x2
HEADER_LENGTH_MAX = 0xFFFFFF
HEADER_VALUES_MAX = 1000  # of a JSON header that is no JSON; clients write some thirty

FRAME_PREFIX = struct.Struct(
    ">I"  # bytes that follow these four
    "I"  # serialization in the high byte, header length in the other three
)
BINARY_HEADER = struct.Struct(
    ">h"  # code
    "b"  # language
    "h"  # version
    "i"  # opaque
    "i"  # flag
    "I"  # remark length, 0 for none; the remark follows
)
_FIXED_START = struct.Struct(">hbhii")  # the same up to the flag
_JSON_NUMBER = re.compile(rb"""["']?\b(opaque|flag)["']?\s*:\s*["']?(-?\d{1,10})\b""")
EXT_LENGTH = struct.Struct(">I")
EXT_KEY = struct.Struct(">H")

_LANGUAGE_BY_NAME = {language.name: language for language in LanguageCode}
_LANGUAGE_BY_CODE = {language.value: language for language in LanguageCode}

_PYTHON = LanguageCode.PYTHON.value
_SMALL_LENGTHS = tuple(EXT_LENGTH.pack(size) for size in range(256))

_JSON_RESPONSE_TAIL = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % MQ_VERSION

if TYPE_CHECKING:
    Body: TypeAlias = bytes | memoryview
else:
    Body = Any  # the header's decoder reads the annotations, and no header holds a body

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class SerializeType(IntEnum):
    JSON = 0
    ROCKETMQ = 1


class RemotingCommand(msgspec.Struct, gc=False):
    """A request or a response.

    The JSON decoder fills an instance directly, so the fields carry the names of the JSON header;
    `body` and `serialize_type` are not part of it and are set by whoever cut the frame.
    `flag` bit 0 marks a response, bit 1 a oneway request. `remark` is None when absent.
    `wire_language` is what the header says: a name in JSON, a number in binary.
    `has_empty_ext_fields`: Java writes `{}` for a header class whose values are all null, and leaves
    the map out when there is no header class; the difference is kept so that frames re-encode.
    """

    code: Int32 = 0
    wire_language: int | str = msgspec.field(default=LanguageCode.JAVA.value, name="language")
    version: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0
    remark: str | None = None
    ext_fields: dict[str, str] = msgspec.field(default_factory=dict, name="extFields")
    body: Body = b""
    serialize_type: int = SerializeType.JSON.value
    has_empty_ext_fields: bool = False

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & ONEWAY_FLAG != 0

    @property
    def language(self) -> LanguageCode:
        """The peer's language; OTHER for one that RocketMQ has no number for."""
        wire_language = self.wire_language
        if isinstance(wire_language, str):
            return _LANGUAGE_BY_NAME.get(wire_language.upper(), LanguageCode.OTHER)
        return _LANGUAGE_BY_CODE.get(wire_language, LanguageCode.OTHER)

    def encode(self) -> bytes:
        """The whole frame. Raises RemotingEncodeError when the header does not fit into one."""
        return encode_frame(self._wire_serialize_type(), encode_header(self), self.body)

    def _wire_serialize_type(self) -> SerializeType:
        # A binary header has 16 bits for the code; Java truncates 200050 to 3442 there, which its own
        # server does not understand. Peers accept either serialization at any time.
        if self.serialize_type == SerializeType.ROCKETMQ and -0x8000 <= self.code <= 0x7FFF:
            return SerializeType.ROCKETMQ
        return SerializeType.JSON


class _JsonHeader(msgspec.Struct, rename="camel"):
    """What a JSON header may say: nulls, and values that Java would turn into text."""

    code: Int32 | None = None
    language: object = LanguageCode.JAVA.name
    version: Int32 | None = None
    opaque: Int32 | None = None
    flag: Int32 | None = None
    remark: str | None = None
    ext_fields: dict[str, object] | None = None


_decode_json_command = msgspec.json.Decoder(RemotingCommand).decode
_decode_json_header = msgspec.json.Decoder(_JsonHeader, strict=False).decode


def request(
    code: int,
    ext_fields: dict[str, str] | None = None,
    body: Body = b"",
    *,
    opaque: int,
    oneway: bool = False,
    serialize_type: int = SerializeType.JSON,
) -> RemotingCommand:
    """A request of ours. `opaque` must be unique among the connection's unanswered requests."""
    return RemotingCommand(
        code=code,
        wire_language=_PYTHON,
        version=MQ_VERSION,
        opaque=opaque,
        flag=ONEWAY_FLAG if oneway else 0,
        ext_fields={} if ext_fields is None else ext_fields,
        body=body,
        serialize_type=serialize_type,
    )


def response(
    to: RemotingCommand,
    code: int = 0,
    remark: str | None = None,
    ext_fields: dict[str, str] | None = None,
    body: Body = b"",
) -> RemotingCommand:
    """The response to `to`, in its serialization and with its opaque."""
    return RemotingCommand(
        code=code,
        wire_language=_PYTHON,
        version=MQ_VERSION,
        opaque=to.opaque,
        flag=RESPONSE_FLAG,
        remark=remark,
        ext_fields={} if ext_fields is None else ext_fields,
        body=body,
        serialize_type=to.serialize_type,
    )


def whom_to_answer(serialize_type: int, header: bytes) -> RemotingCommand | None:
    """What a header that cannot be read as a whole tells of its request or response: opaque and flag. None: nothing."""
    if serialize_type == SerializeType.ROCKETMQ:
        if len(header) < _FIXED_START.size:
            return None
        code, _, _, opaque, flag = _FIXED_START.unpack_from(header)
        return RemotingCommand(code=code, opaque=opaque, flag=flag, serialize_type=serialize_type)
    found = {name: int(digits) for name, digits in _JSON_NUMBER.findall(header)}
    opaque, flag = found.get(b"opaque", 1 << 31), found.get(b"flag", 0)
    if serialize_type != SerializeType.JSON or not (-(1 << 31) <= opaque < 1 << 31 and 0 <= flag < 1 << 31):
        return None
    return RemotingCommand(opaque=opaque, flag=flag)


def decode_json(header: bytes) -> RemotingCommand:
    """The command whose JSON header these bytes are, without its body. Raises RemotingProtocolError."""
    try:
        command = _decode_json_command(header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _decode_loose_json(header)
    if command.ext_fields:
        command.body = b""
        command.serialize_type = 0
        command.has_empty_ext_fields = False
        return command
    return _decode_loose_json(header)


def _decode_loose_json(header: bytes) -> RemotingCommand:
    """The slower reading: no ext fields, nulls, numbers as values, keys that we use for other things."""
    try:
        loose = _decode_json_header(header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        loose = _decode_fastjson_header(header)
    ext_fields = loose.ext_fields
    language = loose.language
    return RemotingCommand(
        code=loose.code or 0,
        wire_language=language if isinstance(language, int | str) else LanguageCode.OTHER.name,
        version=loose.version or 0,
        opaque=loose.opaque or 0,
        flag=loose.flag or 0,
        remark=loose.remark,
        ext_fields={} if ext_fields is None else _ext_fields_as_text(ext_fields),
        has_empty_ext_fields=ext_fields is not None and not ext_fields,
    )


def _decode_fastjson_header(header: bytes) -> _JsonHeader:
    """The slowest reading: what is no JSON but fastjson."""
    try:
        return to_struct(_JsonHeader, loads_fastjson(header, values_max=HEADER_VALUES_MAX), zeros=False)
    except (RemotingBodyError, msgspec.ValidationError) as error:
        raise RemotingProtocolError(f"JSON header: {error}") from error


def _ext_fields_as_text(ext_fields: dict[str, object]) -> dict[str, str]:
    return {key: as_text(value) for key, value in ext_fields.items() if value is not None}


def decode_binary(header: bytes) -> RemotingCommand:
    """The command whose ROCKETMQ header these bytes are, without its body. Raises RemotingProtocolError."""
    try:
        code, language, version, opaque, flag, remark_length = BINARY_HEADER.unpack_from(header)
        offset = 17
        remark = None
        if remark_length:
            remark = header[17 : 17 + remark_length].decode(errors="replace")
            offset += remark_length
        (ext_length,) = EXT_LENGTH.unpack_from(header, offset)
        offset += 4
        end = offset + ext_length
        if end != len(header):
            raise RemotingProtocolError(
                f"binary header of {len(header)} bytes: its parts (remark {remark_length}, ext fields "
                f"{ext_length}) end at {end}"
            )
        ext_fields: dict[str, str] = {}
        key_length_at, value_length_at = EXT_KEY.unpack_from, EXT_LENGTH.unpack_from
        while offset < end:
            key_end = offset + 2 + key_length_at(header, offset)[0]
            value_end = key_end + 4 + value_length_at(header, key_end)[0]
            key = header[offset + 2 : key_end].decode(errors="replace")
            ext_fields[key] = header[key_end + 4 : value_end].decode(errors="replace")
            offset = value_end
    except struct.error as error:
        raise RemotingProtocolError(f"binary header of {len(header)} bytes: {error}") from error
    if offset != end:
        raise RemotingProtocolError(f"binary header: an ext field ends {offset - end} bytes after the header")
    return RemotingCommand(
        code=code,
        wire_language=language,
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark,
        ext_fields=ext_fields,
        serialize_type=1,
    )


def encode_header(command: RemotingCommand) -> bytes:
    """The header alone, in the serialization that `RemotingCommand.encode` announces in the frame."""
    if command._wire_serialize_type() is SerializeType.JSON:
        return _encode_json(command)
    return _encode_binary(command)


def _encode_json(command: RemotingCommand) -> bytes:
    # Java's writer sorts the names and leaves nulls out.
    header: dict[str, object] = {"code": command.code}
    if command.ext_fields or command.has_empty_ext_fields:
        header["extFields"] = command.ext_fields
    header["flag"] = command.flag
    wire_language = command.wire_language
    header["language"] = wire_language if isinstance(wire_language, str) else command.language.name
    header["opaque"] = command.opaque
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = command.version
    try:
        return orjson.dumps(header)
    except orjson.JSONEncodeError as error:
        raise RemotingEncodeError(f"header of code {command.code}: {error}") from error


def _encode_binary(command: RemotingCommand) -> bytes:
    wire_language = command.wire_language
    language = command.language.value if isinstance(wire_language, str) else wire_language
    try:
        remark = b"" if command.remark is None else command.remark.encode()
        ext_fields = encode_binary_ext_fields(command.ext_fields)
        fixed = BINARY_HEADER.pack(
            command.code, language, command.version, command.opaque, command.flag, len(remark)
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise RemotingEncodeError(f"header of code {command.code}: {error}") from error
    return b"".join((fixed, remark, EXT_LENGTH.pack(len(ext_fields)), ext_fields))


@lru_cache(maxsize=256)
def _binary_template(*keys: str) -> bytes:
    """A map with these keys and, after each, holes for the length and the bytes of its value."""
    encoded = [key.encode() for key in keys]
    return b"".join((EXT_KEY.pack(len(key)) + key).replace(b"%", b"%%") + b"%b%b" for key in encoded)


def encode_binary_ext_fields(ext_fields: dict[str, str]) -> bytes:
    """The map of a binary header, without the length in front of it."""
    # A header class writes the same keys each time, so only the values are left to fill in.
    values: list[bytes] = []
    for value in ext_fields.values():
        value_bytes = value.encode()
        size = len(value_bytes)
        values.append(_SMALL_LENGTHS[size] if size < 256 else EXT_LENGTH.pack(size))
        values.append(value_bytes)
    return _binary_template(*ext_fields) % tuple(values)


def encode_frame(serialize_type: int, header: bytes, body: Body) -> bytes:
    """Prefix, header and body in one. Raises RemotingEncodeError when the header is too long."""
    header_length = len(header)
    if header_length > HEADER_LENGTH_MAX:
        raise RemotingEncodeError(
            f"header of {header_length} bytes, a frame has room for {HEADER_LENGTH_MAX}"
        )
    prefix = FRAME_PREFIX.pack(4 + header_length + len(body), serialize_type << 24 | header_length)
    return b"".join((prefix, header, body))


def encode_response(
    opaque: int,
    serialize_type: int,
    code: int,
    ext_fields: dict[str, str] | None = None,
    body: Body = b"",
    remark: str | None = None,
) -> bytes:
    """A response frame straight from its values: the send path's encoder, one call per message.

    It is the frame of `response(...).encode()` without the command in between.
    """
    head = encode_response_head(opaque, serialize_type, code, ext_fields, len(body), remark)
    return head + body if body else head


def encode_response_head(
    opaque: int,
    serialize_type: int,
    code: int,
    ext_fields: dict[str, str] | None = None,
    body_size: int = 0,
    remark: str | None = None,
) -> bytes:
    """A response frame up to its body of `body_size` bytes, which the caller writes right after.

    So the slices of a log that answer a pull go to the socket without being copied together first.
    """
    if serialize_type == 0:
        header = b'{"code":%d%b,"flag":1,"language":"PYTHON","opaque":%d%b%b' % (
            code,
            b',"extFields":' + orjson.dumps(ext_fields) if ext_fields else b"",
            opaque,
            b"" if remark is None else b',"remark":' + orjson.dumps(remark),
            _JSON_RESPONSE_TAIL,
        )
    else:
        remark_bytes = b"" if remark is None else remark.encode()
        ext_bytes = encode_binary_ext_fields(ext_fields) if ext_fields else b""
        header = b"%b%b%b%b" % (
            BINARY_HEADER.pack(code, _PYTHON, MQ_VERSION, opaque, RESPONSE_FLAG, len(remark_bytes)),
            remark_bytes,
            EXT_LENGTH.pack(len(ext_bytes)),
            ext_bytes,
        )
    header_length = len(header)
    return FRAME_PREFIX.pack(4 + header_length + body_size, serialize_type << 24 | header_length) + header
