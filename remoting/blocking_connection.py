"""One connection to a broker or a NameServer, by a blocking socket: for processes that run no event loop."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final

from remoting.address import AddressError, parse_address
from remoting.codes import RequestCode
from remoting.errors import (
    RemotingClosedError,
    RemotingConnectError,
    RemotingProtocolError,
    RemotingTimeoutError,
)
from remoting.frame.command import RemotingCommand, SerializeType, request
from remoting.frame.connection import RemotingConnection

if TYPE_CHECKING:
    import ssl

_READ_SIZE: Final = 1 << 20
_OPAQUE_MAX: Final = 0x7FFFFFFF


class BlockingConnection:
    """Requests leave in their order, and `receive` gives the answers by their opaques. One thread uses it."""

    def __init__(
        self,
        address: str,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        *,
        before_request: Callable[[RemotingCommand], None] | None = None,
    ) -> None:
        """Connects, in plaintext without `tls`. `timeout_s`: for that, and each send. `before_request` may change each
        request before it is encoded, for example sign it. Raises RemotingConnectError.
        """
        self.address = address
        self._is_tls = tls is not None
        self._before_request = before_request
        try:
            where = parse_address(address)
            self._socket = _connect(where.host, where.port, timeout_s, tls)
        except OSError as error:
            raise self._not_connected(error) from error
        except AddressError as error:
            raise RemotingConnectError(str(error)) from error
        self._timeout_s = timeout_s
        self._incoming = RemotingConnection()
        self._received: deque[RemotingCommand] = deque()
        self._opaque = 0
        self._has_heard = False

    def close(self) -> None:
        self._socket.close()

    def send(self, code: RequestCode, fields: Mapping[str, str]) -> int:
        """Returns the opaque of the answer that will come. Raises RemotingClosedError, RemotingTimeoutError."""
        return self.send_many(code, [(fields, b"")])[0]

    def send_many(self, code: RequestCode, requests: Iterable[tuple[Mapping[str, str], bytes]]) -> list[int]:
        """Sends fields and body of each in one write. Returns and raises as `send`."""
        opaques: list[int] = []
        frames: list[bytes] = []
        for fields, body in requests:
            self._opaque = opaque = (self._opaque + 1) & _OPAQUE_MAX
            opaques.append(opaque)
            command = request(code, dict(fields), body, opaque=opaque, serialize_type=SerializeType.ROCKETMQ)
            if self._before_request is not None:
                self._before_request(command)
            frames.append(command.encode())
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(b"".join(frames))
        except TimeoutError as error:
            raise RemotingTimeoutError(f"{self.address}: the peer takes no bytes") from error
        except OSError as error:
            raise self._closed(error) from error
        return opaques

    def receive(self, timeout_s: float) -> RemotingCommand:
        """The next answer, whichever request it is of.

        Raises RemotingClosedError, RemotingTimeoutError, and RemotingProtocolError for what is no answer.
        """
        until = monotonic() + timeout_s
        while not self._received:
            if monotonic() >= until:  # a peer may send for ever what is no answer
                raise RemotingTimeoutError(f"{self.address}: no answer in time")
            commands = self._incoming.receive_data(self._read(until - monotonic()))
            if self._incoming.bad_headers:
                raise RemotingProtocolError(f"{self.address}: {self._incoming.bad_headers[0].reason}")
            # A broker may ask its clients things, too. This is none that knows anything.
            self._received += (command for command in commands if command.is_response)
        return self._received.popleft()

    def call(self, code: RequestCode, fields: Mapping[str, str], timeout_s: float) -> RemotingCommand:
        """The answer to one request, where no other is under way. Raises as `send` and `receive`."""
        opaque = self.send(code, fields)
        answer = self.receive(timeout_s)
        if answer.opaque != opaque:
            raise RemotingProtocolError(f"{self.address} answered request {answer.opaque}, not {opaque}")
        return answer

    def _read(self, timeout_s: float) -> bytes:
        try:
            self._socket.settimeout(max(timeout_s, 0.001))
            data = self._socket.recv(_READ_SIZE)
        except TimeoutError as error:
            raise RemotingTimeoutError(f"{self.address}: no answer in time") from error
        except OSError as error:
            raise self._closed(error) from error
        if not data:
            raise self._closed(None)
        self._has_heard = True
        return data

    def _not_connected(self, error: OSError) -> RemotingConnectError:
        if self._is_tls:
            import ssl  # most clusters are in plaintext

            from remoting.tls import no_tls

            if isinstance(error, ssl.SSLError):
                return no_tls(self.address, error)
        return RemotingConnectError(f"{self.address}: {error.strerror or error}")

    def _closed(self, error: OSError | None) -> RemotingClosedError:
        from remoting.tls import why_closed

        reason = "the peer closed the connection" if error is None else error.strerror or str(error)
        guess = "" if self._has_heard else why_closed(is_tls=self._is_tls)
        return RemotingClosedError(f"{self.address}: {reason}{guess}")


def _connect(host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None) -> socket.socket:
    """Raises OSError, of which kind those of TLS are."""
    connected = socket.create_connection((host, port), timeout_s)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected if tls is None else tls.wrap_socket(connected, server_hostname=host)
    except BaseException:
        connected.close()
        raise
