"""Sockets to listen on, as a JVM opens them: all addresses are those of IPv6, too."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from remoting.address import join
from remoting.first_bytes import FirstBytesListener
from remoting.tls import ServerTls

ALL_ADDRESSES = ("0.0.0.0", "::")


async def listen(
    make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, backlog: int = 100
) -> asyncio.Server:
    """Listens on the running loop. Raises OSError, for instance for a port that is taken."""
    loop = asyncio.get_running_loop()
    if host in ALL_ADDRESSES and (sock := _socket_for_all(port)) is not None:
        return await loop.create_server(make_protocol, sock=sock, backlog=backlog)
    return await loop.create_server(make_protocol, host, port, backlog=backlog)


async def listen_as(
    make_protocol: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    tls: ServerTls | None,
    *,
    backlog: int = 100,
) -> asyncio.Server | FirstBytesListener:
    """Listens for plaintext, and with `tls` for TLS as its mode has it. Raises OSError."""
    if tls is None:
        return await listen(make_protocol, host, port, backlog=backlog)
    return await listen_for_both(make_protocol, host, port, tls, backlog=backlog)


async def listen_for_both(
    make_protocol: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    tls: ServerTls | None,
    *,
    make_for_source: Callable[[str], asyncio.BaseProtocol] | None = None,
    backlog: int = 100,
) -> FirstBytesListener:
    """Listens on the running loop for TLS and plaintext, as the mode of `tls` has it. Raises OSError.

    `make_for_source`: as for FirstBytesListener.
    """
    sock = _socket_for_all(port) if host in ALL_ADDRESSES else None
    if sock is not None:
        sock.listen(backlog)
        return FirstBytesListener(make_protocol, [sock], tls, make_for_source)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            sockets.append(socket.create_server(address, family=family, backlog=backlog))
    except OSError:
        for opened in sockets:
            opened.close()
        raise
    return FirstBytesListener(make_protocol, sockets, tls, make_for_source)


def _socket_for_all(port: int) -> socket.socket | None:
    """Bound to the port at all addresses, IPv4 and IPv6; None where the machine has no IPv6."""
    try:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRNOTAVAIL:
            return None  # IPv6 is switched off
        reason = os.strerror(error.errno or 0).lower()
        raise OSError(error.errno, f"cannot listen at {join('::', port)}: {reason}") from None
    return sock
