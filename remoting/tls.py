"""TLS for every port: contexts from key and certificate files, and a self-made certificate for tries.

Java's words: with `permissive` one port takes TLS and plaintext, with `enforcing` TLS alone, with `disabled` none.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path

log = logging.getLogger(__name__)

SELF_MADE_DAYS = 365


class TlsMode(StrEnum):
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class TlsError(Exception):
    """Key or certificate cannot be used. The message names the file, and says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files, as operators name them in a conf file."""

    key_path: str
    cert_path: str
    key_password: str = ""


class ServerTls:
    """The TLS side of a listening port. Files that are replaced are read again for the next connection."""

    def __init__(
        self, mode: TlsMode, files: TlsFiles, *, alpn: Sequence[str] = (), are_watched: bool = True
    ) -> None:
        """Read the files. Raises TlsError. `alpn`: the protocols that may be agreed on, the first one first."""
        self.mode = mode
        self._files = files
        self._alpn = alpn
        self._are_watched = are_watched
        self._stamp = self._read_stamp()
        self._context = self._load()

    @property
    def context(self) -> ssl.SSLContext:
        """For one connection."""
        if self._are_watched and (stamp := self._read_stamp()) != self._stamp:
            # Where only one of the two files has been replaced they do not fit: the old pair serves on.
            self._stamp = stamp
            try:
                self._context = self._load()
                log.info("certificate read again from=%s", self._files.cert_path)
            except TlsError as error:
                log.warning("the certificate stays as it was: %s", error)
        return self._context

    def _read_stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in (self._files.key_path, self._files.cert_path))

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._alpn:
            context.set_alpn_protocols(list(self._alpn))
        files = self._files
        for path in (files.key_path, files.cert_path):
            try:
                Path(path).read_bytes()
            except OSError as error:
                raise TlsError(f"{path} cannot be read: {os.strerror(error.errno or 0).lower()}") from None
        try:
            # A text: without one OpenSSL would ask at the terminal.
            context.load_cert_chain(files.cert_path, files.key_path, files.key_password)
        except (OSError, ValueError) as error:  # those of TLS are of OSError's kind
            raise TlsError(
                f"{files.cert_path} and {files.key_path} are no certificate with its key: {_reason(error)}"
            ) from None
        return context


def self_made_tls(mode: TlsMode, *, alpn: Sequence[str] = (), hosts: Sequence[str] = ()) -> ServerTls:
    """Make a key and a certificate that nobody vouches for, good for tries and tests. Raises TlsError.

    Clients must trust any certificate, as most RocketMQ clients do. The library `cryptography` is needed.
    """
    with tempfile.TemporaryDirectory(prefix="pydledger-tls-") as folder:
        files = TlsFiles(key_path=f"{folder}/self-made.key", cert_path=f"{folder}/self-made.crt")
        write_self_made_certificate(files, hosts)
        tls = ServerTls(mode, files, alpn=alpn, are_watched=False)
    log.warning("TLS with a self-made certificate: clients cannot know who answers them")
    return tls


def write_self_made_certificate(files: TlsFiles, hosts: Sequence[str] = ()) -> None:
    """Write a new key and its certificate for this machine's names, those of loopback and `hosts`. Raises TlsError."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise TlsError(
            "a self-made certificate needs the library cryptography: pip install cryptography"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "PyDLedger, self-made")])
    names = dict.fromkeys(["localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts])
    alternatives: list[x509.GeneralName] = []
    for host in names:
        try:
            alternatives.append(x509.IPAddress(ip_address(host)))
        except ValueError:
            alternatives.append(x509.DNSName(host))
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clients' clocks differ
        .not_valid_after(now + timedelta(days=SELF_MADE_DAYS))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(files.key_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
    Path(files.cert_path).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _stamp(path: str) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None: it cannot be read."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
