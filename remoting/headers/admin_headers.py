"""Headers of the requests of tools: offsets of groups, what clients do, what a broker has counted.

Those that ordinary clients send are in remoting/headers/headers.py, which also says how headers are read and written.
"""

from __future__ import annotations

from remoting.headers.headers import CommandHeader, Int32, Int64, RpcRequestHeader, TopicRequestHeader


class ScrubRequestHeader(RpcRequestHeader, kw_only=True):
    """`begin`: a round now, unless one is under way; else only how far it is."""

    begin: bool = False


class GetEntriesRequestHeader(RpcRequestHeader, kw_only=True):
    """Entries of the replicated log from `begin_index` on, at least one if there is one, else not more than about
    `max_bytes`.
    """

    begin_index: Int64
    max_bytes: Int32


class GetEntryHeadRequestHeader(RpcRequestHeader, kw_only=True):
    """Answered as GET_ENTRIES, with the header of the entry at `index` alone: nothing of what the log holds."""

    index: Int64


class GetEntriesResponseHeader(CommandHeader, kw_only=True):
    """Whole entries follow as the body: from the one asked for to `last_index`, which is one less where there is none.

    `first_pos`, `previous_chain`: where the first one lies, and the chain_crc of the entry before it.
    `ledger_begin_index`, `committed_index`: what this member has, and knows to be committed. `group_uuid`: hex.
    """

    last_index: Int64
    first_pos: Int64
    previous_chain: Int32
    ledger_begin_index: Int64
    committed_index: Int64
    group_uuid: str


class ResumeCheckHalfMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """`msg_id`: the offset id of a message in that topic, TRANS_CHECK_MAX_TIME_TOPIC."""

    topic: str | None = None
    msg_id: str | None = None


class GetConsumeStatsRequestHeader(TopicRequestHeader, kw_only=True):
    """Without a topic: all of the group's."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class QueryTopicConsumeByWhoRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str


class QueryTopicsByConsumerRequestHeader(RpcRequestHeader, kw_only=True):
    group: str


class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader, kw_only=True):
    group: str
    topic: str


class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader, kw_only=True):
    group: str
    topic: str


class QueryConsumeQueueRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class ResetOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """`timestamp` in ms, negative: the end of each queue. `queue_id` negative: all, by time; one by `offset`, unless
    that is negative.
    """

    group: str
    topic: str
    queue_id: Int32 | None = None
    offset: Int64 | None = None
    timestamp: Int64
    is_force: bool


class GetConsumerStatusRequestHeader(TopicRequestHeader, kw_only=True):
    """Without a client's address: all of the group's."""

    topic: str
    group: str
    client_addr: str | None = None


class CloneGroupOffsetRequestHeader(RpcRequestHeader, kw_only=True):
    """Without a topic: all that the source group has offsets of. `offline`: also those that its clients no longer
    subscribe.
    """

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class GetConsumerConnectionListRequestHeader(RpcRequestHeader, kw_only=True):
    consumer_group: str


class GetProducerConnectionListRequestHeader(RpcRequestHeader, kw_only=True):
    producer_group: str


class GetConsumerRunningInfoRequestHeader(RpcRequestHeader, kw_only=True):
    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(TopicRequestHeader, kw_only=True):
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class ViewBrokerStatsDataRequestHeader(CommandHeader, kw_only=True):
    stats_name: str
    stats_key: str


class GetConsumeStatsInBrokerHeader(CommandHeader, kw_only=True):
    is_order: bool


class GetTopicStatsInfoRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str


class GetTopicConfigRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str


class GetSubscriptionGroupConfigRequestHeader(RpcRequestHeader, kw_only=True):
    group: str


class UpdateGroupForbiddenRequestHeader(TopicRequestHeader, kw_only=True):
    """Without `readable` it only asks."""

    group: str
    topic: str
    readable: bool | None = None


class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader, kw_only=True):
    group_name: str
    clean_offset: bool = False


class GetBrokerMemberGroupRequestHeader(CommandHeader, kw_only=True):
    cluster_name: str
    broker_name: str


class WipeWritePermOfBrokerRequestHeader(CommandHeader, kw_only=True):
    broker_name: str


class AddWritePermOfBrokerRequestHeader(CommandHeader, kw_only=True):
    broker_name: str


class GetTimerStateRequestHeader(CommandHeader, kw_only=True):
    """`offset`: physical, of the record that waits; an answer to a send says it in its message id."""

    offset: Int64


class GetTransactionStateRequestHeader(CommandHeader, kw_only=True):
    """`offset`: physical, of the half message; an answer to a send says it in its message id."""

    offset: Int64


class LeadershipTransferRequestHeader(RpcRequestHeader, kw_only=True):
    """`transferee_id`: a member's, such as n1; without one, the member that lacks least."""

    transferee_id: str | None = None


class AddMemberRequestHeader(RpcRequestHeader, kw_only=True):
    """`address`: of the member's port for peers, host:port."""

    member_id: str
    address: str


class RemoveMemberRequestHeader(RpcRequestHeader, kw_only=True):
    member_id: str
