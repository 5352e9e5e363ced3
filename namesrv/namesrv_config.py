"""What a NameServer can be told: RocketMQ's namesrv.conf, or nothing at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from auth.conf_values import networks_of, users_of
from auth.policy import Network
from auth.user import User
from remoting.configuration import (
    ConfigError,
    Property,
    Setting,
    altered_warnings,
    boolean,
    host,
    load_conf_file,
    read_settings,
    switch,
    whole_number,
    words,
)
from remoting.connection_limits import CONNECTIONS_MAX
from remoting.secret import with_secret_files
from remoting.security_switches import check_security_switches
from remoting.tls_settings import TLS_SETTINGS, TlsConfig, take_tls_config, with_tls_file

ADMIN_FROM_KEY: Final = "pyDLedgerAdminFrom"
USERS_KEY: Final = "pyDLedgerUsers"


class NamesrvConfig(msgspec.Struct, frozen=True, kw_only=True):
    bind_address: str = "0.0.0.0"
    listen_port: int = 9876
    kv_config_path: str | None = None  # None: key-value pairs live in memory only
    scan_not_active_broker_interval_ms: int = 5000
    server_channel_max_idle_time_seconds: int = 120  # 0: no connection is closed for being idle
    max_connections: int = CONNECTIONS_MAX
    tls: TlsConfig = TlsConfig()
    allow_open: bool = False
    open_switches: tuple[str, ...] = ()  # security switches of the conf that have no effect
    authentication_enabled: bool = False
    users: tuple[User, ...] = ()
    admin_from: tuple[Network, ...] = ()  # beside loopback; counts without authentication

    def __post_init__(self) -> None:
        if self.authentication_enabled and not any(user.is_super for user in self.users):
            raise ConfigError(
                f"authenticationEnabled=true needs a super user in {USERS_KEY}, as which brokers register"
            )


NAMESRV_SETTINGS: Mapping[str, Setting] = {
    "bindAddress": host("bind_address"),
    "listenPort": whole_number("listen_port", 0, 65535, is_clamped=False),
    "kvConfigPath": words("kv_config_path"),
    "scanNotActiveBrokerInterval": whole_number("scan_not_active_broker_interval_ms", 10, 2**31 - 1, "ms"),
    "serverChannelMaxIdleTimeSeconds": whole_number(
        "server_channel_max_idle_time_seconds", 0, 2**31 - 1, "seconds"
    ),
    **TLS_SETTINGS,
    "pyDLedgerMaxConnections": whole_number("max_connections", 1, 2**31 - 1),
    "pyDLedgerAllowOpen": boolean("allow_open"),
    "authenticationEnabled": switch("authentication_enabled"),
    USERS_KEY: Setting(
        "users", users_of, '[{"username":"...","password":"...","userType":"Super"}]', is_secret=True
    ),
    ADMIN_FROM_KEY: Setting(
        "admin_from", networks_of, "addresses or networks such as 10.0.0.0/8, joined by ,"
    ),
}


def load_namesrv_config(
    path: str | None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[NamesrvConfig, list[str]]:
    """The configuration of a conf file (None: none) with `overrides` on top, and warnings for the log.

    Raises ConfigError for what cannot be used, and OSError when the file cannot be read.
    """
    properties = [] if path is None else load_conf_file(path, NAMESRV_SETTINGS)
    properties += [Property(key, value, 0, "command line") for key, value in (overrides or {}).items()]
    properties = with_secret_files(with_tls_file(properties), NAMESRV_SETTINGS, environment)
    found = read_settings(properties, NAMESRV_SETTINGS)
    not_served = [item for item in properties if item.key not in NAMESRV_SETTINGS]
    open_switches = check_security_switches(not_served, found.values.get("allow_open", False), "NameServer")
    tls = take_tls_config(found.values, path or "no conf file given (-c FILE)", environment)
    config = NamesrvConfig(**found.values, tls=tls, open_switches=open_switches)
    return config, found.warnings + altered_warnings(found.altered, shown_settings(config))


def shown_settings(config: NamesrvConfig) -> dict[str, str]:
    """RocketMQ's keys and their values now, as GET_NAMESRV_CONFIG answers them."""
    return {
        key: _shown(value)
        for key, setting in NAMESRV_SETTINGS.items()
        for part in (config.tls if key in TLS_SETTINGS else config,)
        if not setting.is_secret and (value := getattr(part, setting.field, None)) is not None
    }


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
