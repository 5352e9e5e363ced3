"""How a cluster is reached: its NameServers, and the paths of the files with access keys and TLS settings.

Options, plans and checkpoints hold only the paths. Each process reads the files when it connects.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from auth.client_credentials import load_credentials, signer_of
from pyspark_dledger.wire.read_errors import AccessError
from remoting.blocking_connection import BlockingConnection
from remoting.codes import ResponseCode
from remoting.configuration import TLS_FILE_VARIABLE
from remoting.errors import RemotingUntrustedError
from remoting.frame.command import RemotingCommand

if TYPE_CHECKING:
    from remoting.client_tls import ClientTls

CONNECT_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Without the name of a file, what the environment of each process says counts, as for every client."""

    namesrv: tuple[str, ...]
    credentials_file: str = ""
    tls_config_file: str = ""

    def connection(self, address: str) -> BlockingConnection:
        """Whoever asks closes it. Raises RemotingConnectError, and AccessError for what waiting does not help."""
        tls = self.tls()
        context = None if tls is None else tls.context
        try:
            return BlockingConnection(address, CONNECT_TIMEOUT_S, context, before_request=self.signer())
        except RemotingUntrustedError as error:
            raise AccessError(str(error)) from error

    def signer(self) -> Callable[[RemotingCommand], None] | None:
        """Signs each request; None: nobody is named. Raises AccessError."""
        try:
            return signer_of(load_credentials(self.credentials_file) if self.credentials_file else None)
        except ValueError as error:
            raise AccessError(str(error)) from None

    def tls(self) -> ClientTls | None:
        """None: connections are plaintext. Raises AccessError."""
        path = self.tls_config_file or os.environ.get(TLS_FILE_VARIABLE)
        return _client_tls(path) if path else None


@cache
def _client_tls(path: str) -> ClientTls | None:
    """A worker of many tasks makes it once. It looks itself whether certificates were replaced. Raises AccessError."""
    from remoting.tls_settings import client_tls_from_file  # most clusters are in plaintext

    try:
        return client_tls_from_file(path)
    except OSError as error:
        raise AccessError(f"TLS config file {path}: {error.strerror}") from None
    except ValueError as error:
        raise AccessError(f"TLS config file {path}: {error}") from None


def check_not_refused(address: str, answer: RemotingCommand) -> None:
    """Raises AccessError where a server answers that it does not know this client, or that others may do this."""
    if answer.code == ResponseCode.NO_PERMISSION:
        raise AccessError(f"{address} answers {answer.code} {answer.remark or ''}")
