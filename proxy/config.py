"""What a proxy can be told: RocketMQ's rmq-proxy.json, flags, or nothing at all."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import orjson

from auth.conf_values import credentials_of
from auth.credentials import Credentials
from remoting.address import Address, check_diallable, parse_address
from remoting.configuration import (
    ConfigError,
    Property,
    Setting,
    addresses,
    altered_warnings,
    boolean,
    host,
    read_settings,
    switch,
    whole_number,
    words,
)
from remoting.secret import NO_SECRET, Secret, secret_settings, take_secret, with_secret_files
from remoting.security_switches import check_security_switches
from remoting.tls import TlsMode
from remoting.tls_settings import (
    CLIENT_TLS_SETTINGS,
    SERVER_PASSWORD_VARIABLE,
    TLS_MODE_SETTING,
    TlsConfig,
    take_tls_config,
    with_tls_file,
)

_DAY_MS: Final = 24 * 60 * 60 * 1000
_COUNT_MAX: Final = 2**31 - 1
_NO_NAMESRV: Final = (
    "no NameServer is named: give -n HOST:PORT, namesrvAddr in the conf, or NAMESRV_ADDR in the environment"
)


class ProxyConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a proxy. Where a setting is a limit, 0 means that there is none, as with RocketMQ."""

    namesrv_addr: tuple[str, ...]
    proxy_mode: str = "CLUSTER"
    bind_address: str = "0.0.0.0"
    grpc_server_port: int = 8081
    advertised_endpoint: Address | None = None  # None: the address by which a client asks
    use_endpoint_port_from_request: bool = True
    grpc_max_inbound_message_size: int = 130 * 1024 * 1024
    grpc_client_idle_time_ms: int = 120_000
    grpc_shutdown_time_seconds: int = 30
    # Whether to make a certificate; None: only where the proxy listens on loopback.
    tls_test_mode_enable: bool | None = None
    tls_key_path: str | None = None
    tls_cert_path: str | None = None
    tls_key_password: Secret = NO_SECRET
    tls_server_mode: TlsMode = TlsMode.PERMISSIVE
    tls: TlsConfig = TlsConfig()  # towards NameServers and brokers
    accept_proxy_protocol: bool = False  # trust what a load balancer says of a client's address
    # Brokers say what clients may do; the proxy asks them, and signs what it asks.
    authentication_enabled: bool = False
    authorization_enabled: bool = False
    inner_client_credentials: Credentials | None = None
    # Sends
    max_message_size: int = 4 * 1024 * 1024
    enable_message_body_empty_check: bool = True
    max_user_property_size: int = 16 * 1024
    user_property_max_num: int = 128
    max_message_group_size: int = 64
    max_delay_time_ms: int = _DAY_MS
    max_transaction_recovery_seconds: int = 3600
    enable_topic_message_type_check: bool = True
    # What clients are told
    grpc_client_producer_max_attempts: int = 3
    grpc_client_producer_backoff_initial_ms: int = 10
    grpc_client_producer_backoff_max_ms: int = 1000
    grpc_client_producer_backoff_multiplier: int = 2
    grpc_client_consumer_max_long_polling_timeout_ms: int = 20_000
    grpc_client_consumer_long_polling_batch_size: int = 32
    # Receives
    default_invisible_time_ms: int = 60_000
    min_invisible_time_ms_for_recv: int = 10_000
    max_invisible_time_ms: int = _DAY_MS // 2
    enable_proxy_auto_renew: bool = True
    renew_ahead_time_ms: int = 10_000
    renew_max_time_ms: int = 10_800_000
    renew_schedule_period_ms: int = 5_000
    max_renew_retry_times: int = 3
    invisible_time_ms_when_clear: int = 1_000
    # Clients and brokers
    channel_expired_timeout_ms: int = 120_000
    transaction_heartbeat_period_seconds: int = 20
    topic_config_cache_refresh_seconds: int = 20
    subscription_group_config_cache_refresh_seconds: int = 20
    allow_open: bool = False
    open_switches: tuple[str, ...] = ()  # security switches of the conf that have no effect


def _endpoint(field: str) -> Setting:
    def read(text: str) -> Address:
        address = parse_address(text)
        check_diallable(address.host)
        return address

    return Setting(field, read, "HOST:PORT at which clients reach this proxy, or a balancer in front of it")


