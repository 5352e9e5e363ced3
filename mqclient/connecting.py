"""How a client connects: in plaintext, or with TLS by a file of RocketMQ's keys."""

from __future__ import annotations

import os

from remoting.client import Connect
from remoting.configuration import TLS_FILE_VARIABLE
from remoting.tls_settings import client_tls_from_file


def tls_from_file(path: str) -> Connect | None:
    """For the `connect` of every client: TLS as the file's `tls.client.*` keys say; None where tls.enable=false.

    The file is Java's tls.properties; `mq tls init` writes one. Certificates are read again when they are replaced.
    Raises ValueError for a file that cannot be used, and OSError for one that cannot be read.
    """
    tls = client_tls_from_file(path)
    return tls.connect if tls is not None else None


def connect_of_environment() -> Connect | None:
    """As tls_from_file(), of the file that the environment names; None: it names none. Raises ValueError."""
    path = os.environ.get(TLS_FILE_VARIABLE)
    if not path:
        return None
    try:
        return tls_from_file(path)
    except OSError as error:
        raise ValueError(f"{TLS_FILE_VARIABLE}={path} cannot be read: {error.strerror}") from None
