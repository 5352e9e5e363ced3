"""How a client connects: in plaintext, or with TLS by a file of RocketMQ's keys."""

from __future__ import annotations

from remoting.client import Connect
from remoting.tls_settings import client_tls_from_file, client_tls_of_environment


def tls_from_file(path: str) -> Connect | None:
    """For the `connect` of every client: TLS as the file's `tls.client.*` keys say; None where tls.enable=false.

    The file is Java's tls.properties; `mq tls init` writes one. Certificates are read again when they are replaced.
    Raises ValueError for a file that cannot be used, and OSError for one that cannot be read.
    """
    tls = client_tls_from_file(path)
    return tls.connect if tls is not None else None


def connect_of_environment() -> Connect | None:
    """As tls_from_file(), of the file that the environment names; None: it names none. Raises ValueError."""
    tls = client_tls_of_environment()
    return tls.connect if tls is not None else None
