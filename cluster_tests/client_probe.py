"""Asks a member as a client does, by whatever address leads to the port that clients know."""

import socket
import time

from remoting.command import RemotingCommand

NO_CODE = 29_999  # that no server knows: it says so at once
_SIZE_FIELD = 4


def ask_as_client(address: str, seconds_max: float) -> float:
    """Seconds from the dial to the answer. Raises TimeoutError after `seconds_max`, ConnectionError when the connection
    is refused or closed before that.
    """
    began = time.monotonic()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=seconds_max) as sock:
        sock.sendall(RemotingCommand(code=NO_CODE, opaque=1).encode())
        sock.settimeout(max(0.001, began + seconds_max - time.monotonic()))
        received = b""
        while len(received) < _SIZE_FIELD:
            data = sock.recv(_SIZE_FIELD - len(received))
            if not data:
                raise ConnectionResetError(f"{address}: closed")
            received += data
        return time.monotonic() - began
