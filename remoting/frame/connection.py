"""A stream of received bytes, cut into commands. No socket, no clock.

The shell feeds what it read and gets back every command that is whole by now. What a peer claims
about a length decides when to look again and never how much to allocate: the buffer holds received
bytes only, and at most one frame of them. A header that cannot be read costs its own frame alone, for it is known
where the next one begins.
"""

from __future__ import annotations

from typing import NamedTuple

from remoting.errors import RemotingProtocolError
from remoting.frame.binary_header import BinaryHeaderReader
from remoting.frame.command import FRAME_PREFIX, RemotingCommand, decode_json, whom_to_answer

FRAME_SIZE_MAX = 16_777_216
HEADER_SIZE_MAX = 256 * 1024  # properties end at 32,767 bytes, six times that in the worst JSON escapes

_TLS_HANDSHAKE = 0x16
_HAPROXY_PREFACES = (b"PROXY ", b"\r\n\r\n\x00\r\nQ")


class BadHeader(NamedTuple):
    """`command` has opaque, flag and serialize type of a request or response, as far as these can be told."""

    command: RemotingCommand | None
    reason: str


class RemotingConnection:
    """The receiving half of one connection.

    Invariant: `_pending` is the beginning of at most one frame and shorter than it; once a frame was
    bad, the stream has no more frames.
    """

    __slots__ = (
        "_decode_binary",
        "_failure",
        "_frame_size_max",
        "_header_size_max",
        "_pending",
        "_wanted_size",
        "bad_headers",
    )

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX, header_size_max: int = HEADER_SIZE_MAX) -> None:
        """`frame_size_max` counts a whole frame with its length field, as RocketMQ does."""
        self._frame_size_max = frame_size_max
        self._header_size_max = min(header_size_max, frame_size_max)
        self._pending: bytes | bytearray = b""
        self._wanted_size = 0  # below this many pending bytes there is nothing new to see
        self._failure: str | None = None
        self._decode_binary = BinaryHeaderReader().decode
        self.bad_headers: list[BadHeader] = []  # of the last receive_data()

    @property
    def pending_size(self) -> int:
        """Bytes received of a frame that is not whole yet."""
        return len(self._pending)

    def receive_data(self, data: bytes) -> list[RemotingCommand]:
        """All commands that `data` completes, in order; headers that cannot be read are in `bad_headers` instead.

        Raises RemotingProtocolError at the first bytes that are no frame; its `commands` are the whole
        ones before. The caller then closes the connection: where the next frame begins is unknown.
        """
        if self.bad_headers:
            self.bad_headers = []
        if self._failure is not None:
            raise RemotingProtocolError(self._failure)
        pending = self._pending
        if pending:
            if len(pending) + len(data) < self._wanted_size:
                # Growing in place keeps a large frame that trickles in from being copied at each read.
                if isinstance(pending, bytes):
                    pending = self._pending = bytearray(pending)
                pending += data
                return []
            data = b"".join((pending, data))
        commands: list[RemotingCommand] = []
        offset = 0
        size = len(data)
        decode_binary = self._decode_binary
        self._wanted_size = 8
        try:
            while size - offset >= 8:
                length, header_word = FRAME_PREFIX.unpack_from(data, offset)
                header_length = header_word & 0xFFFFFF
                if not 4 <= length <= self._frame_size_max - 4:
                    raise self._refusal(data[offset : offset + 8], length)
                end = offset + 4 + length
                if end > size:
                    self._wanted_size = end - offset
                    break
                body_at = offset + 8 + header_length
                serialize_type = header_word >> 24
                try:
                    if body_at > end or header_length > self._header_size_max:
                        raise self._bad_length(header_length, length)
                    if serialize_type == 0:
                        command = decode_json(data[offset + 8 : body_at])
                    elif serialize_type == 1:
                        command = decode_binary(data[offset + 8 : body_at])
                    else:
                        raise self._bad_type(serialize_type)
                    command.body = data[body_at:end]
                    commands.append(command)
                except RemotingProtocolError as error:
                    header = data[offset + 8 : min(body_at, end)]
                    self.bad_headers.append(BadHeader(whom_to_answer(serialize_type, header), str(error)))
                offset = end
        except RemotingProtocolError as error:
            self._failure = str(error)
            self._pending = b""
            error.commands = commands
            raise
        self._pending = data[offset:] if offset < size else b""
        return commands

    def _bad_type(self, serialize_type: int) -> RemotingProtocolError:
        return RemotingProtocolError(f"serialize type {serialize_type} is neither JSON (0) nor ROCKETMQ (1)")

    def _bad_length(self, header_length: int, length: int) -> RemotingProtocolError:
        if header_length + 4 > length:
            return RemotingProtocolError(f"header of {header_length} bytes in a frame of {length + 4}")
        return RemotingProtocolError(f"header of {header_length} bytes, the limit is {self._header_size_max}")

    def _refusal(self, start: bytes, length: int) -> RemotingProtocolError:
        if start[0] == _TLS_HANDSHAKE:
            return RemotingProtocolError(
                "the peer starts a TLS handshake, and this port has none (tls.server.certPath and keyPath give it TLS)"
            )
        if start.startswith(_HAPROXY_PREFACES):
            return RemotingProtocolError("the peer sends a HAProxy preface, and this port does not take one")
        if length < 4:
            return RemotingProtocolError(f"frame of {length + 4} bytes announced, the shortest has 8")
        return RemotingProtocolError(
            f"frame of {length + 4} bytes announced, the limit is {self._frame_size_max}; "
            f"it starts {start.hex(' ')}"
        )
