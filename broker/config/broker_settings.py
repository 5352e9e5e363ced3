"""RocketMQ's keys of a broker's conf file: which field each one sets, and what it may say.

Keys of our own begin with `pyDLedger`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from broker.config.broker_config import FlushDiskType
from broker.config.message_limits import BODY_SIZE_MAX
from dledger.config import parse_peers
from dledger.errors import DLedgerConfigError
from message.names import topic_fault
from remoting.address import Address, check_diallable, parse_address
from remoting.configuration import (
    UNSET,
    ConfigError,
    Setting,
    addresses,
    boolean,
    host,
    one_of,
    whole_number,
    words,
)
from remoting.secret import secret_settings
from remoting.tls_settings import TLS_MODE_SETTING, TLS_SETTINGS
from store.errors import StoreConfigError
from store.store_config import parse_delay_levels

_INT_MAX = 2**31 - 1
# Of one topic. RocketMQ has no limit; but a request for a topic's statistics or route makes brokers and clients walk
# all its queues, and the seconds that a hundred thousand take would cost a leader its leadership.
TOPIC_QUEUE_NUMS_MAX = 4096
TIMER_MAX_DELAY_SEC_MAX = 31 * 24 * 3600  # RocketMQ has no limit, and a wheel of a week


def _peers(text: str) -> dict[str, Address]:
    try:
        return parse_peers(text)
    except DLedgerConfigError as error:
        raise ConfigError(str(error)) from None


def _peer_dial(text: str) -> dict[str, Address]:
    """`n1=host:port;n2=host:port`: where this member dials each of them."""
    dial: dict[str, Address] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        member_id, separator, address = part.partition("=")
        if not separator:
            raise ConfigError(f"{part!r} is not id=host:port")
        dial[member_id] = parse_address(address)
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
    parts = list(filter(None, map(str.strip, text.split(";"))))
    if not parts or any(_hour(part) is None for part in parts):
        raise ValueError(text)
    return text


def _hours_among(text: str) -> str:
    """The parts of `text` that are an hour: RocketMQ never comes to the others."""
    return ";".join(f"{hour:02}" for hour in sorted(parse_hours(text)))


def parse_hours(text: str) -> frozenset[int]:
    """`04;16`: hours of the day. Parts that are none do not count."""
    return frozenset(hour for part in text.split(";") if (hour := _hour(part.strip())) is not None)


def _hour(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[01]?[0-9]|2[0-3]", text) else None


def _refused_if(word: str, reason: str) -> Callable[[str], object]:
    """A reader for a key of which RocketMQ takes one value for something that is not here, and no other."""

    def read(text: str) -> object:
        if word in text.lower():
            raise ConfigError(reason)
        return text

    return read


def _topic_name(text: str) -> str:
    if fault := topic_fault(text):
        raise ConfigError(fault)
    return text


def _commit_log_path(text: str) -> str:
    if not text:
        raise ValueError(text)
    if "," in text:
        raise ConfigError("a CommitLog in several directories is not supported: name one")
    return text


def _permission_bits(text: str) -> object:
    """Those of a number that mean something; RocketMQ looks at no others."""
    return int(text) & 15 if re.fullmatch("-?[0-9]+", text) else UNSET


def _precision(text: str) -> int:
    if text not in ("100", "200", "500", "1000"):
        raise ValueError(text)
    return int(text)


def _lower_precision(text: str) -> object:
    """RocketMQ takes the next one below, and the least of them below that."""
    if not re.fullmatch("[+-]?[0-9]{1,9}", text):
        return UNSET
    return max((number for number in (200, 500, 1000) if number <= int(text)), default=100)


_NOTHING = "_"  # settings that are checked and then have no field

BROKER_SETTINGS: Mapping[str, Setting] = {
    "brokerClusterName": words("broker_cluster_name"),
    "brokerName": words("broker_name"),
    "brokerIP1": host("broker_ip1", check_diallable),
    "listenPort": whole_number("listen_port", 1, 65535, is_clamped=False),
    "bindAddress": host("bind_address"),
    "namesrvAddr": addresses("namesrv_addr"),
    "brokerPermission": replace(whole_number("broker_permission", 0, 15), otherwise=_permission_bits),
    "defaultTopicQueueNums": whole_number("default_topic_queue_nums", 1, TOPIC_QUEUE_NUMS_MAX),
    "autoCreateTopicEnable": boolean("auto_create_topic_enable"),
    "clusterTopicEnable": boolean("cluster_topic_enable"),
    "brokerTopicEnable": boolean("broker_topic_enable"),
    "autoCreateSubscriptionGroup": boolean("auto_create_subscription_group"),
    "longPollingEnable": boolean("long_polling_enable"),
    "shortPollingTimeMills": whole_number("short_polling_time_ms", 1, _INT_MAX, "ms"),
    "litePullMessageEnable": boolean("lite_pull_message_enable"),
    "enablePropertyFilter": boolean("enable_property_filter"),
    "useServerSideResetOffset": boolean("use_server_side_reset_offset"),
    "notifyConsumerIdsChangedEnable": boolean("notify_consumer_ids_changed_enable"),
    "regionId": words("region_id"),
    "traceOn": boolean("trace_on"),
    "traceTopicEnable": boolean("trace_topic_enable"),
    "msgTraceTopicName": Setting("msg_trace_topic_name", _topic_name, "the name of a topic"),
    "startAcceptSendRequestTimeStamp": whole_number(
        "start_accept_send_request_timestamp", 0, (1 << 63) - 1, "ms since 1970"
    ),
    "storeReplyMessageEnable": boolean("store_reply_message_enable"),
    "slaveReadEnable": boolean("slave_read_enable"),
    "recallMessageEnable": boolean("recall_message_enable"),
    "rejectTransactionMessage": boolean("reject_transaction_message"),
    "transactionTimeOut": whole_number("transaction_timeout_ms", 0, _INT_MAX, "ms"),
    "transactionCheckInterval": whole_number("transaction_check_interval_ms", 1, _INT_MAX, "ms"),
    "defaultMessageRequestMode": one_of("default_message_request_mode", {"PULL": "PULL", "POP": "POP"}),
    "defaultPopShareQueueNum": whole_number("default_pop_share_queue_num", -1, 65536, "clients"),
    "serverLoadBalancerEnable": boolean("server_load_balancer_enable"),
    "enableRetryTopicV2": boolean("enable_retry_topic_v2"),
    "retrieveMessageFromPopRetryTopicV1": boolean("retrieve_message_from_pop_retry_topic_v1"),
    "popFromRetryProbability": whole_number("pop_from_retry_probability", 0, 100, "percent"),
    "transactionCheckMax": whole_number("transaction_check_max", 1, _INT_MAX, "checks"),
    "registerBrokerTimeoutMills": whole_number("register_broker_timeout_ms", 1, _INT_MAX, "ms"),
    "registerNameServerPeriod": whole_number("register_name_server_period_ms", 10_000, 60_000, "ms"),
    "channelExpiredTimeout": whole_number("channel_expired_timeout_ms", 1000, _INT_MAX, "ms"),
    "serverChannelMaxIdleTimeSeconds": whole_number(
        "server_channel_max_idle_time_seconds", 0, _INT_MAX, "seconds"
    ),
    **TLS_SETTINGS,
    "useTLS": TLS_SETTINGS["tls.enable"],
    "pyDLedgerAllowOpen": boolean("allow_open"),
    "pyDLedgerReadIndexEnable": boolean("read_index_enable"),
    "pyDLedgerMaxPendingTransactions": whole_number(
        "max_pending_transactions", 1, 10_000_000, "transactions"
    ),
    "pyDLedgerMaxPoppedMessages": whole_number("max_popped_messages", 32, 10_000_000, "messages"),
    "pyDLedgerMaxConnections": whole_number("max_connections", 1, _INT_MAX),
    "pyDLedgerMaxUnreadBytes": whole_number("max_unread_bytes", 1 << 20, 1 << 40, "bytes"),
    "pyDLedgerMaxReplyWaitMs": whole_number("max_reply_wait_ms", 0, _INT_MAX, "ms"),
    "pyDLedgerMaxWaitingReplyBytes": whole_number("max_waiting_reply_bytes", 0, 1 << 40, "bytes"),
    "pyDLedgerHttpPort": whole_number("http_port", 1, 65535),
    "pyDLedgerHttpAddress": host("http_address"),
    # Roles come from the election; a conf of a slave must not start as something else.
    "brokerId": Setting(_NOTHING, str, "anything"),
    "brokerRole": one_of("broker_role", {role: role for role in ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")}),
    # What is not `true` is false to RocketMQ, and each member of a group would begin a log of its own.
    "enableDLegerCommitLog": replace(boolean("enable_dleger_commit_log"), otherwise=None),
    "enableControllerMode": Setting(
        _NOTHING, _refused_if("true", "the controller mode is not supported yet"), "false"
    ),
    "storeType": Setting(_NOTHING, _refused_if("rocksdb", "the RocksDB stores are not supported"), "default"),
}

DLEDGER_SETTINGS: Mapping[str, Setting] = {
    "dLegerGroup": words("group"),
    "dLegerSelfId": words("self_id"),
    "dLegerPeers": Setting("peers", _peers, "id-host:port, several joined by ;"),
    "pyDLedgerPeerDial": Setting("peer_dial", _peer_dial, "id=host:port, several joined by ;"),
    **secret_settings("pyDLedgerClusterSecret", "cluster_secret"),
    "pyDLedgerPeerTls": replace(TLS_MODE_SETTING, field="peer_tls"),
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
    "mapedFileSizeConsumeQueue": whole_number(
        "mapped_file_size_consume_queue", 20, 1 << 40, "bytes", step=20
    ),
    "mappedFileSizeConsumeQueue": whole_number(
        "mapped_file_size_consume_queue", 20, 1 << 40, "bytes", step=20
    ),
    "mapperFileSizeBatchConsumeQueue": whole_number(
        "mapper_file_size_batch_consume_queue", 46, 1 << 40, "bytes", step=46
    ),
    "maxHashSlotNum": whole_number("max_hash_slot_num", 1, _INT_MAX, "slots", is_clamped=False),
    "maxIndexNum": whole_number("max_index_num", 2, _INT_MAX, "index numbers", is_clamped=False),
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
    "maxMessageSize": whole_number("max_message_size", 1, BODY_SIZE_MAX, "bytes", is_clamped=False),
    "maxFilterMessageSize": whole_number("max_filter_message_size", 20, _INT_MAX, "bytes"),
    "maxTransferBytesOnMessageInMemory": whole_number(
        "max_transfer_bytes_on_message_in_memory", 1, _INT_MAX, "bytes"
    ),
    "accessMessageInMemoryMaxRatio": whole_number("access_message_in_memory_max_ratio", 1, 100, "percent"),
    "maxTransferCountOnMessageInMemory": whole_number(
        "max_transfer_count_on_message_in_memory", 1, 4096, "messages"
    ),
    "fileReservedTime": whole_number("file_reserved_time_hours", 0, 1_000_000, "hours"),
    "deleteWhen": Setting("delete_when", _delete_when, "hours of the day such as 04 or 03;15", _hours_among),
    "diskMaxUsedSpaceRatio": whole_number("disk_max_used_space_ratio", 10, 95, "percent"),
    "timerWheelEnable": boolean("timer_wheel_enable"),
    "timerPrecisionMs": Setting(
        "timer_precision_ms", _precision, "100, 200, 500 or 1000 ms", _lower_precision
    ),
    "timerMaxDelaySec": whole_number("timer_max_delay_sec", 1, TIMER_MAX_DELAY_SEC_MAX, "seconds"),
    "timerRollWindowSlot": whole_number("timer_roll_window_slot", 60, TIMER_MAX_DELAY_SEC_MAX, "slots"),
    "mappedFileSizeTimerLog": whole_number("mapped_file_size_timer_log", 1024, 1 << 31, "bytes"),
    "timerCongestNumEachSlot": whole_number("timer_congest_num_each_slot", 1, _INT_MAX, "messages"),
    "timerStopDequeue": boolean("timer_stop_dequeue"),
    "appendTopicForTimerDeleteKey": boolean("append_topic_for_timer_delete_key"),
    "messageDelayLevel": Setting("message_delay_level", _delay_levels, "delays such as 1s 5s 1m 2h"),
}

# What `mqbroker -m` prints: what RocketMQ's classes mark as important, and who a member of a group is.
IMPORTANT_KEYS = frozenset(
    {
        "accessMessageInMemoryMaxRatio",
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerClusterName",
        "brokerIP1",
        "brokerName",
        "dLegerGroup",
        "dLegerPeers",
        "dLegerSelfId",
        "deleteWhen",
        "enableDLegerCommitLog",
        "fileReservedTime",
        "flushDiskType",
        "flushIntervalCommitLog",
        "listenPort",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInMemory",
        "msgTraceTopicName",
        "namesrvAddr",
        "storePathCommitLog",
        "storePathRootDir",
        "traceTopicEnable",
    }
)
