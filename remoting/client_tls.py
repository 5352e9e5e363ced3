"""The calling side of TLS: whom to trust, and the certificate that is shown to servers that ask for one."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from remoting.tls import (
    HANDSHAKE_ENDED,
    TlsFiles,
    TlsLimits,
    WatchedContext,
    load_key_pair,
    load_trust,
)

if TYPE_CHECKING:
    import asyncio

HANDSHAKE_SECONDS = 10.0


class ClientTls:
    """For connections to servers. Files that are replaced are read again for the next connection."""

    def __init__(
        self,
        *,
        trust_cert_path: str | None = None,
        files: TlsFiles | None = None,
        checks_server: bool = True,
        checks_host_name: bool = True,
        limits: TlsLimits | None = None,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        """Read the files. Raises TlsError. Without `trust_cert_path` the authorities count that this machine trusts."""
        self._trust_cert_path = trust_cert_path
        self._files = files
        self._checks_server = checks_server
        self._checks_host_name = checks_host_name
        self._limits = limits or TlsLimits()
        self._handshake_seconds = handshake_seconds
        paths = [path for path in (trust_cert_path, *(files.paths if files is not None else ())) if path]
        self._watched = WatchedContext(self._load, paths)

    async def connect(
        self, make_protocol: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[Any, Any]:
        """As loop.create_connection, with TLS. Raises OSError, of which kind those of TLS are."""
        from asyncio import get_running_loop  # `context` is for processes without an event loop, too

        try:
            return await get_running_loop().create_connection(
                make_protocol,
                host,
                port,
                ssl=self.context,
                server_hostname=host,
                ssl_handshake_timeout=self._handshake_seconds,
            )
        except ConnectionResetError as error:
            if error.errno is not None:
                raise
            # How asyncio tells of an end of the connection between connect and the last word of the handshake.
            raise ConnectionResetError(HANDSHAKE_ENDED) from None

    @property
    def context(self) -> ssl.SSLContext:
        """For one connection."""
        return self._watched.context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._limits.apply_to(context)
        context.check_hostname = self._checks_server and self._checks_host_name
        if not self._checks_server:
            context.verify_mode = ssl.CERT_NONE
        elif self._trust_cert_path is None:
            context.load_default_certs()
        else:
            load_trust(context, self._trust_cert_path)
        if self._files is not None:
            load_key_pair(context, self._files)
        return context
