"""Asks a server as a client does, by whatever address leads to it: any that speaks RocketMQ's remoting answers.

Among Java's members that is the port of their peers as well.
"""

import socket
import time

from remoting.frame.command import RemotingCommand

NO_CODE = 29_999  # that no server knows: it says so at once
PASSES_UP = 1
_REQUEST_SIZE = 8 << 10
_ANSWER_SIZE = 80  # somewhat less than any is
_SIZE_FIELD = 4
_READ_SIZE = 64 << 10


def ask(address: str, member: str, *, seconds_max: float, bytes_up: int = 0, bytes_down: int = 0) -> float:
    """Seconds from the dial to the last answer, with at least so many bytes one way and the other.

    Raises TimeoutError after `seconds_max`, ConnectionError when the connection is refused or closed before that.
    """
    began = time.monotonic()
    host, _, port = address.rpartition(":")
    count = max(1, -(-bytes_up // _REQUEST_SIZE), -(-bytes_down // _ANSWER_SIZE))
    body = bytes(min(bytes_up, _REQUEST_SIZE))
    with socket.create_connection((host, int(port)), timeout=seconds_max) as sock:
        for number in range(count):
            sock.sendall(RemotingCommand(code=NO_CODE, opaque=number, body=body).encode())
        received = bytearray()
        while count:
            rest = began + seconds_max - time.monotonic()
            if rest <= 0:
                raise TimeoutError(f"{member} at {address}: nothing within {seconds_max} s")
            sock.settimeout(rest)
            data = sock.recv(_READ_SIZE)
            if not data:
                raise ConnectionResetError(f"{member} at {address}: closed")
            received += data
            while len(received) >= _SIZE_FIELD:
                size = _SIZE_FIELD + int.from_bytes(received[:_SIZE_FIELD])
                if len(received) < size:
                    break
                del received[:size]
                count -= 1
        return time.monotonic() - began
