"""RocketMQ's keys for TLS, as servers and clients read them from a conf file or from a tls.properties beside it."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from remoting.certificates import self_made_tls
from remoting.client_tls import ClientTls
from remoting.configuration import (
    ConfigError,
    Property,
    Setting,
    load_conf_file,
    read_settings,
    switch,
    words,
)
from remoting.secret import NO_SECRET, Secret, secret_settings, take_secret
from remoting.tls import ServerTls, TlsFiles, TlsLimits, TlsMode

log = logging.getLogger(__name__)

CONFIG_FILE_KEY: Final = "tls.config.file"
SERVER_PASSWORD_VARIABLE: Final = "PYDLEDGER_TLS_SERVER_KEY_PASSWORD"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_PASSWORDS: Final = (
    ("tls.server.keyPassword", "server_key_password", SERVER_PASSWORD_VARIABLE),
    ("tls.client.keyPassword", "client_key_password", "PYDLEDGER_TLS_CLIENT_KEY_PASSWORD"),
)


class ClientAuth(StrEnum):
    """Whether a server asks for a client's certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides of TLS in one process. Defaults are RocketMQ's unless a comment says why not."""

    server_mode: TlsMode = TlsMode.PERMISSIVE
    # RocketMQ's is true: a certificate that nobody can check, and clients that check none.
    test_mode_enable: bool = False
    server_key_path: str | None = None
    server_key_password: Secret = NO_SECRET
    server_cert_path: str | None = None
    server_auth_client: bool = False
    server_need_client_auth: ClientAuth = ClientAuth.NONE
    server_trust_cert_path: str | None = None
    client_enable: bool | None = None  # None: where the mode is enforcing, as with RocketMQ
    client_key_path: str | None = None
    client_key_password: Secret = NO_SECRET
    client_cert_path: str | None = None
    client_auth_server: bool = True  # RocketMQ's is false: whoever answers would be believed
    client_trust_cert_path: str | None = None  # None: what this machine trusts
    check_host_name: bool = True  # RocketMQ does not
    protocols: str | None = None
    ciphers: str | None = None
    config_file: str | None = None

    @property
    def client_files(self) -> TlsFiles | None:
        """None: this process shows no certificate."""
        if self.client_key_path is None or self.client_cert_path is None:
            return None
        return TlsFiles(
            key_path=self.client_key_path,
            cert_path=self.client_cert_path,
            key_password=self.client_key_password,
        )

    @property
    def limits(self) -> TlsLimits:
        versions = tuple(sorted({_VERSIONS[name] for name in _names(self.protocols or "")}))
        return TlsLimits(versions=versions, ciphers=(self.ciphers or "").replace(",", ":"))

    @property
    def has_server_certificate(self) -> bool:
        return self.server_key_path is not None and self.server_cert_path is not None

    @property
    def server_files(self) -> TlsFiles:
        assert self.server_key_path is not None, "has_server_certificate"
        assert self.server_cert_path is not None, "has_server_certificate"
        return TlsFiles(
            key_path=self.server_key_path,
            cert_path=self.server_cert_path,
            key_password=self.server_key_password,
        )


def _read_mode(text: str) -> TlsMode:
    """Not one_of(), which takes the default for a mistyped mode: that would open the port to plaintext."""
    return TlsMode(text.lower())


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _protocols(text: str) -> str:
    if not _names(text) or not set(_names(text)) <= _VERSIONS.keys():
        raise ValueError(text)
    return ",".join(_names(text))


def _ciphers(text: str) -> str:
    names = _names(text)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(":".join(names))
    except ssl.SSLError:
        raise ValueError(text) from None
    return ",".join(names)


TLS_MODE_SETTING: Final = Setting("server_mode", _read_mode, "one of " + ", ".join(TlsMode))

CLIENT_TLS_SETTINGS: Final[Mapping[str, Setting]] = {
    "tls.enable": switch("client_enable"),
    "tls.client.keyPath": words("client_key_path"),
    **secret_settings("tls.client.keyPassword", "client_key_password"),
    "tls.client.certPath": words("client_cert_path"),
    "tls.client.authServer": switch("client_auth_server"),
    "tls.client.trustCertPath": words("client_trust_cert_path"),
    "pyDLedgerTlsCheckHostName": switch("check_host_name"),
    "tls.protocols": Setting("protocols", _protocols, "TLSv1.2, TLSv1.3 or both, joined by ,"),
    "tls.ciphers": Setting("ciphers", _ciphers, "names that OpenSSL has for cipher suites, joined by ,"),
    CONFIG_FILE_KEY: words("config_file"),
}

TLS_SETTINGS: Final[Mapping[str, Setting]] = {
    "tls.server.mode": TLS_MODE_SETTING,
    "tls.test.mode.enable": switch("test_mode_enable"),
    "tls.server.keyPath": words("server_key_path"),
    **secret_settings("tls.server.keyPassword", "server_key_password"),
    "tls.server.certPath": words("server_cert_path"),
    "tls.server.authClient": switch("server_auth_client"),
    "tls.server.need.client.auth": Setting(
        "server_need_client_auth", lambda text: ClientAuth(text.lower()), "one of " + ", ".join(ClientAuth)
    ),
    "tls.server.trustCertPath": words("server_trust_cert_path"),
    **CLIENT_TLS_SETTINGS,
}


def with_tls_file(
    properties: Sequence[Property], wanted: Mapping[str, Setting] = TLS_SETTINGS
) -> list[Property]:
    """`properties`, and those `wanted` of the file that `tls.config.file` names; the file wins, as with RocketMQ.

    Raises ConfigError for a file that cannot be read.
    """
    named = [item for item in properties if item.key == CONFIG_FILE_KEY and item.value]
    if not named:
        return list(properties)
    item = named[-1]
    try:
        found = load_conf_file(item.value, TLS_SETTINGS)
    except OSError as error:
        raise ConfigError(
            f"{item.where}: {CONFIG_FILE_KEY}={item.value} cannot be read: {error.strerror}"
        ) from None
    return [*properties, *(item for item in found if item.key in wanted or item.key not in TLS_SETTINGS)]


def take_tls_config(
    values: dict[str, Any], source: str, environment: Mapping[str, str] = os.environ
) -> TlsConfig:
    """Take the settings of TLS out of `values`. Raises ConfigError for what does not go together."""
    for key, field, variable in _PASSWORDS:
        take_secret(values, key, field, variable, environment, source)
    own = {name: values.pop(name) for name in TlsConfig.__struct_fields__ if name in values}
    config = TlsConfig(**own)
    for side in ("server", "client"):
        if (getattr(config, f"{side}_key_path") is None) != (getattr(config, f"{side}_cert_path") is None):
            raise ConfigError(
                f"{source}: tls.{side}.keyPath and tls.{side}.certPath go together: give both, or none"
            )
    if (
        config.server_mode is TlsMode.ENFORCING
        and not config.has_server_certificate
        and not config.test_mode_enable
    ):
        raise ConfigError(
            f"{source}: tls.server.mode=enforcing, and no certificate: give tls.server.keyPath and "
            "tls.server.certPath (`mq tls init` makes them)"
        )
    if config.server_auth_client and config.server_need_client_auth is ClientAuth.NONE:
        raise ConfigError(
            f"{source}: tls.server.authClient=true checks no client that is not asked for its certificate: "
            "say tls.server.need.client.auth=require, or optional"
        )
    if config.server_need_client_auth is not ClientAuth.NONE and config.server_trust_cert_path is None:
        raise ConfigError(
            f"{source}: tls.server.need.client.auth={config.server_need_client_auth} needs "
            "tls.server.trustCertPath, the certificates by which those of clients are checked"
        )
    return config


def server_tls(config: TlsConfig, *, alpn: Sequence[str] = ()) -> ServerTls | None:
    """Make the TLS side of a port; None: the port takes plaintext only. Raises TlsError."""
    mode = config.server_mode
    if mode is TlsMode.DISABLED:
        return None
    if config.test_mode_enable:
        return self_made_tls(mode, alpn=alpn)
    if not config.has_server_certificate:
        return None
    need = config.server_need_client_auth
    return ServerTls(
        mode,
        config.server_files,
        alpn=alpn,
        limits=config.limits,
        trust_cert_path=None if need is ClientAuth.NONE else config.server_trust_cert_path,
        needs_client=need is ClientAuth.REQUIRE,
    )


def client_tls(config: TlsConfig) -> ClientTls | None:
    """Make the TLS side of connections to servers; None: they are plaintext. Raises TlsError."""
    is_enabled = config.client_enable
    if is_enabled is None:
        is_enabled = config.server_mode is TlsMode.ENFORCING
    if not is_enabled:
        return None
    checks_server = config.client_auth_server and not config.test_mode_enable
    if not checks_server:
        log.warning("TLS without a look at servers' certificates: nobody knows who answers")
    return ClientTls(
        trust_cert_path=config.client_trust_cert_path,
        files=config.client_files,
        checks_server=checks_server,
        checks_host_name=config.check_host_name,
        limits=config.limits,
    )


def client_tls_from_file(path: str) -> ClientTls | None:
    """Make the TLS side of a client by a file of RocketMQ's keys. TLS is on, unless it says tls.enable=false.

    Raises ConfigError, OSError, TlsError.
    """
    properties = load_conf_file(path, TLS_SETTINGS)
    found = read_settings(properties, TLS_SETTINGS)
    for warning in found.warnings:
        log.warning("%s", warning)
    found.values.setdefault("client_enable", True)
    return client_tls(take_tls_config(found.values, path))
