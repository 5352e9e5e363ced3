"""TLS for every port: contexts from the files of keys and certificates, which are read again when they change.

Java's words: with `permissive` one port takes TLS and plaintext, with `enforcing` TLS alone, with `disabled` none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from remoting.errors import RemotingConnectError, RemotingUntrustedError
from remoting.secret import NO_SECRET, Secret, SecretError
from remoting.tls_buffers import keep_buffers_apart

log = logging.getLogger(__name__)

# OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which ssl has no name for.
_WHENEVER: Final = 0x200000
# Before its end a certificate is warned of at each start, and each time it is read.
SOON_DAYS: Final = 14
_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side shows no certificate (tls.client.certPath), and must",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not trust the certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the certificate",
    "WRONG_VERSION_NUMBER": "the other side speaks no TLS",
}
HANDSHAKE_ENDED: Final = "the peer has ended the TLS handshake: it takes plaintext only, or its log says why"
# OpenSSL's X509_V_ERR_…: the chain ends at a certificate that nobody has been told to trust.
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)


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
        self._not_after_s: float | None = None
        paths = [*files.paths, *([trust_cert_path] if trust_cert_path else [])]
        self._watched = WatchedContext(self._load, paths if are_watched else [])
        keep_buffers_apart()

    @property
    def context(self) -> ssl.SSLContext:
        """For one connection."""
        return self._watched.context

    @property
    def certificate_ends(self) -> dict[str, float]:
        """The end of the certificate that is shown now, in seconds since 1970, by its file; empty for one that no
        client could take.
        """
        _ = self.context  # of files that have been replaced
        return {} if self._not_after_s is None else {self._files.cert_path: self._not_after_s}

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._limits.apply_to(context)
        if self._alpn:
            context.set_alpn_protocols(list(self._alpn))
        load_key_pair(context, self._files)
        not_after_s = self._look_at_certificate(context)
        if self._trust_cert_path is not None:
            context.verify_mode = ssl.CERT_REQUIRED if self._needs_client else ssl.CERT_OPTIONAL
            load_trust(context, self._trust_cert_path)
        self._not_after_s = not_after_s
        return context

    def _look_at_certificate(self, context: ssl.SSLContext) -> float | None:
        """Warn before clients refuse the certificate. Returns its end in seconds since 1970, if one could take it."""
        path = self._files.cert_path
        try:
            until = self._end_for_client(context, 0)
        except ssl.SSLError as error:
            log.warning("%s: clients that look at certificates refuse it: %s", path, reason_of(error))
            with contextlib.suppress(ssl.SSLError):
                return ssl.cert_time_to_seconds(self._end_for_client(context, _WHENEVER))
            return None
        not_after_s = ssl.cert_time_to_seconds(until)
        if not_after_s < time.time() + SOON_DAYS * 86400:
            log.warning("%s is good until %s only: put a new one into its place", path, until)
        return not_after_s

    def _end_for_client(self, context: ssl.SSLContext, flags: int) -> str:
        """The end of the certificate as a client of our own sees it. Raises ssl.SSLError where that refuses it."""
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._limits.apply_to(client)
        client.check_hostname = False
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | flags  # whoever has signed it
        load_trust(client, self._files.cert_path)
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        asking = client.wrap_bio(to_client, to_server)
        serving = context.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            with contextlib.suppress(ssl.SSLWantReadError):
                asking.do_handshake()
                break
            with contextlib.suppress(ssl.SSLWantReadError):
                serving.do_handshake()
        found = asking.getpeercert() or {}
        return str(found["notAfter"])


def load_key_pair(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Raises TlsError."""
    key = _read_pem(files.key_path, b"PRIVATE KEY-----", "private key")
    _read_pem(files.cert_path, b"CERTIFICATE-----", "certificate")
    try:
        password = files.key_password.reveal()
    except SecretError as error:
        raise TlsError(str(error)) from None
    is_locked = b"ENCRYPTED" in key
    if is_locked and not password:
        raise TlsError(f"{files.key_path} is encrypted: give its keyPassword or keyPasswordFile")
    try:
        # A text: without one OpenSSL would ask at the terminal.
        context.load_cert_chain(files.cert_path, files.key_path, password)
    except (OSError, ValueError) as error:  # those of TLS are of OSError's kind
        cause = reason_of(error)
        if isinstance(error, ssl.SSLError) and error.reason is None:
            cause = "the password is another one" if is_locked else "one of them is damaged"
        raise TlsError(
            f"{files.cert_path} and {files.key_path} are no certificate with its key: {cause}"
        ) from None


def _read_pem(path: str, mark: bytes, what: str) -> bytes:
    """Of two files OpenSSL does not say which one is wrong."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise TlsError(f"{path} cannot be read: {reason}; it must be a file with a {what}") from None
    if mark not in text:
        raise TlsError(f"{path} has no {what} in PEM form")
    return text


def load_trust(context: ssl.SSLContext, path: str) -> None:
    """Raises TlsError."""
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise TlsError(f"{path} has no certificate to trust: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """Why TLS could not be, without OpenSSL's numbers and places."""
    if isinstance(error, ssl.SSLCertVerificationError):
        cure = "; trustCertPath must have its authority" if error.verify_code in _UNKNOWN_AUTHORITY else ""
        return f"the certificate is not trusted: {error.verify_message}{cure}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _REASONS.get(error.reason, error.reason.lower().replace("_", " "))
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error) or "the other side has ended it, as one does that does not trust the certificate"


def no_tls(address: str, error: ssl.SSLError) -> RemotingConnectError:
    """What a client is told of a handshake that failed."""
    is_untrusted = isinstance(error, ssl.SSLCertVerificationError)
    kind = RemotingUntrustedError if is_untrusted else RemotingConnectError
    reason = HANDSHAKE_ENDED if isinstance(error, ssl.SSLEOFError) else f"no TLS: {reason_of(error)}"
    return kind(f"{address}: {reason}")


def why_closed(*, is_tls: bool) -> str:
    """What to guess of a peer that has closed a connection on which it has said nothing."""
    if is_tls:
        return ": it may want a certificate that it trusts (tls.client.certPath)"
    return ": it may take TLS only (tls.server.mode=enforcing)"


def _stamp(path: str) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None: it cannot be read."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
