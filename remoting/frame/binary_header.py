"""Reading ROCKETMQ (binary) headers that look alike, as those of one connection do.

A producer's headers differ in opaque, offsets and times, hardly ever in keys and lengths. What one of
them taught about where the values stand serves the next ones of its length: a single unpack, and one
comparison that proves it. Read key by key a send header costs twice as much.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from remoting.frame.command import RemotingCommand, SerializeType, decode_binary

SHAPES_MAX = 32  # about 64 KiB, for a connection that only sends binary headers

_ROCKETMQ = SerializeType.ROCKETMQ.value
_FIXED_FORMAT = ">hbhii"  # code, language, version, opaque, flag
_FIXED_SIZE = struct.calcsize(_FIXED_FORMAT)
_MAP_AT = _FIXED_SIZE + 8  # after the lengths of remark and map

# unpack, the bytes between the values, the keys
_Shape = tuple[Callable[[bytes], tuple[Any, ...]], tuple[bytes, ...], tuple[str, ...]]


class BinaryHeaderReader:
    """Invariant: its answers are decode_binary's; `_shapes` only makes them come sooner."""

    __slots__ = ("_seen", "_shapes")

    def __init__(self) -> None:
        self._shapes: dict[int, _Shape] = {}
        self._seen: set[int] = set()

    def decode(self, header: bytes) -> RemotingCommand:
        """The command whose header these bytes are, without its body. Raises RemotingProtocolError."""
        size = len(header)
        shape = self._shapes.get(size)
        if shape is not None:
            unpack, between, keys = shape
            pieces = unpack(header)
            if pieces[5::2] == between:
                try:
                    ext_fields = dict(zip(keys, map(bytes.decode, pieces[6::2]), strict=True))
                except UnicodeDecodeError:
                    return decode_binary(header)
                code, language, version, opaque, flag = pieces[:5]
                return RemotingCommand(
                    code, language, version, opaque, flag, None, ext_fields, b"", _ROCKETMQ
                )
            del self._shapes[size]
        command = decode_binary(header)
        if command.ext_fields and command.remark is None:
            self._learn(header)
        return command

    def _learn(self, header: bytes) -> None:
        """Keep the shape of a header that was read, from the second of its length on."""
        size = len(header)
        if size in self._seen:
            self._seen.remove(size)
            self._shapes[size] = _shape_of(header)
            return
        if len(self._seen) + len(self._shapes) >= SHAPES_MAX:
            self._seen.clear()
            self._shapes.clear()
        self._seen.add(size)


def _shape_of(header: bytes) -> _Shape:
    formats = [_FIXED_FORMAT]
    between: list[bytes] = []
    keys: list[str] = []
    value_end = _FIXED_SIZE
    key_at = _MAP_AT
    while key_at < len(header):
        key_end = key_at + 2 + int.from_bytes(header[key_at : key_at + 2])
        value_at = key_end + 4
        value_size = int.from_bytes(header[key_end:value_at])
        formats.append(f"{value_at - value_end}s{value_size}s")
        between.append(header[value_end:value_at])
        keys.append(header[key_at + 2 : key_end].decode(errors="replace"))
        key_at = value_end = value_at + value_size
    return struct.Struct("".join(formats)).unpack, tuple(between), tuple(keys)
