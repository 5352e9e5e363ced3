"""Bodies of the answers that tools get: statistics, connections, offsets of groups.

How bodies are read and written is in remoting/bodies/bodies.py. A field that only some versions write is None by
default.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import orjson
from msgspec import field

from remoting.bodies.bodies import (
    ConsumeFromWhere,
    ConsumeType,
    DataVersion,
    MessageModel,
    MessageQueue,
    RemotingBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    to_json_value,
)
from remoting.bodies.topic_bodies import TopicConfig
from remoting.fastjson import dumps_fastjson
from remoting.fastjson_values import java_enum
from remoting.headers.headers import Int64

# Consumers' progress


class OffsetWrapper(RemotingBody):
    """One queue of a group. `last_timestamp`: store time of the message before `consumer_offset`, 0 for none."""

    broker_offset: Int64
    consumer_offset: Int64
    pull_offset: Int64 | None = None
    last_timestamp: Int64 = 0


class ConsumeStats(RemotingBody):
    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


class ConsumeStatsList(RemotingBody):
    """Answer to GET_BROKER_CONSUME_STATS: one map with one group each, as Java has it."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 | None = None

    def encode_with(self, encoded: list[dict[str, list[bytes]]]) -> bytes:
        """With these in the place of the list: its ConsumeStats as they are encoded already, which takes its time."""
        value = to_json_value(self)
        assert isinstance(value, dict), "a body is an object"
        value["consumeStatsList"] = [
            {group: list(map(orjson.Fragment, found)) for group, found in item.items()} for item in encoded
        ]
        return dumps_fastjson(value)


class DelayOffsetSerializeWrapper(RemotingBody):
    """Answer to GET_ALL_DELAY_OFFSET. By delay level: where in its queue the next message to deliver is."""

    data_version: DataVersion | None = None
    offset_table: dict[Int64, Int64] = field(default_factory=dict)


class TimerMetric(RemotingBody):
    count: Int64 = 0
    time_stamp: Int64 = 0


class TimerMetricsSerializeWrapper(RemotingBody):
    """Answer to GET_TIMER_METRICS. By topic: how many messages wait for their time."""

    data_version: DataVersion | None = None
    timing_count: dict[str, TimerMetric] = field(default_factory=dict)


class PendingTransactionsOfTopic(RemotingBody):
    """`oldest_ms`: when the oldest of them was stored. `next_check_ms`: when a producer is asked next about one."""

    count: Int64 = 0
    oldest_ms: Int64 = 0
    next_check_ms: Int64 = 0


class PendingTransactions(RemotingBody):
    """Answer to GET_PENDING_TRANSACTIONS. `total` are all, `topics` those that are a second old."""

    total: Int64 = 0
    topics: dict[str, PendingTransactionsOfTopic] = field(default_factory=dict)


class QueueTimeSpan(RemotingBody):
    """Store times in ms of a queue's first and last message and of the last one consumed; the first that waits is
    `delay_time` ms old. The fields with Str are for people, in the broker's time zone.
    """

    message_queue: MessageQueue
    min_time_stamp: Int64
    max_time_stamp: Int64
    consume_time_stamp: Int64
    delay_time: Int64
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(RemotingBody):
    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class GroupList(RemotingBody):
    group_list: list[str] = field(default_factory=list)


class QuerySubscriptionResponseBody(RemotingBody):
    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


class ResetOffsetBody(RemotingBody):
    offset_table: dict[MessageQueue, Int64] = field(default_factory=dict)


class GetConsumerStatusBody(RemotingBody):
    """A client answers `message_queue_table`, its own offsets; a broker those of all clients by client id."""

    consumer_table: dict[str, dict[MessageQueue, Int64]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueue, Int64] | None = None


# What a consumer tells of itself


class ProcessQueueInfo(RemotingBody):
    """One queue of a consumer. `commit_offset`: up to here it is done, whether committed yet or not. Cached messages
    were pulled and are not done. Locks are of consumers in order, transaction_msg of their messages under way.
    """

    commit_offset: Int64
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int64 = 0
    cached_msg_size_in_mib: Int64 = field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int64 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    is_dropped: bool = field(default=False, name="droped")  # as Java spells it
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class ConsumeStatus(RemotingBody):
    """Of one topic: times in ms, rates per second, failures in the last hour."""

    pull_rt: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")
    consume_rt: float = field(default=0.0, name="consumeRT")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: Int64 = 0


