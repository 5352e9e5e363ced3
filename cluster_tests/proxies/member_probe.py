"""Asks a member over the peer protocol, as any reader may, by whatever address leads to its Raft port.

What is laid on a proxy is laid on every connection through it. So how such a question fares says what the members' own
connections meet there, at any time: two followers of a quiet group have nothing to say to each other for hours.
"""

import os
import socket
import time

import msgspec

from dledger.rpc.codec import FRAME_PREFIX, encode_message
from dledger.rpc.connection import PeerConnection
from dledger.rpc.handshake import NONCE_SIZE, Handshake, Hello
from dledger.rpc.requests import MetadataRequest

# A hello, a proof and a question go up, each after an answer to the one before.
PASSES_UP = 3
FRAME_SIZE_MAX = 1 << 20
_READ_SIZE = 64 << 10
_REQUEST_SIZE = 8 << 10
_ANSWER_SIZE = 100  # somewhat less than any is
_SIZE_FIELD = 4


def ask(
    address: str, member: str, *, group: str, seconds_max: float, bytes_up: int = 0, bytes_down: int = 0
) -> float:
    """Seconds from the dial to the last answer, with at least so many bytes one way and the other.

    For a cluster without a secret. Raises TimeoutError after `seconds_max`, ConnectionError when the connection is
    refused or closed before that.
    """
    began = time.monotonic()
    hello = Hello(group=group, member_id="", addressee_id=member, nonce=os.urandom(NONCE_SIZE))
    handshake = Handshake(hello, secrets=(b"",), members=frozenset(), dialling=True)
    connection = PeerConnection(handshake, frame_size_max=FRAME_SIZE_MAX)
    with _dial(address, seconds_max) as sock:

        def left() -> float:
            rest = began + seconds_max - time.monotonic()
            if rest <= 0:
                raise TimeoutError(f"{member} at {address}: nothing within {seconds_max} s")
            return rest

        def receive() -> tuple[int, int]:
            """Answers, and bytes."""
            sock.settimeout(left())
            data = sock.recv(_READ_SIZE)
            if not data:
                raise ConnectionResetError(f"{member} at {address}: closed")
            answers = len(connection.receive_data(data))
            sock.sendall(connection.data_to_send())
            return answers, len(data)

        sock.sendall(connection.data_to_send())
        while not connection.established:
            receive()
        asked, answered, received = 0, 0, 0
        count = max(1, -(-bytes_up // _REQUEST_SIZE), -(-bytes_down // _ANSWER_SIZE))
        padding = min(bytes_up, _REQUEST_SIZE)
        while not asked or received < bytes_down:
            sock.settimeout(left())
            sock.sendall(b"".join(_request(number, padding) for number in range(asked, asked + count)))
            asked += count
            while answered < asked:
                answers, size = receive()
                answered += answers
                received += size
        return time.monotonic() - began


def hang_up(address: str, seconds_max: float) -> float:
    """Seconds from the moment that nothing more will be said until the other side has closed, too.

    Raises TimeoutError, ConnectionError.
    """
    with _dial(address, seconds_max) as sock:
        began = time.monotonic()
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(_READ_SIZE):
            pass
        return time.monotonic() - began


def _dial(address: str, seconds_max: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=seconds_max)


def _request(number: int, padding: int) -> bytes:
    """A member passes over fields that it does not know, so a question can be of any size."""
    frame = b"".join(encode_message(MetadataRequest(number)))
    fields = msgspec.msgpack.decode(frame[FRAME_PREFIX.size :])
    header = msgspec.msgpack.encode([*fields, bytes(padding)])
    return FRAME_PREFIX.pack(FRAME_PREFIX.size - _SIZE_FIELD + len(header), len(header)) + header
