"""What a broker can be told: one frozen Struct per component.

Defaults and meanings are RocketMQ's unless a comment says why not. broker_settings.py has the keys that stand for the
fields in a conf file, and config_file.py reads that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

import msgspec

from broker.config.access_settings import AccessConfig
from broker.config.message_limits import body_size_max
from dledger.scrubber import DEFAULT_BYTES_PER_SECOND, DEFAULT_PAUSE_MS
from message import names
from remoting.address import Address, join
from remoting.configuration import ConfigError
from remoting.connection_limits import CONNECTIONS_MAX
from remoting.secret import NO_SECRET, Secret
from remoting.tls import TlsMode
from remoting.tls_settings import TlsConfig
from remoting.unread_budget import UNREAD_SIZE_MAX
from store.errors import StoreConfigError
from store.layout.index_file import HASH_SLOT_COUNT, INDEX_COUNT_MAX, IndexFileShape
from store.state.table_configs import PERM_READ, PERM_WRITE
from store.store_config import MESSAGE_DELAY_LEVEL

MAPPED_FILE_SIZE_COMMIT_LOG = 1024 * 1024 * 1024
MAX_MESSAGE_SIZE = 4 * 1024 * 1024


class FlushDiskType(Enum):
    """What `durable` means before a member acknowledges entries."""

    SYNC_FLUSH = "SYNC_FLUSH"  # fdatasync done
    ASYNC_FLUSH = "ASYNC_FLUSH"  # handed to the page cache


class DLedgerGroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The replicated log: who the members are, and how they reach each other."""

    group: str
    self_id: str
    peers: Mapping[str, Address]  # member id -> its Raft port, all members
    # Where to dial a peer instead of its address in `peers`: links through proxies.
    peer_dial: Mapping[str, Address]
    # Members prove that they know it. May be empty only while all peers are on loopback.
    cluster_secret: Secret = NO_SECRET
    peer_tls: TlsMode = TlsMode.DISABLED
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


class MessageStoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Files, flushing and what one pull may read."""

    store_path_root_dir: str
    store_path_commit_log: str  # of a plain CommitLog
    mapped_file_size_commit_log: int = MAPPED_FILE_SIZE_COMMIT_LOG
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
    max_message_size: int = MAX_MESSAGE_SIZE  # of a body
    max_filter_message_size: int = 16_000
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    access_message_in_memory_max_ratio: int = 40
    message_delay_level: str = MESSAGE_DELAY_LEVEL
    file_reserved_time_hours: int = 72
    delete_when: str = "04"  # hours of the day, by the clock of this machine
    disk_max_used_space_ratio: int = 75
    timer_wheel_enable: bool = True
    timer_precision_ms: int = 1000
    timer_max_delay_sec: int = 259_200
    timer_roll_window_slot: int = 172_800
    mapped_file_size_timer_log: int = 100 << 20
    timer_congest_num_each_slot: int = 2**31 - 1
    timer_stop_dequeue: bool = False
    append_topic_for_timer_delete_key: bool = False

    def __post_init__(self) -> None:
        try:
            IndexFileShape(self.max_hash_slot_num, self.max_index_num)
        except StoreConfigError as error:
            raise ConfigError(str(error)) from None
        if self.max_message_size > (size_max := body_size_max(self.mapped_file_size_commit_log)):
            raise ConfigError(
                f"maxMessageSize={self.max_message_size} is more than {size_max}, which is the most with "
                f"mapedFileSizeCommitLog={self.mapped_file_size_commit_log}: lower the first or raise the second"
            )


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The broker proper: identity, ports, and how it treats clients."""

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str
    broker_ip1: str  # what clients are told to connect to
    store_ip: str  # brokerIP1 as an address: records and message ids hold no names
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
    # RocketMQ's is false, which is the first thing that its users stumble over.
    enable_property_filter: bool = True
    use_server_side_reset_offset: bool = True
    notify_consumer_ids_changed_enable: bool = True
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = names.TRACE_TOPIC
    start_accept_send_request_timestamp: int = 0  # ms since 1970; before it, sends are refused
    store_reply_message_enable: bool = True
    slave_read_enable: bool = False
    # RocketMQ's is false: there each sender of a timer message is given a handle that it may not use.
    recall_message_enable: bool = True
    reject_transaction_message: bool = False
    transaction_timeout_ms: int = 6_000
    transaction_check_interval_ms: int = 30_000
    transaction_check_max: int = 15
    # A leader keeps about 500 bytes of each while it is undecided.
    max_pending_transactions: int = 100_000
    # Each takes 15 to 350 bytes until it is acknowledged, on all members.
    max_popped_messages: int = 200_000
    default_message_request_mode: str = "PULL"  # of groups and topics that no operator has set it for
    default_pop_share_queue_num: int = -1
    server_load_balancer_enable: bool = True
    enable_retry_topic_v2: bool = False
    retrieve_message_from_pop_retry_topic_v1: bool = True
    pop_from_retry_probability: int = 20  # percent of pops that look into the retry topic first
    # Ends of queues and offsets of groups are looked up seldom, and one round trip is less than what a stale one costs.
    read_index_enable: bool = True
    register_broker_timeout_ms: int = 24_000
    register_name_server_period_ms: int = 30_000
    channel_expired_timeout_ms: int = 120_000
    server_channel_max_idle_time_seconds: int = 120  # 0: no connection is closed for being idle
    allow_open: bool = False
    open_switches: tuple[str, ...] = ()  # security switches of the conf that have no effect
    max_connections: int = CONNECTIONS_MAX  # of clients
    max_unread_bytes: int = UNREAD_SIZE_MAX  # of answers that clients have not taken, over all connections
    max_waiting_reply_bytes: int = 64 * 1024 * 1024  # of replies whose requesters are not connected
    # After a change of leader a requester comes with its next look at routes and its next heartbeat, each 30 s apart.
    max_reply_wait_ms: int = 120_000
    tls: TlsConfig = TlsConfig()
    dledger: DLedgerGroupConfig | None  # None: a plain CommitLog, with no other members
    store: MessageStoreConfig
    access: AccessConfig = AccessConfig()

    @property
    def broker_addr(self) -> str:
        """What NameServers and clients know this broker by."""
        return join(self.broker_ip1, self.listen_port)

    @property
    def store_host(self) -> str:
        """What records and message ids say of this broker."""
        return join(self.store_ip, self.listen_port)
