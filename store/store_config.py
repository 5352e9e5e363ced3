"""What the store of one broker is told. Names and defaults are RocketMQ's where it has them."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from message.message_id import HOST_V4_SIZE, HOST_V6_SIZE
from store.errors import StoreConfigError
from store.layout.batch_unit import BATCH_FILE_UNITS, BATCH_UNIT_SIZE
from store.layout.consume_queue_unit import CQ_FILE_UNITS, CQ_UNIT_SIZE
from store.layout.index_file import IndexFileShape

_S: Final = 1000
_M: Final = 60 * _S
_H: Final = 60 * _M

_UNITS: Final = {"s": _S, "m": _M, "h": _H, "d": 24 * _H}
_DELAY_LEVEL: Final = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
MESSAGE_DELAY_LEVEL: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
# Each is a queue of its own, which is looked for by its number.
DELAY_LEVELS_MAX: Final = 128


def parse_delay_levels(text: str) -> Mapping[int, int]:
    """RocketMQ's messageDelayLevel: level -> ms. Raises StoreConfigError."""
    levels = {}
    for level, word in enumerate(text.split(), start=1):
        match = _DELAY_LEVEL.fullmatch(word)
        if match is None:
            raise StoreConfigError(
                f"messageDelayLevel: level {level} is {word!r}; allowed are whole numbers of s, m, h or d, such as 30s"
            )
        levels[level] = int(match[1]) * _UNITS[match[2]]
    if not 1 <= len(levels) <= DELAY_LEVELS_MAX:
        raise StoreConfigError(
            f"messageDelayLevel has {len(levels)} levels; allowed are 1 to {DELAY_LEVELS_MAX}, such as 1s 5s"
        )
    return MappingProxyType(levels)


DELAY_LEVELS: Final = parse_delay_levels(MESSAGE_DELAY_LEVEL)


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes unless a name says otherwise. Raises StoreConfigError."""

    store_path_root_dir: str
    ledger_directory: str  # <root>/dledger-<selfId>
    commit_log_directory: str | None = None  # of a plain CommitLog; None: the log is in `ledger_directory`
    old_commit_log_directory: str | None = (
        None  # of the plain CommitLog that came before that log, if one did
    )
    store_host: bytes  # as it is written into records: IP address and port, 8 bytes, of IPv6 20

    mapped_file_size_commit_log: int = (
        1 << 30
    )  # the ledger's data files: bounds a state record, paces full states
    mapped_file_size_consume_queue: int = CQ_FILE_UNITS * CQ_UNIT_SIZE
    mapper_file_size_batch_consume_queue: int = BATCH_FILE_UNITS * BATCH_UNIT_SIZE
    max_message_size: int = 4 << 20  # of a body
    # Another one than that of the files that are there has all of them built anew.
    index_file_shape: IndexFileShape = msgspec.field(default_factory=IndexFileShape)
    # Each flush reads and writes the whole slot table (20 MB), for so many touch all of its pages: fewer keys would pay
    # as much for less, more would take more memory. 20 bytes each wait, and 32 bytes each while a flush runs.
    index_keys_per_flush: int = 65_536

    flush_interval_consume_queue_ms: int = 1000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval_ms: int = 60_000
    # A start after a crash dispatches again what came behind the last checkpoint: about 0.3 s for so many entries.
    checkpoint_entries_max: int = 131_072
    # config/*.json
    flush_consumer_offset_interval_ms: int = 5000
    # Newest units of all queues, kept so that pulls which follow the log read no file.
    consume_queue_cache_size: int = 2 << 20
    # One step of reput: more would keep the event loop from its sockets.
    reput_step_size_max: int = 1 << 20

    max_transfer_bytes_on_message_in_memory: int = 256 << 10
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 << 10
    max_transfer_count_on_message_in_disk: int = 8
    # A message this far behind the newest counts as cold: RocketMQ takes 40 % of the machine's memory.
    access_message_in_memory_max_size: int = 1 << 30
    # Data files whose newest message is older go at the hours of `delete_when`, and at any hour when more of the disk
    # is used than the ratio says, in percent.
    file_reserved_time_ms: int = 72 * _H
    delete_when: frozenset[int] = frozenset({4})
    disk_max_used_space_ratio: int = 75
    clean_resource_interval_ms: int = 10_000
    max_filter_message_size: int = 16_000  # bytes of units that one pull looks at

    transaction_timeout_ms: int = 6_000  # from the birth of a prepared message to the first question about it
    transaction_check_interval_ms: int = 30_000  # from then on
    transaction_check_max: int = 15  # questions, before a transaction is given up
    # Undecided transactions; above it messages are refused that would begin one.
    pending_transactions_max: int = 100_000
    enable_retry_topic_v2: bool = False  # of two forms of a pop retry topic's name, the one with a plus
    delay_levels: Mapping[int, int] = msgspec.field(default_factory=lambda: DELAY_LEVELS)
    # Of RocketMQ's timer wheel, whose slots clients see in TIMER_OUT_MS and in recall handles.
    timer_precision_ms: int = 1000
    timer_roll_window_ms: int = 48 * _H
    mapped_file_size_timer_log: int = 100 << 20  # RocketMQ's timerlog is handed over in files of this size
    timer_congest_num_each_slot: int = 2**31 - 1
    timer_stop_dequeue: bool = False

    def __post_init__(self) -> None:
        for key, size, unit_size in (
            ("mappedFileSizeConsumeQueue", self.mapped_file_size_consume_queue, CQ_UNIT_SIZE),
            ("mapperFileSizeBatchConsumeQueue", self.mapper_file_size_batch_consume_queue, BATCH_UNIT_SIZE),
        ):
            if size <= 0 or size % unit_size:
                raise StoreConfigError(
                    f"{key}={size}: allowed are multiples of {unit_size}, the size of a unit"
                )
        if len(self.store_host) not in (HOST_V4_SIZE, HOST_V6_SIZE):
            raise StoreConfigError(
                f"brokerIP1 must be an IP address: packed, it has {len(self.store_host)} bytes with its port"
            )

    @property
    def state_record_size_max(self) -> int:
        """Of the body of one state record: several of them must fit into a data file."""
        return min(1 << 20, self.mapped_file_size_commit_log // 8)
