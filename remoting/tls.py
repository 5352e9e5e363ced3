"""TLS for every port: contexts from the files of keys and certificates, which are read again when they change.

Java's words: with `permissive` one port takes TLS and plaintext, with `enforcing` TLS alone, with `disabled` none.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from remoting.secret import NO_SECRET, Secret, SecretError

log = logging.getLogger(__name__)


class TlsMode(StrEnum):
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class TlsError(ValueError):
    """Key or certificate cannot be used. The message names the file, and says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files, as operators name them in a conf file."""

    key_path: str
    cert_path: str
    key_password: Secret = NO_SECRET

    @property
    def paths(self) -> tuple[str, str]:
        return self.key_path, self.cert_path


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsLimits:
    """What may be agreed on; nothing: what Python's ssl thinks fit, from TLS 1.2 on."""

    versions: tuple[ssl.TLSVersion, ...] = ()  # the lowest first
    ciphers: str = ""  # of TLS 1.2: those of 1.3 are all sound

    def apply_to(self, context: ssl.SSLContext) -> None:
        context.minimum_version = self.versions[0] if self.versions else ssl.TLSVersion.TLSv1_2
        if self.versions:
            context.maximum_version = self.versions[-1]
        if self.ciphers:
            context.set_ciphers(self.ciphers)
        # One who asks again and again for new keys costs a server more than it costs them.
        context.options |= ssl.OP_NO_RENEGOTIATION


class WatchedContext:
    """A context made from files; once one of them is replaced, it is made anew for the next connection."""

    def __init__(self, load: Callable[[], ssl.SSLContext], paths: Sequence[str]) -> None:
        """Load it. Raises TlsError, as `load` does."""
        self._load = load
        self._paths = paths
        self._stamps = self._read_stamps()
        self._context = load()

    @property
    def context(self) -> ssl.SSLContext:
        if (stamps := self._read_stamps()) != self._stamps:
            # Where only one of two files has been replaced they do not fit: the old pair serves on.
            self._stamps = stamps
            try:
                self._context = self._load()
                log.info("certificates read again from=%s", ", ".join(self._paths))
            except TlsError as error:
                log.warning("the certificates stay as they were: %s", error)
        return self._context

    def _read_stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._paths]


class ServerTls:
    """The TLS side of a listening port. Files that are replaced are read again for the next connection."""

    def __init__(
        self,
        mode: TlsMode,
        files: TlsFiles,
        *,
        alpn: Sequence[str] = (),
        limits: TlsLimits | None = None,
        trust_cert_path: str | None = None,
        needs_client: bool = False,
        are_watched: bool = True,
        mode_key: str = "tls.server.mode",
    ) -> None:
        """Read the files. Raises TlsError. `alpn`: the protocols that may be agreed on, the first one first.

        With `trust_cert_path` a client is asked for a certificate, which must then be of those authorities; with
        `needs_client` it must have one.
        """
        self.mode = mode
        self.mode_key = mode_key  # of the conf, for those who are refused
        self._files = files
        self._alpn = alpn
        self._limits = limits or TlsLimits()
        self._trust_cert_path = trust_cert_path
        self._needs_client = needs_client
        paths = [*files.paths, *([trust_cert_path] if trust_cert_path else [])]
        self._watched = WatchedContext(self._load, paths if are_watched else [])

    @property
    def context(self) -> ssl.SSLContext:
        """For one connection."""
        return self._watched.context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._limits.apply_to(context)
        if self._alpn:
            context.set_alpn_protocols(list(self._alpn))
        if self._trust_cert_path is not None:
            context.verify_mode = ssl.CERT_REQUIRED if self._needs_client else ssl.CERT_OPTIONAL
            load_trust(context, self._trust_cert_path)
        load_key_pair(context, self._files)
        return context


def load_key_pair(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Raises TlsError."""
    for path in files.paths:
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise TlsError(f"{path} cannot be read: {os.strerror(error.errno or 0).lower()}") from None
    # A text: without one OpenSSL would ask at the terminal.
    try:
        password = files.key_password.reveal()
    except SecretError as error:
        raise TlsError(str(error)) from None
    try:
        context.load_cert_chain(files.cert_path, files.key_path, password)
    except (OSError, ValueError) as error:  # those of TLS are of OSError's kind
        raise TlsError(
            f"{files.cert_path} and {files.key_path} are no certificate with its key: {reason_of(error)}"
        ) from None


def load_trust(context: ssl.SSLContext, path: str) -> None:
    """Raises TlsError."""
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise TlsError(f"{path} has no certificate to trust: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """Why TLS could not be, without OpenSSL's numbers and places."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


def _stamp(path: str) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None: it cannot be read."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