def _read_mode(text: str) -> str:
    if text.upper() != "CLUSTER":
        raise ValueError(text)
    return text.upper()


def _count(field: str, unit: str = "", low: int = 0) -> Setting:
    return whole_number(field, low, _COUNT_MAX, unit)


PROXY_SETTINGS: Final[Mapping[str, Setting]] = {
    "namesrvAddr": addresses("namesrv_addr"),
    "proxyMode": Setting("proxy_mode", _read_mode, "CLUSTER: a broker is another process (mqbroker)"),
    "pyDLedgerBindAddress": host("bind_address"),
    "grpcServerPort": whole_number("grpc_server_port", 0, 65535, is_clamped=False),
    "pyDLedgerAdvertisedEndpoint": _endpoint("advertised_endpoint"),
    "useEndpointPortFromRequest": boolean("use_endpoint_port_from_request"),
    "grpcMaxInboundMessageSize": _count("grpc_max_inbound_message_size", "bytes", low=1024),
    "grpcClientIdleTimeMills": _count("grpc_client_idle_time_ms", "ms", low=1000),
    "grpcShutdownTimeSeconds": _count("grpc_shutdown_time_seconds", "seconds"),
    "tlsTestModeEnable": boolean("tls_test_mode_enable"),
    "tlsKeyPath": words("tls_key_path"),
    "tlsCertPath": words("tls_cert_path"),
    **secret_settings("tlsKeyPassword", "tls_key_password"),
    "tls.server.mode": msgspec.structs.replace(TLS_MODE_SETTING, field="tls_server_mode"),
    **CLIENT_TLS_SETTINGS,
    "authenticationEnabled": switch("authentication_enabled"),
    "authorizationEnabled": switch("authorization_enabled"),
    "innerClientAuthenticationCredentials": Setting(
        "inner_client_credentials", credentials_of, '{"accessKey":"...","secretKey":"..."}', is_secret=True
    ),
    "pyDLedgerProxyProtocol": boolean("accept_proxy_protocol"),
    "maxMessageSize": _count("max_message_size", "bytes"),
    "enableMessageBodyEmptyCheck": boolean("enable_message_body_empty_check"),
    "maxUserPropertySize": _count("max_user_property_size", "bytes"),
    "userPropertyMaxNum": _count("user_property_max_num"),
    "maxMessageGroupSize": _count("max_message_group_size", "bytes"),
    "maxDelayTimeMills": _count("max_delay_time_ms", "ms"),
    "maxTransactionRecoverySecond": _count("max_transaction_recovery_seconds", "seconds"),
    "enableTopicMessageTypeCheck": boolean("enable_topic_message_type_check"),
    "grpcClientProducerMaxAttempts": _count("grpc_client_producer_max_attempts", low=1),
    "grpcClientProducerBackoffInitialMillis": _count("grpc_client_producer_backoff_initial_ms", "ms", low=1),
    "grpcClientProducerBackoffMaxMillis": _count("grpc_client_producer_backoff_max_ms", "ms", low=1),
    "grpcClientProducerBackoffMultiplier": _count("grpc_client_producer_backoff_multiplier", low=1),
    "grpcClientConsumerMaxLongPollingTimeoutMillis": _count(
        "grpc_client_consumer_max_long_polling_timeout_ms", "ms"
    ),
    "grpcClientConsumerLongPollingBatchSize": _count("grpc_client_consumer_long_polling_batch_size", low=1),
    "defaultInvisibleTimeMills": _count("default_invisible_time_ms", "ms", low=1),
    "minInvisibleTimeMillsForRecv": _count("min_invisible_time_ms_for_recv", "ms", low=1),
    "maxInvisibleTimeMills": _count("max_invisible_time_ms", "ms", low=1),
    "enableProxyAutoRenew": boolean("enable_proxy_auto_renew"),
    "renewAheadTimeMillis": _count("renew_ahead_time_ms", "ms"),
    "renewMaxTimeMillis": _count("renew_max_time_ms", "ms", low=1),
    "renewSchedulePeriodMillis": _count("renew_schedule_period_ms", "ms", low=10),
    "maxRenewRetryTimes": _count("max_renew_retry_times"),
    "invisibleTimeMillisWhenClear": _count("invisible_time_ms_when_clear", "ms"),
    "channelExpiredTimeout": _count("channel_expired_timeout_ms", "ms", low=1000),
    "transactionHeartbeatPeriodSecond": _count("transaction_heartbeat_period_seconds", "seconds", low=1),
    "topicConfigCacheRefreshSeconds": _count("topic_config_cache_refresh_seconds", "seconds", low=1),
    "subscriptionGroupConfigCacheRefreshSeconds": _count(
        "subscription_group_config_cache_refresh_seconds", "seconds", low=1
    ),
    "pyDLedgerAllowOpen": boolean("allow_open"),
}


