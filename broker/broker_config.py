"""What a broker can be told, read from RocketMQ's properties files.

One frozen dataclass per component. Keys, defaults and meanings are RocketMQ's unless a comment says why not;
keys of our own begin with `pyDLedger`. Reading happens in load_broker_config() alone.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

from dledger.scrubber import DEFAULT_BYTES_PER_SECOND, DEFAULT_PAUSE_MS
from remoting.configuration import (
    ConfigError,
    Property,
    Setting,
    addresses,
    boolean,
    host,
    one_of,
    parse_properties,
    read_settings,
    split_address,
    whole_number,
    words,
)
from store.errors import StoreConfigError
from store.layout.index_file import HASH_SLOT_COUNT, INDEX_COUNT_MAX, IndexFileShape
from store.state.table_configs import PERM_READ, PERM_WRITE
from store.store_config import MESSAGE_DELAY_LEVEL, parse_delay_levels

_INT_MAX = 2**31 - 1
# Of one topic. RocketMQ has no limit; but who asks for a topic's statistics or route makes brokers and clients walk all
# its queues, and the seconds that a hundred thousand take would cost a leader its leadership.
TOPIC_QUEUE_NUMS_MAX = 4096
_PAGE_SIZE = 4096
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class FlushDiskType(Enum):
    """What `durable` means before a member acknowledges entries."""

    SYNC_FLUSH = "SYNC_FLUSH"  # fdatasync done
    ASYNC_FLUSH = "ASYNC_FLUSH"  # handed to the page cache


@dataclass(frozen=True, kw_only=True, slots=True)
class DLedgerGroupConfig:
    """The replicated log: who the members are, and how they reach each other."""

    group: str
    self_id: str
    peers: Mapping[str, str]  # member id -> host:port of its Raft port, all members
    # Where to dial a peer instead of its address in `peers`: links through proxies.
    peer_dial: Mapping[str, str]
    # Members prove that they know it. May be empty only while all peers are on loopback.
    cluster_secret: str = ""
    heart_beat_interval_ms: int = 150
    vote_timeout_ms_min: int = 1000
    vote_timeout_ms_max: int = 1600
    max_pending_bytes: int = 64 * 1024 * 1024
    stalled_sync_ms: int = 5000
    preferred_leader_ids: tuple[str, ...] = ()  # the best first
    scrub_bytes_per_second: int = DEFAULT_BYTES_PER_SECOND
    scrub_pause_ms: int = DEFAULT_PAUSE_MS

    @property
    def member_number(self) -> int:
        """The number in the self id: n0 has 0. A follower registers as broker id member_number + 1."""
        return int(re.sub(r"\D", "", self.self_id))

    def __post_init__(self) -> None:
        if self.self_id not in self.peers:
            raise ConfigError(
                f"dLegerSelfId={self.self_id} is not in dLegerPeers, which names {', '.join(self.peers)}"
            )
        if not re.fullmatch(r"[A-Za-z]+\d+", self.self_id):
            raise ConfigError(f"dLegerSelfId={self.self_id!r} must be letters and a number, such as n0")
        if len(set(self.peers.values())) != len(self.peers):
            raise ConfigError("dLegerPeers gives one address to two members")
        if self.vote_timeout_ms_max < self.vote_timeout_ms_min:
            raise ConfigError("pyDLedgerVoteTimeoutMsMax is below pyDLedgerVoteTimeoutMsMin")
        for key, named in (
            ("pyDLedgerPeerDial", self.peer_dial),
            ("preferredLeaderId", self.preferred_leader_ids),
        ):
            if strangers := [peer for peer in named if peer not in self.peers]:
                raise ConfigError(f"{key} names {strangers[0]}, which is not in dLegerPeers")
        is_local = all(split_address(address)[0] in LOOPBACK for address in self.peers.values())
        if not self.cluster_secret and not is_local:
            raise ConfigError(
                "pyDLedgerClusterSecret may be empty only while all dLegerPeers are on 127.0.0.1"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageStoreConfig:
    """Files, flushing and what one pull may read."""

    store_path_root_dir: str
    store_path_commit_log: str  # of a plain CommitLog
    mapped_file_size_commit_log: int = 1024 * 1024 * 1024
    mapped_file_size_consume_queue: int = 6_000_000
    mapper_file_size_batch_consume_queue: int = 13_800_000
    max_hash_slot_num: int = HASH_SLOT_COUNT
    max_index_num: int = INDEX_COUNT_MAX
    # RocketMQ acks from page cache by default; an ack of a replicated log that a power cut can undo is none.
    flush_disk_type: FlushDiskType = FlushDiskType.SYNC_FLUSH
    flush_interval_commit_log_ms: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval_ms: int = 10_000
    flush_interval_consume_queue_ms: int = 1000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval_ms: int = 60_000
    flush_consumer_offset_interval_ms: int = 5000
    max_message_size: int = 4 * 1024 * 1024
    max_filter_message_size: int = 16_000
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    access_message_in_memory_max_ratio: int = 40
    message_delay_level: str = MESSAGE_DELAY_LEVEL
    file_reserved_time_hours: int = 72
    delete_when: str = "04"  # hours of the day, by the clock of this machine
    disk_max_used_space_ratio: int = 75

    def __post_init__(self) -> None:
        if self.mapped_file_size_consume_queue % 20:
            raise ConfigError("mappedFileSizeConsumeQueue must be a multiple of 20, the size of a unit")
        if self.mapper_file_size_batch_consume_queue % 46:
            raise ConfigError("mapperFileSizeBatchConsumeQueue must be a multiple of 46, the size of a unit")
        try:
            IndexFileShape(self.max_hash_slot_num, self.max_index_num)
        except StoreConfigError as error:
            raise ConfigError(str(error)) from None
        if self.mapped_file_size_commit_log % _PAGE_SIZE:
            raise ConfigError(f"mapedFileSizeCommitLog must be a multiple of {_PAGE_SIZE}")


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerConfig:
    """The broker proper: identity, ports, and how it treats clients."""

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str
    broker_ip1: str  # what clients are told to connect to
    listen_port: int = 10911
    bind_address: str = "0.0.0.0"
    http_port: int | None = None  # None: no HTTP
    # There is no access control: who may ask is who reaches the address.
    http_address: str = "127.0.0.1"
    namesrv_addr: tuple[str, ...] = ()
    broker_permission: int = PERM_READ | PERM_WRITE
    default_topic_queue_nums: int = 8
    auto_create_topic_enable: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    long_polling_enable: bool = True
    short_polling_time_ms: int = 1000
    lite_pull_message_enable: bool = True
    use_server_side_reset_offset: bool = True
    notify_consumer_ids_changed_enable: bool = True
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    start_accept_send_request_timestamp: int = 0  # ms since 1970; before it, sends are refused
    slave_read_enable: bool = False
    # Ends of queues and offsets of groups are looked up seldom, and one round trip is less than what a stale one costs.
    read_index_enable: bool = True
    register_broker_timeout_ms: int = 24_000
    register_name_server_period_ms: int = 30_000
    channel_expired_timeout_ms: int = 120_000
    server_channel_max_idle_time_seconds: int = 120
    dledger: DLedgerGroupConfig | None  # None: a plain CommitLog, with no other members
    store: MessageStoreConfig

    @property
    def broker_addr(self) -> str:
        """What NameServers and clients know this broker by."""
        return f"{self.broker_ip1}:{self.listen_port}"


def _peers(text: str) -> dict[str, str]:
    """`n0-host:port;n1-host:port` by member id."""
    peers: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        member_id, separator, address = part.partition("-")
        if not separator or not member_id:
            raise ConfigError(f"{part!r} is not id-host:port")
        split_address(address)
        if member_id in peers:
            raise ConfigError(f"{member_id} is named twice")
        peers[member_id] = address
    if not peers:
        raise ValueError(text)
    return peers


def _peer_dial(text: str) -> dict[str, str]:
    """`n1=host:port;n2=host:port`: where this member dials each of them."""
    dial: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        member_id, separator, address = part.partition("=")
        if not separator:
            raise ConfigError(f"{part!r} is not id=host:port")
        split_address(address)
        dial[member_id] = address
    return dial


def _member_ids(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (piece.strip() for piece in text.split(";"))))


def _delay_levels(text: str) -> str:
    try:
        parse_delay_levels(text)
    except StoreConfigError as error:
        raise ConfigError(str(error)) from None
    return text


def _delete_when(text: str) -> str:
    parse_hours(text)
    return text


def parse_hours(text: str) -> frozenset[int]:
    """`04;16`: hours of the day. Raises ValueError."""
    hours = frozenset(int(part) for part in text.split(";") if part.strip())
    if not hours or not hours <= set(range(24)):
        raise ValueError(text)
    return hours


def _refused(allowed: str, reason: str) -> Callable[[str], object]:
    """A reader for a key of which only one value works here; the others say why."""

    def read(text: str) -> object:
        if text.lower() != allowed:
            raise ConfigError(reason)
        return text

    return read


def _role(text: str) -> str:
    role = text.upper()
    if role not in _ROLES:
        raise ValueError(text)
    return role


def _commit_log_path(text: str) -> str:
    if not text:
        raise ValueError(text)
    if "," in text:
        raise ConfigError("a CommitLog in several directories is not supported: name one")
    return text


_ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
_NOTHING = "_"  # settings that are checked and then have no field

BROKER_SETTINGS: Mapping[str, Setting] = {
    "brokerClusterName": words("broker_cluster_name"),
    "brokerName": words("broker_name"),
    "brokerIP1": host("broker_ip1"),
    "listenPort": whole_number("listen_port", 1, 65535),
    "bindAddress": words("bind_address"),
    "namesrvAddr": addresses("namesrv_addr"),
    "brokerPermission": whole_number("broker_permission", 0, 15),
    "defaultTopicQueueNums": whole_number("default_topic_queue_nums", 1, TOPIC_QUEUE_NUMS_MAX),
    "autoCreateTopicEnable": boolean("auto_create_topic_enable"),
    "clusterTopicEnable": boolean("cluster_topic_enable"),
    "brokerTopicEnable": boolean("broker_topic_enable"),
    "autoCreateSubscriptionGroup": boolean("auto_create_subscription_group"),
    "longPollingEnable": boolean("long_polling_enable"),
    "shortPollingTimeMills": whole_number("short_polling_time_ms", 1, _INT_MAX, "ms"),
    "litePullMessageEnable": boolean("lite_pull_message_enable"),
    "useServerSideResetOffset": boolean("use_server_side_reset_offset"),
    "notifyConsumerIdsChangedEnable": boolean("notify_consumer_ids_changed_enable"),
    "regionId": words("region_id"),
    "traceOn": boolean("trace_on"),
    "startAcceptSendRequestTimeStamp": whole_number(
        "start_accept_send_request_timestamp", 0, (1 << 63) - 1, "ms since 1970"
    ),
    "slaveReadEnable": boolean("slave_read_enable"),
    "registerBrokerTimeoutMills": whole_number("register_broker_timeout_ms", 1, _INT_MAX, "ms"),
    "registerNameServerPeriod": whole_number("register_name_server_period_ms", 1, _INT_MAX, "ms"),
    "channelExpiredTimeout": whole_number("channel_expired_timeout_ms", 1000, _INT_MAX, "ms"),
    "serverChannelMaxIdleTimeSeconds": whole_number(
        "server_channel_max_idle_time_seconds", 1, _INT_MAX, "seconds"
    ),
    "pyDLedgerReadIndexEnable": boolean("read_index_enable"),
    "pyDLedgerHttpPort": whole_number("http_port", 1, 65535),
    "pyDLedgerHttpAddress": words("http_address"),
    # Roles come from the election; a conf of a slave must not start as something else.
    "brokerId": Setting(_NOTHING, int, "a whole number"),
    "brokerRole": Setting("broker_role", _role, "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
    "enableDLegerCommitLog": boolean("enable_dleger_commit_log"),
    "enableControllerMode": Setting(
        _NOTHING, _refused("false", "the controller mode is not supported yet"), "false"
    ),
    "storeType": Setting(_NOTHING, _refused("default", "the RocksDB stores are not supported"), "default"),
}

DLEDGER_SETTINGS: Mapping[str, Setting] = {
    "dLegerGroup": words("group"),
    "dLegerSelfId": words("self_id"),
    "dLegerPeers": Setting("peers", _peers, "id-host:port, several joined by ;"),
    "pyDLedgerPeerDial": Setting("peer_dial", _peer_dial, "id=host:port, several joined by ;"),
    "pyDLedgerClusterSecret": words("cluster_secret"),
    "pyDLedgerHeartBeatIntervalMs": whole_number("heart_beat_interval_ms", 10, 60_000, "ms"),
    "pyDLedgerVoteTimeoutMsMin": whole_number("vote_timeout_ms_min", 50, 600_000, "ms"),
    "pyDLedgerVoteTimeoutMsMax": whole_number("vote_timeout_ms_max", 50, 600_000, "ms"),
    "pyDLedgerStalledSyncMs": whole_number("stalled_sync_ms", 100, 600_000, "ms"),
    "preferredLeaderId": Setting("preferred_leader_ids", _member_ids, "member ids, several joined by ;"),
    "pyDLedgerMaxPendingBytes": whole_number("max_pending_bytes", 1 << 20, 1 << 40, "bytes"),
    "pyDLedgerScrubBytesPerSecond": whole_number("scrub_bytes_per_second", 0, 1 << 40, "bytes"),
    "pyDLedgerScrubPauseMs": whole_number("scrub_pause_ms", 0, _INT_MAX, "ms"),
}

STORE_SETTINGS: Mapping[str, Setting] = {
    "storePathRootDir": words("store_path_root_dir"),
    "storePathCommitLog": Setting("store_path_commit_log", _commit_log_path, "a directory"),
    # RocketMQ 4 knew the two file sizes under the first spelling; both are in conf files to this day.
    "mapedFileSizeCommitLog": whole_number("mapped_file_size_commit_log", 1 << 16, 1 << 40, "bytes"),
    "mappedFileSizeCommitLog": whole_number("mapped_file_size_commit_log", 1 << 16, 1 << 40, "bytes"),
    "mapedFileSizeConsumeQueue": whole_number("mapped_file_size_consume_queue", 20, 1 << 40, "bytes"),
    "mappedFileSizeConsumeQueue": whole_number("mapped_file_size_consume_queue", 20, 1 << 40, "bytes"),
    "mapperFileSizeBatchConsumeQueue": whole_number(
        "mapper_file_size_batch_consume_queue", 46, 1 << 40, "bytes"
    ),
    "maxHashSlotNum": whole_number("max_hash_slot_num", 1, _INT_MAX, "slots"),
    "maxIndexNum": whole_number("max_index_num", 2, _INT_MAX, "index numbers"),
    "flushDiskType": one_of("flush_disk_type", {item.value: item for item in FlushDiskType}),
    "flushIntervalCommitLog": whole_number("flush_interval_commit_log_ms", 1, _INT_MAX, "ms"),
    "flushCommitLogLeastPages": whole_number("flush_commit_log_least_pages", 0, _INT_MAX, "pages"),
    "flushCommitLogThoroughInterval": whole_number(
        "flush_commit_log_thorough_interval_ms", 1, _INT_MAX, "ms"
    ),
    "flushIntervalConsumeQueue": whole_number("flush_interval_consume_queue_ms", 1, _INT_MAX, "ms"),
    "flushConsumeQueueLeastPages": whole_number("flush_consume_queue_least_pages", 0, _INT_MAX, "pages"),
    "flushConsumeQueueThoroughInterval": whole_number(
        "flush_consume_queue_thorough_interval_ms", 1, _INT_MAX, "ms"
    ),
    "flushConsumerOffsetInterval": whole_number("flush_consumer_offset_interval_ms", 1, _INT_MAX, "ms"),
    "maxMessageSize": whole_number("max_message_size", 1, 16 * 1024 * 1024 - 65536, "bytes"),
    "maxFilterMessageSize": whole_number("max_filter_message_size", 20, _INT_MAX, "bytes"),
    "maxTransferBytesOnMessageInMemory": whole_number(
        "max_transfer_bytes_on_message_in_memory", 1, _INT_MAX, "bytes"
    ),
    "accessMessageInMemoryMaxRatio": whole_number("access_message_in_memory_max_ratio", 1, 100, "percent"),
    "maxTransferCountOnMessageInMemory": whole_number(
        "max_transfer_count_on_message_in_memory", 1, 4096, "messages"
    ),
    "fileReservedTime": whole_number("file_reserved_time_hours", 0, 1_000_000, "hours"),
    "deleteWhen": Setting("delete_when", _delete_when, "hours of the day such as 04 or 03;15"),
    "diskMaxUsedSpaceRatio": whole_number("disk_max_used_space_ratio", 10, 95, "percent"),
    "messageDelayLevel": Setting("message_delay_level", _delay_levels, "delays such as 1s 5s 1m 2h"),
}


def load_broker_config(
    path: str | None, overrides: Mapping[str, str] | None = None
) -> tuple[BrokerConfig, list[str]]:
    """The configuration of a conf file (None: none) with `overrides` on top, and warnings for the log.

    Raises ConfigError for what cannot be used, and OSError when the file cannot be read.
    """
    properties = []
    if path is not None:
        properties = parse_properties(Path(path).read_text(encoding="utf-8", errors="replace"), path)
    for key, value in (overrides or {}).items():
        properties.append(Property(key, value, 0, "command line"))
    return read_broker_config(properties, path or "no conf file given (-c FILE)")


def read_broker_config(properties: list[Property], source: str) -> tuple[BrokerConfig, list[str]]:
    """As load_broker_config, of pairs that are already read; `source` is where a missing one should have been."""
    values, warnings = read_settings(properties, {**BROKER_SETTINGS, **DLEDGER_SETTINGS, **STORE_SETTINGS})
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
    own_host = split_address(peers[self_id])[0] if self_id in peers else "127.0.0.1"
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
        raft_port = split_address(dledger.peers[dledger.self_id])[1]
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
