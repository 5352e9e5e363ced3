"""What a NameServer can be told: RocketMQ's namesrv.conf, or nothing at all."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from remoting.configuration import (
    Property,
    Setting,
    altered_warnings,
    boolean,
    host,
    load_conf_file,
    read_settings,
    whole_number,
    words,
)
from remoting.security_switches import check_security_switches


class NamesrvConfig(msgspec.Struct, frozen=True, kw_only=True):
    bind_address: str = "0.0.0.0"
    listen_port: int = 9876
    kv_config_path: str | None = None  # None: key-value pairs live in memory only
    scan_not_active_broker_interval_ms: int = 5000
    server_channel_max_idle_time_seconds: int = 120  # 0: no connection is closed for being idle
    allow_open: bool = False
    open_switches: tuple[str, ...] = ()  # security switches of the conf that have no effect


NAMESRV_SETTINGS: Mapping[str, Setting] = {
    "bindAddress": host("bind_address"),
    "listenPort": whole_number("listen_port", 0, 65535, is_clamped=False),
    "kvConfigPath": words("kv_config_path"),
    "scanNotActiveBrokerInterval": whole_number("scan_not_active_broker_interval_ms", 10, 2**31 - 1, "ms"),
    "serverChannelMaxIdleTimeSeconds": whole_number(
        "server_channel_max_idle_time_seconds", 0, 2**31 - 1, "seconds"
    ),
    "pyDLedgerAllowOpen": boolean("allow_open"),
}


def load_namesrv_config(
    path: str | None, overrides: Mapping[str, str] | None = None
) -> tuple[NamesrvConfig, list[str]]:
    """The configuration of a conf file (None: none) with `overrides` on top, and warnings for the log.

    Raises ConfigError for what cannot be used, and OSError when the file cannot be read.
    """
    properties = [] if path is None else load_conf_file(path, NAMESRV_SETTINGS)
    properties += [Property(key, value, 0, "command line") for key, value in (overrides or {}).items()]
    found = read_settings(properties, NAMESRV_SETTINGS)
    open_switches = check_security_switches(properties, found.values.get("allow_open", False), "NameServer")
    config = NamesrvConfig(**found.values, open_switches=open_switches)
    return config, found.warnings + altered_warnings(found.altered, shown_settings(config))


def shown_settings(config: NamesrvConfig) -> dict[str, str]:
    """RocketMQ's keys and their values now, as GET_NAMESRV_CONFIG answers them."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, setting in NAMESRV_SETTINGS.items()
        if (value := getattr(config, setting.field)) is not None
    }
