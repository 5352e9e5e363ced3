"""One port for TLS and plaintext: the first byte of a connection, left in the socket, says which of them it is.

A load balancer may put a line of HAProxy's PROXY protocol first, which says where the client really is.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from remoting.address import join
from remoting.tls import ServerTls, TlsMode

log = logging.getLogger(__name__)

_PER_CONNECTION = {"per_connection": True}  # anybody may open as many as they like: mq/log_limit.py

FIRST_BYTES_SECONDS = 20.0
HANDSHAKE_SECONDS = 10.0
TLS_RECORD = 0x16  # a handshake record, which each TLS connection begins with
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_SECONDS = 1.0


class FirstBytesListener:
    """Accepts connections at listening sockets, and makes a protocol for each once its first byte has come."""

    def __init__(
        self, make_protocol: Callable[[], asyncio.BaseProtocol], sockets: list[socket.socket], tls: ServerTls
    ) -> None:
        self.sockets = sockets
        self._make_protocol = make_protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._opening: set[asyncio.Task[None]] = set()
        for listening in sockets:
            listening.setblocking(False)
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        for listening in self.sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self.sockets = []
        for sock in list(self._waiting):
            self._drop(sock)
        for task in self._opening:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                log.error("no room for further connections reason=%s", error.strerror)
                self._loop.remove_reader(listening)
                self._loop.call_later(_RETRY_SECONDS, self._accept_again, listening)
                return
            sock.setblocking(False)
            self._waiting[sock] = self._loop.call_later(FIRST_BYTES_SECONDS, self._drop, sock)
            self._loop.add_reader(sock, self._look, sock)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self.sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _drop(self, sock: socket.socket) -> None:
        self._let_go(sock)
        sock.close()

    def _let_go(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock)
        self._waiting.pop(sock).cancel()

    def _look(self, sock: socket.socket) -> None:
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        is_tls = first[:1] == bytes((TLS_RECORD,))
        if not first or not self._is_taken(is_tls, sock):
            self._drop(sock)
            return
        self._let_go(sock)
        task = self._loop.create_task(self._open(sock, self._tls.context if is_tls else None))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _is_taken(self, is_tls: bool, sock: socket.socket) -> bool:
        refused = TlsMode.DISABLED if is_tls else TlsMode.ENFORCING
        if self._tls.mode is not refused:
            return True
        kind = "TLS" if is_tls else "plaintext"
        log.warning(
            "%s refused from=%s tls.server.mode=%s", kind, _peer(sock), self._tls.mode, extra=_PER_CONNECTION
        )
        return False

    async def _open(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        peer = _peer(sock)
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                sock,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if context else None,
            )
        except OSError as error:  # TLS errors are of its kind, too
            log.info("TLS handshake failed from=%s reason=%s", peer, error, extra=_PER_CONNECTION)
            sock.close()


def _peer(sock: socket.socket) -> str:
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return "unknown"
    return join(str(host).removeprefix("::ffff:"), port)
