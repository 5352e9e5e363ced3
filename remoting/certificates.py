"""Keys and certificates made here: a self-made one for tries, and those of a small authority for a cluster.

The library `cryptography` makes them. Servers and clients that are given files do not need it.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remoting.tls import ServerTls, TlsError, TlsFiles, TlsMode

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

log = logging.getLogger(__name__)

SELF_MADE_DAYS: Final = 365
_CLOCKS_DIFFER: Final = timedelta(days=1)


def own_names() -> list[str]:
    """Those of this machine, by which it is reached from itself."""
    return ["localhost", "127.0.0.1", "::1", socket.gethostname()]


def self_made_tls(mode: TlsMode, *, alpn: Sequence[str] = (), hosts: Sequence[str] = ()) -> ServerTls:
    """Make a key and a certificate that nobody vouches for, good for tries and tests. Raises TlsError.

    Clients must trust any certificate, as most RocketMQ clients do.
    """
    with tempfile.TemporaryDirectory(prefix="pydledger-tls-") as folder:
        files = TlsFiles(key_path=f"{folder}/self-made.key", cert_path=f"{folder}/self-made.crt")
        write_self_made_certificate(files, hosts)
        tls = ServerTls(mode, files, alpn=alpn, are_watched=False)
    log.warning("TLS with a self-made certificate: clients cannot know who answers them")
    return tls


def write_self_made_certificate(files: TlsFiles, hosts: Sequence[str] = ()) -> None:
    """Write a new key and its certificate for this machine's names, those of loopback and `hosts`. Raises TlsError."""
    authority = Authority.make("PyDLedger, self-made", SELF_MADE_DAYS, [*own_names(), *hosts])
    authority.write(files)


@dataclass(frozen=True, slots=True)
class Authority:
    """A key, and the certificate that others trust for its sake."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, name: str, days: int, hosts: Sequence[str] = ()) -> Authority:
        """Make a new one. With `hosts` it may be shown by a server as well. Raises TlsError."""
        _check_library()
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        builder = _begun(name, name, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_uses_of_authority(), critical=True)
        if hosts:
            builder = builder.add_extension(_alternative_names(hosts), critical=False)
        return cls(key, _signed(builder, key))

    @classmethod
    def load(cls, files: TlsFiles) -> Authority:
        """Read one that was written. Raises TlsError."""
        _check_library()
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            key = serialization.load_pem_private_key(Path(files.key_path).read_bytes(), None)
            certificate = x509.load_pem_x509_certificate(Path(files.cert_path).read_bytes())
        except OSError as error:
            raise TlsError(f"{error.filename} cannot be read: {error.strerror}") from None
        except (TypeError, ValueError) as error:
            raise TlsError(
                f"{files.key_path} and {files.cert_path} are no key with its certificate: {error}"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TlsError(f"{files.key_path} is no key that was made here: it is of another kind")
        return cls(key, certificate)

    def issue(self, files: TlsFiles, name: str, days: int, hosts: Sequence[str] = ()) -> None:
        """Write a new key and a certificate of this authority: with `hosts` for a server and a client, else for a
        client alone.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
        builder = _begun(name, str(issuer), key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(_alternative_names(hosts), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
        )
        _write(files, key, _signed(builder, self.key))

    def write(self, files: TlsFiles) -> None:
        _write(files, self.key, self.certificate)


def _check_library() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise TlsError("certificates are made by cryptography: pip install 'pydledger[tls]'") from None


def _begun(
    name: str, issuer: str, public_key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _uses_of_authority() -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _alternative_names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    from cryptography import x509

    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _write(files: TlsFiles, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    """The key for its owner alone, and first: servers that watch the files take the two once they fit."""
    from cryptography.hazmat.primitives import serialization

    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(files.key_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
    Path(files.cert_path).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
