"""gRPC messages in the bytes of a stream: a flag, a length, the message."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from proxy.grpc.call import GrpcError, GrpcStatus

MESSAGE_SIZE_MAX = 130 * 1024 * 1024  # RocketMQ's grpcMaxInboundMessageSize

HELD_SIZE_MAX = 4 * MESSAGE_SIZE_MAX

PREFIX = struct.Struct(
    ">B"  # 1: compressed
    "I"  # size of the message
)


@dataclass(slots=True, kw_only=True)
class HeldBudget:
    """Bounds what a server holds over all connections, in bytes: the header fields of calls, their requests, each until
    its handler asks for the next one or the call ends, and answers that wait for their clients."""

    message_size_max: int = MESSAGE_SIZE_MAX
    size_max: int = HELD_SIZE_MAX
    size: int = 0


def encode_message(payload: bytes) -> bytes:
    return PREFIX.pack(0, len(payload)) + payload


class MessageAssembler:
    """Cuts the bytes of one stream into messages, whatever the pieces they come in."""

    __slots__ = ("_pieces", "_size", "_size_max", "_wanted")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._pieces: list[bytes] = []
        self._size = 0  # of the pieces
        self._wanted = PREFIX.size  # bytes, before there is anything to do

    @property
    def held_size(self) -> int:
        """Bytes of a message that is not complete."""
        return self._size

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes, return the messages that they complete. Raises GrpcError for what is not taken."""
        self._size += len(data)
        if self._size < self._wanted:
            self._pieces.append(data)
            return []
        if self._pieces:
            self._pieces.append(data)
            data = b"".join(self._pieces)
            self._pieces.clear()
        messages = []
        start = 0
        while True:
            if len(data) - start < PREFIX.size:
                self._wanted = PREFIX.size
                break
            compressed, size = PREFIX.unpack_from(data, start)
            if compressed:
                raise GrpcError(
                    GrpcStatus.UNIMPLEMENTED,
                    "the message is compressed by gRPC, which this server does not read: send it uncompressed",
                )
            if size > self._size_max:
                raise GrpcError(
                    GrpcStatus.RESOURCE_EXHAUSTED,
                    f"the message has {size} bytes, more than the {self._size_max} that are taken",
                )
            end = start + PREFIX.size + size
            if end > len(data):
                self._wanted = end - start
                break
            messages.append(data[start + PREFIX.size : end])
            start = end
        self._size = len(data) - start
        if self._size:
            self._pieces.append(data[start:])
        return messages
