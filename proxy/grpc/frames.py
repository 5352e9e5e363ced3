"""HTTP/2's frames as bytes: kinds, flags, error codes, and those that we send (RFC 9113, sections 4, 6 and 7)."""

from __future__ import annotations

import struct
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_SIZE_MAX = 16384  # what each side may send as long as the other has not said more; we never say so
WINDOW_MAX = 2**31 - 1
WINDOW_DEFAULT = 65535
STREAM_ID_MAX = 2**31 - 1

FRAME_HEADER = struct.Struct(
    ">B"  # size of the payload: its highest byte
    "H"  # and the two others
    "B"  # kind
    "B"  # flags
    "I"  # stream, 0: the connection
)
FRAME_HEADER_SIZE = FRAME_HEADER.size
SETTING = struct.Struct(">HI")
UINT32 = struct.Struct(">I")
_WITH_UINT32 = struct.Struct(">BHBBII")
_GOAWAY = struct.Struct(
    ">BHBBI"  # frame header
    "I"  # the last stream that was looked at
    "I"  # error code
)

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)

ACK = 0x1
END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20


class ErrorCode(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return FRAME_HEADER.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id) + payload


def settings(values: dict[Setting, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(*item) for item in values.items()))


def window_update(stream_id: int, size: int) -> bytes:
    return _WITH_UINT32.pack(0, 4, WINDOW_UPDATE, 0, stream_id, size)


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    return _WITH_UINT32.pack(0, 4, RST_STREAM, 0, stream_id, code)


def goaway(last_stream_id: int, code: ErrorCode) -> bytes:
    return _GOAWAY.pack(0, 8, GOAWAY, 0, 0, last_stream_id, code)
