"""Settings of a consumer, and where a group without offsets begins."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from auth.credentials import Credentials
from mqclient.consumer.allocate import AVG, AllocateStrategy


class ConsumeFromWhere(StrEnum):
    """RocketMQ's names, as the heartbeat carries them. It counts for queues of which the group has no offset yet."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageModel(StrEnum):
    """RocketMQ's names. Every member of a group must have the same."""

    CLUSTERING = "CLUSTERING"
    """The members share the queues; offsets are kept by the brokers, what is sent back comes again."""
    BROADCASTING = "BROADCASTING"
    """Each member reads all queues; offsets are kept in a file of its own, what is sent back is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Values are Java's where it has them, but for the pauses after trouble: Java waits 3 s after a failed pull."""

    message_model: MessageModel = MessageModel.CLUSTERING
    allocate_strategy: AllocateStrategy = AVG  # who reads which queues when clustering
    local_offset_store_dir: Path | None = None  # of broadcasting members; ~/.rocketmq_offsets, as Java's
    consume_from: ConsumeFromWhere = ConsumeFromWhere.LAST
    consume_timestamp_ms: int = 0
    pull_batch_size: int = 32  # messages
    pull_suspend_s: float = 15.0  # how long a broker may hold a pull that finds nothing
    pull_timeout_s: float = 30.0
    cached_count_max: int = 1000  # messages of one queue that were pulled and are not done
    cached_bytes_max: int = 100 * 1024 * 1024
    cached_span_max: int = 2000  # offsets from the oldest message that is not done to the newest
    persist_interval_s: float = 5.0
    rebalance_interval_s: float = 20.0
    retry_pause_s: float = 0.05  # first pause after trouble; doubles
    retry_pause_max_s: float = 1.0
    redeliver_after_s: float = 1.0  # of a failed batch that the broker did not take back
    max_reconsume_times: int = 16
    poll_name_server_interval_s: float = 5.0
    credentials: Credentials | None = None  # None: those of the environment, if it has any

    def __post_init__(self) -> None:
        if self.consume_from is ConsumeFromWhere.TIMESTAMP and self.consume_timestamp_ms <= 0:
            raise ValueError("consume_from TIMESTAMP needs consume_timestamp_ms")
        if not 1 <= self.pull_batch_size <= 1024:
            raise ValueError(f"pull_batch_size {self.pull_batch_size}: allowed are 1 to 1024")