def load_proxy_config(
    path: str | None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[ProxyConfig, list[str]]:
    """Read the configuration from a JSON file, if one is given, with `overrides` on top. Returns it and warnings.

    Raises ConfigError for what cannot be used, and OSError when the file cannot be read.
    """
    properties = [] if path is None else _load_json(path)
    if (named := environment.get("NAMESRV_ADDR")) and not any(
        item.key == "namesrvAddr" and item.value for item in properties
    ):
        properties.append(Property("namesrvAddr", named, 0, "NAMESRV_ADDR in the environment"))
    properties += [Property(key, value, 0, "command line") for key, value in (overrides or {}).items()]
    properties = with_tls_file(properties, CLIENT_TLS_SETTINGS)
    properties = with_secret_files(properties, PROXY_SETTINGS, environment)
    found = read_settings(properties, PROXY_SETTINGS)
    source = path or "no conf file given (-pc FILE)"
    if not found.values.get("namesrv_addr"):
        raise ConfigError(f"{source}: {_NO_NAMESRV}")
    switches = [item for item in properties if item.key not in PROXY_SETTINGS]
    open_switches = check_security_switches(switches, found.values.get("allow_open", False), "proxy")
    values = found.values
    take_secret(values, "tlsKeyPassword", "tls_key_password", SERVER_PASSWORD_VARIABLE, environment, source)
    tls = take_tls_config(values, source, environment)
    config = ProxyConfig(**values, tls=tls, open_switches=open_switches)
    if (config.tls_key_path is None) != (config.tls_cert_path is None):
        raise ConfigError(f"{source}: tlsKeyPath and tlsCertPath go together: give both, or none")
    _check_access(config, source)
    return config, found.warnings + altered_warnings(found.altered, shown_settings(config))


def _check_access(config: ProxyConfig, source: str) -> None:
    """Raises ConfigError for a proxy that would let in clients of which it does not know who they are."""
    if config.authorization_enabled and not config.authentication_enabled:
        raise ConfigError(f"{source}: authorizationEnabled=true needs authenticationEnabled=true")
    if (config.inner_client_credentials is not None) != config.authentication_enabled:
        raise ConfigError(
            f"{source}: authenticationEnabled=true and innerClientAuthenticationCredentials go together: "
            "brokers take what the proxy signs for a super user's, whoever its clients are"
        )


def shown_settings(config: ProxyConfig) -> dict[str, str]:
    """Return the keys and values in effect, without secrets. A conf file with these makes the same proxy."""
    shown = {}
    for key, setting in PROXY_SETTINGS.items():
        part = config.tls if key in CLIENT_TLS_SETTINGS else config
        value = getattr(part, setting.field, None)
        if setting.is_secret:
            continue
        if isinstance(value, bool):
            shown[key] = "true" if value else "false"
        elif value is not None:
            shown[key] = ";".join(value) if isinstance(value, tuple) else str(value)
    return shown


def _load_json(path: str) -> list[Property]:
    """Read the pairs of an rmq-proxy.json like those of a properties file. Raises ConfigError, OSError."""
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    try:
        found = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: no JSON: {error.msg}") from None
    if not isinstance(found, dict):
        raise ConfigError(f'{path}: a JSON object is needed, such as {{"namesrvAddr": "127.0.0.1:9876"}}')
    properties = []
    for key, value in found.items():
        line = _line_of(key, text)
        if value is None or value == "":
            continue  # like a key that is missing
        if isinstance(value, dict | list):
            raise ConfigError(f"{path}:{line}: {key} must be a text, a number, true or false")
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        properties.append(Property(key, shown, line, path))
    return properties


def _line_of(key: str, text: str) -> int:
    """Return the number of the line with the key; 0 if it is written with escapes, and so not found."""
    found = re.search(rf'"{re.escape(key)}"\s*:', text)
    return text.count("\n", 0, found.start()) + 1 if found else 0
