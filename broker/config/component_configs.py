"""What the parts below a broker are told: the replicated log, the plain log and the store, in their own terms."""

from __future__ import annotations

import os

from broker.config.broker_config import BrokerConfig, DLedgerGroupConfig, FlushDiskType
from broker.config.broker_settings import parse_hours
from disk.disk import Disk
from dledger.cluster_secrets import NO_CLUSTER_SECRET, ClusterSecrets
from dledger.config import DLedgerConfig, FlushMode
from dledger.core.member_config import MemberConfig
from message.message_id import pack_host
from remoting.address import Address, literal
from store.java.abort_file import ABORT_FILE
from store.layout.index_file import IndexFileShape
from store.layout.timer_wheel import ROLL_WINDOW_SLOTS_MAX
from store.plain.plain_log import PlainLog
from store.plain.plain_log_config import PlainLogConfig
from store.store_config import StoreConfig, parse_delay_levels

_PAGE_SIZE = 4096
_PLAIN_SELF_ID = "n0"


def cluster_secrets(dledger: DLedgerGroupConfig | None) -> ClusterSecrets:
    """Of a broker that is in no group: an empty one."""
    if dledger is None:
        return NO_CLUSTER_SECRET
    secret = dledger.cluster_secret
    return ClusterSecrets(lambda: [line.encode() for line in secret.lines()])


def dledger_config(config: BrokerConfig) -> DLedgerConfig:
    """The settings of the replicated log. Raises DLedgerConfigError."""
    dledger, store = config.dledger or _group_of_one(config), config.store
    is_sync = store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    return DLedgerConfig(
        group=dledger.group,
        self_id=dledger.self_id,
        peers=dledger.peers,
        directory=ledger_directory(config),
        cluster_secrets=cluster_secrets(dledger),
        peer_dial=dledger.peer_dial,
        bind=_raft_bind(dledger),
        flush_mode=FlushMode.SYNC_FLUSH if is_sync else FlushMode.ASYNC_FLUSH,
        flush_interval_ms=store.flush_interval_commit_log_ms,
        flush_size_min=store.flush_commit_log_least_pages * _PAGE_SIZE,
        flush_thorough_interval_ms=store.flush_commit_log_thorough_interval_ms,
        data_file_size=store.mapped_file_size_commit_log,
        scrub_bytes_per_second=dledger.scrub_bytes_per_second,
        scrub_pause_ms=dledger.scrub_pause_ms,
        member=MemberConfig(
            self_id=dledger.self_id,
            peers=tuple(dledger.peers),
            heart_beat_interval_ms=dledger.heart_beat_interval_ms,
            election_timeout_ms_min=dledger.vote_timeout_ms_min,
            election_timeout_ms_max=dledger.vote_timeout_ms_max,
            pending_size_max=dledger.max_pending_bytes,
            stalled_sync_ms=dledger.stalled_sync_ms,
            preferred_leader_ids=dledger.preferred_leader_ids,
        ),
    )


def _raft_bind(dledger: DLedgerGroupConfig) -> Address | None:
    """A name may lead to what is no address of this machine, a service's: as in DLedger, the port counts alone."""
    own = dledger.peers[dledger.self_id]
    return None if literal(own.host) else Address("0.0.0.0", own.port)


def _group_of_one(config: BrokerConfig) -> DLedgerGroupConfig:
    """What a plain broker is to the replicated log: it elects itself, and is its own majority."""
    return DLedgerGroupConfig(
        group=config.broker_name,
        self_id=_PLAIN_SELF_ID,
        peers={_PLAIN_SELF_ID: Address("127.0.0.1", config.listen_port)},  # nobody dials it
        peer_dial={},
        # There is no other vote to wait for.
        heart_beat_interval_ms=50,
        vote_timeout_ms_min=100,
        vote_timeout_ms_max=100,
    )


def open_plain_log(config: BrokerConfig, disk: Disk, dledger: DLedgerConfig) -> PlainLog:
    """Raises LedgerError, DiskError. Blocks."""
    return PlainLog.open(
        disk,
        PlainLogConfig(
            directory=dledger.directory,
            data_file_size=dledger.data_file_size,
            index_file_size=dledger.index_file_size,
            commit_log_directory=config.store.store_path_commit_log,
            abort_file=f"{config.store.store_path_root_dir}/{ABORT_FILE}",
        ),
    )


def store_config(config: BrokerConfig) -> StoreConfig:
    """The settings of the store. Raises StoreConfigError."""
    store = config.store
    return StoreConfig(
        store_path_root_dir=store.store_path_root_dir,
        ledger_directory=ledger_directory(config),
        commit_log_directory=store.store_path_commit_log if config.dledger is None else None,
        old_commit_log_directory=None if config.dledger is None else store.store_path_commit_log,
        store_host=pack_host(config.store_host),
        mapped_file_size_commit_log=store.mapped_file_size_commit_log,
        mapped_file_size_consume_queue=store.mapped_file_size_consume_queue,
        mapper_file_size_batch_consume_queue=store.mapper_file_size_batch_consume_queue,
        index_file_shape=IndexFileShape(store.max_hash_slot_num, store.max_index_num),
        max_message_size=store.max_message_size,
        flush_interval_consume_queue_ms=store.flush_interval_consume_queue_ms,
        flush_consume_queue_least_pages=store.flush_consume_queue_least_pages,
        flush_consume_queue_thorough_interval_ms=store.flush_consume_queue_thorough_interval_ms,
        flush_consumer_offset_interval_ms=store.flush_consumer_offset_interval_ms,
        max_transfer_bytes_on_message_in_memory=store.max_transfer_bytes_on_message_in_memory,
        max_transfer_count_on_message_in_memory=store.max_transfer_count_on_message_in_memory,
        max_filter_message_size=store.max_filter_message_size,
        access_message_in_memory_max_size=_memory_size() * store.access_message_in_memory_max_ratio // 100,
        delay_levels=parse_delay_levels(store.message_delay_level),
        file_reserved_time_ms=store.file_reserved_time_hours * 3_600_000,
        delete_when=parse_hours(store.delete_when),
        disk_max_used_space_ratio=store.disk_max_used_space_ratio,
        timer_precision_ms=store.timer_precision_ms,
        timer_roll_window_ms=min(store.timer_roll_window_slot, ROLL_WINDOW_SLOTS_MAX)
        * store.timer_precision_ms,
        mapped_file_size_timer_log=store.mapped_file_size_timer_log,
        timer_congest_num_each_slot=store.timer_congest_num_each_slot,
        timer_stop_dequeue=store.timer_stop_dequeue,
        transaction_timeout_ms=config.transaction_timeout_ms,
        transaction_check_interval_ms=config.transaction_check_interval_ms,
        transaction_check_max=config.transaction_check_max,
        pending_transactions_max=config.max_pending_transactions,
        enable_retry_topic_v2=config.enable_retry_topic_v2,
    )


def _memory_size() -> int:
    """Of this machine, bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def ledger_directory(config: BrokerConfig) -> str:
    """Of a plain CommitLog, what Java does not know: there is no dledger-<id> in such a store."""
    root = config.store.store_path_root_dir
    return f"{root}/pydledger" if config.dledger is None else f"{root}/dledger-{config.dledger.self_id}"