class ConsumerRunningInfo(RemotingBody):
    """Answer to GET_CONSUMER_RUNNING_INFO. Tools read PROP_CONSUME_TYPE and PROP_CONSUMER_START_TIMESTAMP."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, object] | None = None
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] | None = None
    jstack: str | None = None


class CMResult(StrEnum):
    """What became of a message that a consumer was handed by a tool."""

    SUCCESS = "CR_SUCCESS"
    LATER = "CR_LATER"
    THROW_EXCEPTION = "CR_THROW_EXCEPTION"


ConsumeResult = Annotated[
    str,
    java_enum("CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION", "CR_RETURN_NULL"),
]


class ConsumeMessageDirectlyResult(RemotingBody):
    """Answer to CONSUME_MESSAGE_DIRECTLY."""

    consume_result: ConsumeResult
    order: bool = False
    auto_commit: bool = True
    remark: str | None = None
    spent_time_mills: Int64 = 0


# Queues


class TopicOffset(RemotingBody):
    min_offset: Int64
    max_offset: Int64
    last_update_timestamp: Int64


class TopicStatsTable(RemotingBody):
    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float | None = None


class ConsumeQueueData(RemotingBody):
    """One unit of a ConsumeQueue. `msg` says so when it cannot be judged or read."""

    physic_offset: Int64
    physic_size: Int64
    tags_code: Int64
    eval: bool = False
    msg: str | None = None
    bit_map: str | None = None
    extend_data_json: str | None = None


class QueryConsumeQueueResponseBody(RemotingBody):
    min_queue_index: Int64
    max_queue_index: Int64
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class CreateTopicListRequestBody(RemotingBody):
    topic_config_list: list[TopicConfig] = field(default_factory=list)


class SubscriptionGroupList(RemotingBody):
    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


class GroupForbidden(RemotingBody):
    group: str
    topic: str
    readable: bool


# Connections


class Connection(RemotingBody):
    client_id: str
    client_addr: str
    language: str
    version: Int64


class ProducerConnection(RemotingBody):
    connection_set: list[Connection] = field(default_factory=list)


class ConsumerConnection(RemotingBody):
    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerInfo(RemotingBody):
    client_id: str
    remote_ip: str = field(name="remoteIP")
    language: str
    version: Int64
    last_update_timestamp: Int64


class ProducerTableInfo(RemotingBody):
    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


# A broker's counts


class BrokerStatsItem(RemotingBody):
    """Of the last minute, hour or day: what was counted, per second, and per time that it was counted."""

    sum: Int64
    tps: float
    avgpt: float


class BrokerStatsData(RemotingBody):
    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem


# NameServer


class BrokerMemberGroup(RemotingBody):
    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = field(default_factory=dict)


class GetBrokerMemberGroupResponseBody(RemotingBody):
    broker_member_group: BrokerMemberGroup


# A group of brokers


class LeadershipTransferResponseBody(RemotingBody):
    """Who leads now, and in which term."""

    leader_id: str
    term: Int64


# Scrub


class ScrubRoundBody(RemotingBody):
    """Times in ms since the epoch. `ended_ms`: None while it is under way."""

    began_ms: Int64
    bytes_read: Int64
    faults: Int64
    mended: Int64
    ended_ms: Int64 | None = None


class ScrubResponseBody(RemotingBody):
    """`round`: the one under way. `size`: bytes that a round reads, about."""

    bytes_per_second: Int64
    pause_ms: Int64
    size: Int64
    rounds: Int64
    bytes_read: Int64
    faults: Int64
    mended: Int64
    round: ScrubRoundBody | None = None
    last_round: ScrubRoundBody | None = None


class DamagedRangeBody(RemotingBody):
    """Entries of both ends and all between; bytes count from the begin of the whole log, `files` are those they lie in.
    `since_ms`: when the broker's process learned of it. `stage`: noting, queued, proving, writing or waiting.
    """

    first_index: Int64
    last_index: Int64
    first_byte: Int64
    last_byte: Int64
    stage: str
    files: list[str] = field(default_factory=list)
    since_ms: Int64 | None = None
    peer: str | None = None
    refusals: dict[str, str] = field(default_factory=dict)
    repaired_bytes: Int64 = 0
    retry_ms: Int64 | None = None


class RepairStatusResponseBody(RemotingBody):
    """Counts are since the start."""

    repaired_ranges: Int64
    repaired_bytes: Int64
    scrub: ScrubResponseBody
    ranges: list[DamagedRangeBody] = field(default_factory=list)


class GroupMember(RemotingBody):
    """`acknowledged`: the last entry that it has said to hold durably, as far as the broker that answers leads."""

    id: str
    role: str  # voter or learner
    address: str
    disk: str  # uuid in hexadecimal digits, empty if it is not known yet
    acknowledged: Int64 | None = None


class ListMembersResponseBody(RemotingBody):
    """`index`: of the entry that says so, -1 for the members with which the group was formed."""

    term: Int64
    index: Int64
    is_committed: bool
    members: list[GroupMember] = field(default_factory=list)
    leader_id: str | None = None
