"""A broker's configuration, read from RocketMQ's properties and written as such.

What is missing and has no fixed default is found here: a member's from its group, a plain broker's from its machine.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from broker.config.access_settings import ACCESS_SETTINGS, AccessConfig
from broker.config.broker_config import (
    MAPPED_FILE_SIZE_COMMIT_LOG,
    MAX_MESSAGE_SIZE,
    BrokerConfig,
    DLedgerGroupConfig,
    FlushDiskType,
    MessageStoreConfig,
)
from broker.config.broker_settings import BROKER_SETTINGS, DLEDGER_SETTINGS, STORE_SETTINGS
from broker.config.message_limits import body_size_max
from remoting.address import Address, is_loopback
from remoting.configuration import (
    ConfigError,
    Property,
    ReadSettings,
    Setting,
    altered_warnings,
    load_conf_file,
    read_settings,
)
from remoting.lookup import LookUp, ip_addresses, own_address
from remoting.secret import take_secret, with_secret_files
from remoting.security_switches import check_security_switches
from remoting.tls import TlsMode
from remoting.tls_settings import TLS_SETTINGS, take_tls_config, with_tls_file

LOOPBACK = "127.0.0.1"
CLUSTER_SECRET_VARIABLE = "PYDLEDGER_CLUSTER_SECRET"

_SETTINGS: Mapping[str, Setting] = {
    **BROKER_SETTINGS,
    **DLEDGER_SETTINGS,
    **STORE_SETTINGS,
    **ACCESS_SETTINGS,
}
_GROUP_KEYS = frozenset({"enableDLegerCommitLog", *DLEDGER_SETTINGS})


def load_broker_config(
    path: str | None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = os.environ,
    look_up: LookUp = ip_addresses,
) -> tuple[BrokerConfig, list[str]]:
    """The configuration of a conf file (None: none) with `overrides` on top, and warnings for the log.

    NAMESRV_ADDR of the environment counts where neither of the two names NameServers.
    Raises ConfigError for what cannot be used, and OSError when the file cannot be read.
    """
    properties = [] if path is None else load_conf_file(path, _SETTINGS)
    for key, value in (overrides or {}).items():
        properties.append(Property(key, value, 0, "command line"))
    is_named = any(item.key == "namesrvAddr" and item.value for item in properties)
    if not is_named and (namesrv_addr := environment.get("NAMESRV_ADDR")):
        properties.append(Property("namesrvAddr", namesrv_addr, 0, "NAMESRV_ADDR in the environment"))
    source = path or "no conf file given (-c FILE)"
    return read_broker_config(properties, source, look_up, environment)


def read_broker_config(
    properties: list[Property],
    source: str,
    look_up: LookUp = ip_addresses,
    environment: Mapping[str, str] = os.environ,
) -> tuple[BrokerConfig, list[str]]:
    """As load_broker_config, of pairs that are already read; `source` is where a missing one should have been."""
    properties = with_secret_files(with_tls_file(properties), _SETTINGS, environment)
    found = read_settings(properties, _SETTINGS)
    values, warnings = found.values, found.warnings
    not_served = [item for item in properties if item.key not in _SETTINGS]
    values["open_switches"] = check_security_switches(not_served, values.get("allow_open", False), "broker")
    values["tls"] = take_tls_config(values, source, environment)
    take_secret(
        values, "pyDLedgerClusterSecret", "cluster_secret", CLUSTER_SECRET_VARIABLE, environment, source
    )
    root = values.setdefault("store_path_root_dir", str(Path.home() / "store"))
    values.setdefault("store_path_commit_log", f"{root}/commitlog")
    file_size = values.setdefault("mapped_file_size_commit_log", MAPPED_FILE_SIZE_COMMIT_LOG)
    # Only what somebody has asked for is refused where the data files are too small for it.
    values.setdefault("max_message_size", min(MAX_MESSAGE_SIZE, body_size_max(file_size)))
    is_group = values.pop("enable_dleger_commit_log", False)
    if is_group:
        _set_group_defaults(found, source, look_up)
    else:
        _set_plain_defaults(found, properties, source)
    _set_store_ip(values, source, look_up, warnings)
    try:
        config = BrokerConfig(
            dledger=DLedgerGroupConfig(**_take(values, DLedgerGroupConfig)) if is_group else None,
            store=MessageStoreConfig(**_take(values, MessageStoreConfig)),
            access=AccessConfig(**_take(values, AccessConfig)),
            **_take(values, BrokerConfig),
        )
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    _check_ports(config, source)
    _check_peer_tls(config, source)
    if not config.namesrv_addr:
        warnings.append(
            f"{source}: no NameServer is named, so no client finds this broker: give -n ADDR, namesrvAddr, or "
            "NAMESRV_ADDR in the environment"
        )
    warnings += altered_warnings(found.altered, shown_settings(config))
    return config, warnings


def _set_group_defaults(found: ReadSettings, source: str, look_up: LookUp) -> None:
    values = found.values
    for field, key in (("group", "dLegerGroup"), ("self_id", "dLegerSelfId"), ("peers", "dLegerPeers")):
        if field not in values:
            meant = [item for item, nearest in found.unknown if nearest == key]
            hint = f"; line {meant[0].line} has {meant[0].key}: write {key}" if meant else ""
            raise ConfigError(f"{source}: {key} is missing, and enableDLegerCommitLog=true needs it{hint}")
    values.setdefault("peer_dial", {})
    if "cluster_secret" not in values:
        values["peers"] = _loopback_peers(values["peers"], source, look_up)
    peers = values["peers"]
    self_id = values["self_id"]
    assert isinstance(peers, dict)
    # A group on one machine is told apart by its Raft addresses; elsewhere the member's own one is reachable.
    own_host = peers[self_id].host if self_id in peers else LOOPBACK
    values.setdefault("broker_ip1", own_host)
    if strangers := [peer for peer in values.get("preferred_leader_ids", ()) if peer not in peers]:
        # As DLedger does: a group must not be without a member for a preference.
        values["preferred_leader_ids"] = tuple(
            peer for peer in values["preferred_leader_ids"] if peer in peers
        )
        found.warnings.append(
            f"{source}: preferredLeaderId names {', '.join(strangers)}, not in dLegerPeers: left out"
        )
    # RocketMQ falls back to the host's name, by which members on two hosts would be two brokers.
    values.setdefault("broker_name", values["group"])


def _loopback_peers(peers: Mapping[str, Address], source: str, look_up: LookUp) -> dict[str, Address]:
    """Where the members are, if that is this machine alone. Without a secret, names count for what they lead to now:
    one that leads elsewhere later must not bring in a stranger.
    """
    found = {}
    for peer, address in peers.items():
        ips = look_up(address.host)
        if not ips or not all(map(is_loopback, ips)):
            where = "is beyond this machine" if ips else "leads to no address of this machine yet"
            raise ConfigError(
                f"{source}: dLegerPeers: {peer}-{address} {where}, and strangers must not join: put the same "
                "pyDLedgerClusterSecret, or pyDLedgerClusterSecretFile, into the confs of all members "
                "(`mq cluster secret` makes one)"
            )
        found[peer] = Address(ips[0], address.port)
    return found


def _set_store_ip(values: dict[str, Any], source: str, look_up: LookUp, warnings: list[str]) -> None:
    host = values["broker_ip1"]
    ips = look_up(host)
    values["store_ip"] = ips[0] if ips else own_address() or LOOPBACK
    if not ips:
        warnings.append(
            f"{source}: brokerIP1={host} leads to no address yet: until the next start, message ids name "
            f"{values['store_ip']} instead"
        )


def _set_plain_defaults(found: ReadSettings, properties: list[Property], source: str) -> None:
    values, warnings = found.values, found.warnings
    given = [item.key for item in properties]
    if "enableDLegerCommitLog" not in given:
        # Taken for a plain broker, each member of a group would begin a log of its own.
        group_keys = [key for key in given if key in DLEDGER_SETTINGS]
        meant = [item.key for item, nearest in found.unknown if nearest in _GROUP_KEYS]
        if group_keys or meant:
            raise ConfigError(
                f"{source}: {(group_keys or meant)[0]} is for a member of a DLedger group: say "
                "enableDLegerCommitLog=true, or false for a plain broker"
            )
    if values.get("broker_role") == "SLAVE":
        raise ConfigError(
            f"{source}: brokerRole=SLAVE: a plain broker has no slaves here. For copies that take over, run a DLedger "
            "group (enableDLegerCommitLog=true)"
        )
    if "broker_ip1" not in values:
        values["broker_ip1"] = own_address() or LOOPBACK
        if is_loopback(values["broker_ip1"]):
            warnings.append(
                f"{source}: brokerIP1={LOOPBACK} is guessed, as this machine has no way to others: clients on other "
                "machines cannot reach it; set brokerIP1"
            )
    values.setdefault("broker_name", socket.gethostname())
    # RocketMQ's: nobody else holds what a power cut takes, but this is what its users have measured and chosen.
    values.setdefault("flush_disk_type", FlushDiskType.ASYNC_FLUSH)


def _check_peer_tls(config: BrokerConfig, source: str) -> None:
    dledger, tls = config.dledger, config.tls
    if dledger is None or dledger.peer_tls is TlsMode.DISABLED:
        return
    if not tls.has_server_certificate or tls.server_trust_cert_path is None:
        raise ConfigError(
            f"{source}: pyDLedgerPeerTls={dledger.peer_tls} needs tls.server.keyPath, tls.server.certPath and "
            "tls.server.trustCertPath: the member's certificate, and whom it trusts (`mq tls init` makes them)"
        )


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


def _take(values: Mapping[str, object], kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in kind.__struct_fields__}


def shown_settings(config: BrokerConfig) -> dict[str, str]:
    """RocketMQ's keys and their values now, as GET_BROKER_CONFIG answers them. Secrets are left out.

    As a conf file they make the same broker, a secret apart.
    """
    shown = {"enableDLegerCommitLog": _shown("", config.dledger is not None)}
    for settings, part in (
        (BROKER_SETTINGS, config),
        (TLS_SETTINGS, config.tls),
        (DLEDGER_SETTINGS, config.dledger),
        (STORE_SETTINGS, config.store),
        (ACCESS_SETTINGS, config.access),
    ):
        for key, setting in settings.items():
            value = getattr(part, setting.field, None)
            if value is None or value == {} or setting.is_secret:
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
            return ";".join(map(str, value))
        case frozenset():
            return ",".join(map(str, sorted(value)))
        case Mapping():
            separator = "-" if key == "dLegerPeers" else "="
            return ";".join(f"{member_id}{separator}{address}" for member_id, address in value.items())
    return str(value)
