"""A broker's configuration, read from RocketMQ's properties and written as such.

What is missing and has no fixed default is found here: a member's from its group, a plain broker's from its machine.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

from broker.broker_config import BrokerConfig, DLedgerGroupConfig, FlushDiskType, MessageStoreConfig
from broker.broker_settings import BROKER_SETTINGS, DLEDGER_SETTINGS, STORE_SETTINGS
from remoting.configuration import (
    ConfigError,
    Property,
    Setting,
    parse_conf_file,
    read_settings,
)

_SETTINGS: Mapping[str, Setting] = {**BROKER_SETTINGS, **DLEDGER_SETTINGS, **STORE_SETTINGS}


def load_broker_config(
    path: str | None, overrides: Mapping[str, str] | None = None
) -> tuple[BrokerConfig, list[str]]:
    """The configuration of a conf file (None: none) with `overrides` on top, and warnings for the log.

    Raises ConfigError for what cannot be used, and OSError when the file cannot be read.
    """
    properties = []
    if path is not None:
        properties = parse_conf_file(
            Path(path).read_text(encoding="utf-8", errors="replace"), path, _SETTINGS
        )
    for key, value in (overrides or {}).items():
        properties.append(Property(key, value, 0, "command line"))
    return read_broker_config(properties, path or "no conf file given (-c FILE)")


def read_broker_config(properties: list[Property], source: str) -> tuple[BrokerConfig, list[str]]:
    """As load_broker_config, of pairs that are already read; `source` is where a missing one should have been."""
    values, warnings = read_settings(properties, _SETTINGS)
    root = values.setdefault("store_path_root_dir", str(Path.home() / "store"))
    values.setdefault("store_path_commit_log", f"{root}/commitlog")
    is_group = values.pop("enable_dleger_commit_log", False)
    if is_group:
        _set_group_defaults(values, source)
    else:
        _set_plain_defaults(values, properties, source)
    try:
        config = BrokerConfig(
            dledger=DLedgerGroupConfig(**_take(values, DLedgerGroupConfig)) if is_group else None,
            store=MessageStoreConfig(**_take(values, MessageStoreConfig)),
            **_take(values, BrokerConfig),
        )
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    _check_ports(config, source)
    # RocketMQ keeps the period between 10 s and a minute whatever the file says.
    period = min(max(config.register_name_server_period_ms, 10_000), 60_000)
    if period != config.register_name_server_period_ms:
        warnings.append(
            f"{source}: registerNameServerPeriod={config.register_name_server_period_ms} is taken as {period} ms"
        )
        config = replace(config, register_name_server_period_ms=period)
    return config, warnings


def _set_group_defaults(values: dict[str, Any], source: str) -> None:
    for field, key in (("group", "dLegerGroup"), ("self_id", "dLegerSelfId"), ("peers", "dLegerPeers")):
        if field not in values:
            raise ConfigError(f"{source}: {key} is missing; enableDLegerCommitLog=true needs it")
    values.setdefault("peer_dial", {})
    peers = values["peers"]
    self_id = values["self_id"]
    assert isinstance(peers, dict)
    # A group on one machine is told apart by its Raft addresses; elsewhere the member's own one is reachable.
    own_host = peers[self_id].host if self_id in peers else "127.0.0.1"
    values.setdefault("broker_ip1", own_host)
    # RocketMQ falls back to the host's name, by which members on two hosts would be two brokers.
    values.setdefault("broker_name", values["group"])


def _set_plain_defaults(values: dict[str, Any], properties: list[Property], source: str) -> None:
    given = [item.key for item in properties]
    group_keys = [key for key in given if key in DLEDGER_SETTINGS]
    if group_keys and "enableDLegerCommitLog" not in given:
        # Taken for a plain broker, each member of a group would begin a log of its own.
        raise ConfigError(
            f"{source}: {group_keys[0]} is for a member of a DLedger group: say enableDLegerCommitLog=true, or false "
            "for a plain broker"
        )
    if values.get("broker_role") == "SLAVE":
        raise ConfigError(
            f"{source}: brokerRole=SLAVE: a plain broker has no slaves here. For copies that take over, run a DLedger "
            "group (enableDLegerCommitLog=true)"
        )
    values.setdefault("broker_ip1", _own_address())
    values.setdefault("broker_name", socket.gethostname())
    # RocketMQ's: nobody else holds what a power cut takes, but this is what its users have measured and chosen.
    values.setdefault("flush_disk_type", FlushDiskType.ASYNC_FLUSH)


def _own_address() -> str:
    """By which other machines reach this one, 127.0.0.1 if there are none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _check_ports(config: BrokerConfig, source: str) -> None:
    """Bound one after the other, the later one would only be told that somebody has the port."""
    dledger = config.dledger
    keys = {config.listen_port: "listenPort"}
    others = [("pyDLedgerHttpPort", config.http_port)]
    if dledger is not None:
        raft_port = dledger.peers[dledger.self_id].port
        others.insert(0, (f"dLegerPeers of {dledger.self_id}", raft_port))
    for key, port in others:
        if port is None:
            continue
        if port in keys:
            raise ConfigError(
                f"{source}: {keys[port]} and {key} are both {port}; each needs a port of its own"
            )
        keys[port] = key


def _take(values: Mapping[str, object], kind: type) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in values.items() if name in names}


def shown_settings(config: BrokerConfig) -> dict[str, str]:
    """RocketMQ's keys and their values now, as GET_BROKER_CONFIG answers them. Secrets are left out.

    As a conf file they make the same broker, a secret apart.
    """
    shown = {"enableDLegerCommitLog": _shown("", config.dledger is not None)}
    for settings, part in (
        (BROKER_SETTINGS, config),
        (DLEDGER_SETTINGS, config.dledger),
        (STORE_SETTINGS, config.store),
    ):
        for key, setting in settings.items():
            value = getattr(part, setting.field, None)
            if value is None or value == {} or setting.field == "cluster_secret":
                continue
            shown[key] = _shown(key, value)
    return shown


def _shown(key: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Enum():
            return str(value.value)
        case tuple():
            return ";".join(value)
        case Mapping():
            separator = "-" if key == "dLegerPeers" else "="
            return ";".join(f"{member_id}{separator}{address}" for member_id, address in value.items())
    return str(value)
