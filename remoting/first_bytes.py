"""One port for TLS and plaintext: the first byte of a connection, left in the socket, says which of them it is.

A load balancer may write a preface of the PROXY protocol first, which says where the client is. It is read only where
an operator has said so: anybody can write one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from remoting.address import join
from remoting.proxy_protocol import NO_PREFACE, PREFACE_SIZE_MAX, PrefaceError, read_preface
from remoting.tls import ServerTls, TlsMode, reason_of

log = logging.getLogger(__name__)

_PER_CONNECTION = {"per_connection": True}  # anybody may open as many as they like: mq/log_limit.py

FIRST_BYTES_SECONDS = 20.0
HANDSHAKE_SECONDS = 10.0
# Connections that are not open yet, at one port. Honest ones open within a round trip or two, so the oldest is the one
# that is meant to last.
UNOPENED_MAX = 1024
TLS_RECORD = 0x16  # a handshake record, which each TLS connection begins with
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_SECONDS = 1.0
_PREFACE_SECONDS = 0.02  # before the next look whether a preface is complete


@dataclass(slots=True)
class _Waiting:
    timer: asyncio.TimerHandle
    source: str | None = None
    may_have_preface: bool = False


class FirstBytesListener:
    """Accepts connections at listening sockets, and makes a protocol for each once its first byte has come."""

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        sockets: list[socket.socket],
        tls: ServerTls | None,
        make_for_source: Callable[[str], asyncio.BaseProtocol] | None = None,
    ) -> None:
        """Without `tls` the port takes plaintext only.

        `make_for_source` makes the protocol of a client whose address is in a preface. Without it prefaces are not
        read.
        """
        self.sockets = sockets
        self._make_protocol = make_protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._make_for_source = make_for_source
        self._waiting: dict[socket.socket, _Waiting] = {}
        self._opening: dict[asyncio.Task[None], None] = {}  # the oldest first, as above
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
            self._make_room()
            sock.setblocking(False)
            timer = self._loop.call_later(FIRST_BYTES_SECONDS, self._drop, sock)
            self._waiting[sock] = _Waiting(timer, may_have_preface=self._make_for_source is not None)
            self._loop.add_reader(sock, self._look, sock)

    def _make_room(self) -> None:
        if len(self._waiting) + len(self._opening) < UNOPENED_MAX:
            return
        log.warning(
            "%d connections have said nothing or not ended their handshake: the oldest is closed",
            UNOPENED_MAX,
            extra=_PER_CONNECTION,
        )
        if self._waiting:
            self._drop(next(iter(self._waiting)))
        else:
            task = next(iter(self._opening))
            del self._opening[task]
            task.cancel()

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self.sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _drop(self, sock: socket.socket) -> None:
        self._let_go(sock)
        sock.close()

    def _let_go(self, sock: socket.socket) -> _Waiting:
        self._loop.remove_reader(sock)
        waiting = self._waiting.pop(sock)
        waiting.timer.cancel()
        return waiting

    def _look(self, sock: socket.socket) -> None:
        waiting = self._waiting.get(sock)
        if waiting is None:
            return  # it was dropped before it was looked at again
        try:
            first = sock.recv(PREFACE_SIZE_MAX, socket.MSG_PEEK)
            preface = read_preface(first) if waiting.may_have_preface and first else NO_PREFACE
            if preface is None:
                # The socket stays readable, so the loop would call again at once.
                self._loop.remove_reader(sock)
                self._loop.call_later(_PREFACE_SECONDS, self._look_again, sock)
                return
            if preface.size:
                sock.recv(preface.size)
                waiting.source, waiting.may_have_preface = preface.source, False
                return
        except (BlockingIOError, InterruptedError):
            return
        except PrefaceError as error:
            log.warning("bad PROXY preface from=%s reason=%s", _peer(sock), error, extra=_PER_CONNECTION)
            first = b""
        except OSError:
            first = b""
        is_tls = first[:1] == bytes((TLS_RECORD,))
        if not first or not self._is_taken(is_tls, sock):
            self._drop(sock)
            return
        source = self._let_go(sock).source
        context = self._tls.context if is_tls and self._tls is not None else None
        task = self._loop.create_task(self._open(sock, context, source))
        self._opening[task] = None
        task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.pop(task, None)

    def _look_again(self, sock: socket.socket) -> None:
        if sock in self._waiting:
            self._loop.add_reader(sock, self._look, sock)

    def _is_taken(self, is_tls: bool, sock: socket.socket) -> bool:
        mode = TlsMode.DISABLED if self._tls is None else self._tls.mode
        if mode is not (TlsMode.DISABLED if is_tls else TlsMode.ENFORCING):
            return True
        kind = "TLS" if is_tls else "plaintext"
        key = "tls.server.mode" if self._tls is None else self._tls.mode_key
        log.warning("%s refused from=%s %s=%s", kind, _peer(sock), key, mode, extra=_PER_CONNECTION)
        return False

    async def _open(self, sock: socket.socket, context: ssl.SSLContext | None, source: str | None) -> None:
        peer = _peer(sock) if source is None else source
        make_for_source = self._make_for_source

        def make() -> asyncio.BaseProtocol:
            if source is None or make_for_source is None:
                return self._make_protocol()
            return make_for_source(source)

        try:
            await self._loop.connect_accepted_socket(
                make,
                sock,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if context else None,
            )
        except OSError as error:  # TLS errors are of its kind, too
            log.info("TLS handshake failed from=%s reason=%s", peer, reason_of(error), extra=_PER_CONNECTION)
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise


def _peer(sock: socket.socket) -> str:
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return "unknown"
    return join(str(host).removeprefix("::ffff:"), port)
