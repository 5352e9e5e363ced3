"""Which requests the broker answers: one row per request code.

A row says what the pipeline (broker/pipeline.py) does before a processor gets the request: which header and which JSON
body is read, on which lane it runs, whether the log notes it. It also names the resources and actions for which the
sender needs a permission, and so which requests are administration.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from auth.policy import Action
from broker.access import named_resources as named
from broker.access.needs import NOTHING, Need, cluster, group, is_administration, topic, with_names
from broker.answers import Request
from broker.clients.client_channel import ClientChannel
from remoting.bodies import admin_bodies, auth_bodies, bodies, pop_bodies
from remoting.bodies.bodies import BodyT, RemotingBody
from remoting.codes import RequestCode as Code
from remoting.frame.command import RemotingCommand
from remoting.headers import admin_headers, auth_headers, headers, pop_headers
from remoting.headers.headers import CommandHeader, HeaderT

if TYPE_CHECKING:
    from broker.processors.admin.access_admin_processor import AccessAdminProcessor
    from broker.processors.admin.admin_broker_processor import AdminBrokerProcessor
    from broker.processors.admin.broker_info_processor import BrokerInfoProcessor
    from broker.processors.admin.client_admin_processor import ClientAdminProcessor
    from broker.processors.admin.consume_stats_processor import ConsumeStatsProcessor
    from broker.processors.admin.entries_processor import EntriesProcessor
    from broker.processors.admin.leadership_processor import LeadershipProcessor
    from broker.processors.admin.membership_processor import MembershipProcessor
    from broker.processors.admin.offset_admin_processor import OffsetAdminProcessor
    from broker.processors.admin.pop_admin_processor import PopAdminProcessor
    from broker.processors.admin.repair_processor import RepairProcessor
    from broker.processors.admin.scrub_processor import ScrubProcessor
    from broker.processors.admin.timer_admin_processor import TimerAdminProcessor
    from broker.processors.admin.transaction_admin_processor import TransactionAdminProcessor
    from broker.processors.clients.client_manage_processor import ClientManageProcessor
    from broker.processors.clients.consumer_manage_processor import ConsumerManageProcessor
    from broker.processors.clients.query_assignment_processor import QueryAssignmentProcessor
    from broker.processors.pop.ack_message_processor import AckMessageProcessor
    from broker.processors.pop.pop_look_processor import PopLookProcessor
    from broker.processors.pop.pop_message_processor import PopMessageProcessor
    from broker.processors.pull.pull_message_processor import PullMessageProcessor
    from broker.processors.pull.query_message_processor import QueryMessageProcessor
    from broker.processors.send.recall_message_processor import RecallMessageProcessor
    from broker.processors.send.reply_message_processor import ReplyMessageProcessor
    from broker.processors.send.send_message_back_processor import SendMessageBackProcessor
    from broker.processors.send.send_message_processor import SendMessageProcessor
    from broker.processors.transactions.transaction_processor import TransactionProcessor


PUB, SUB, CREATE, UPDATE = Action.PUB, Action.SUB, Action.CREATE, Action.UPDATE
DELETE, GET = Action.DELETE, Action.GET
NO_HEADER = CommandHeader

# (request, now_ms), and of a code whose body is JSON: (request, body, now_ms). Raises RemotingError, which is answered.
Handler = Callable[[Request[HeaderT], int], None]
BodyHandler = Callable[[Request[HeaderT], BodyT, int], None]
# (channel, commands, now_ms): all requests of one read, and each answered once.
BatchHandler = Callable[[ClientChannel, list[RemotingCommand], int], None]


class Lane(Enum):
    HERE = auto()  # at once
    READ_INDEX = auto()  # behind a read index (broker/waiting/read_index_look_ups.py)
    LEADER = auto()  # a follower has its leader answer (broker/leadership/follower_changes.py)


class RequestType(msgspec.Struct, frozen=True):
    code: Code
    header: type[CommandHeader]
    body: type[RemotingBody] | None  # None: the handler reads none, or one that is no JSON
    handler: Callable[..., None]  # a BodyHandler where there is a body, else a Handler
    needs: tuple[Need, ...]
    lane: Lane
    is_noted: bool  # an operator's change, of which the log tells before the request is looked at
    # Noted in the group's log, too, before it is carried out (broker/access/audit_notes.py). Only what needs that log
    # anyway: others, such as deleting old files, must be possible where nothing can be written.
    is_audited: bool
    has_raw_body: bool  # a message, which takes no time to read: the handler bounds its size
    is_administration: bool  # closed beyond pyDLedgerAdminFrom while authorization is off


class BatchRequestType(msgspec.Struct, frozen=True):
    """The hot path. All requests of a read that have the same handler go to it together, with their headers unread."""

    code: Code
    header: type[CommandHeader]
    handler: BatchHandler
    needs: tuple[Need, ...]


class Processors(msgspec.Struct, frozen=True):
    sends: SendMessageProcessor
    pulls: PullMessageProcessor
    pops: PopMessageProcessor
    pop_looks: PopLookProcessor
    acks: AckMessageProcessor
    assignments: QueryAssignmentProcessor
    clients: ClientManageProcessor
    consumers: ConsumerManageProcessor
    send_backs: SendMessageBackProcessor
    replies: ReplyMessageProcessor
    recalls: RecallMessageProcessor
    transactions: TransactionProcessor
    queries: QueryMessageProcessor
    admin: AdminBrokerProcessor
    client_admin: ClientAdminProcessor
    consume_stats: ConsumeStatsProcessor
    offset_admin: OffsetAdminProcessor
    info: BrokerInfoProcessor
    timers: TimerAdminProcessor
    transaction_admin: TransactionAdminProcessor
    pop_admin: PopAdminProcessor
    leadership: LeadershipProcessor
    membership: MembershipProcessor
    scrub: ScrubProcessor
    repair: RepairProcessor
    entries: EntriesProcessor
    access: AccessAdminProcessor


def batch_request_types(p: Processors) -> tuple[BatchRequestType, ...]:
    sends, pulls = p.sends.process, p.pulls.process

    def row(code: Code, header: type[CommandHeader], handler: BatchHandler, *needs: Need) -> BatchRequestType:
        return BatchRequestType(code, header, handler, with_names(needs, header, None))

    return (
        row(Code.SEND_MESSAGE, headers.SendMessageRequestHeader, sends, topic(PUB)),
        row(Code.SEND_MESSAGE_V2, headers.SendMessageRequestHeaderV2, sends, topic(PUB)),
        row(Code.SEND_BATCH_MESSAGE, headers.SendMessageRequestHeaderV2, sends, topic(PUB)),
        row(Code.PULL_MESSAGE, headers.PullMessageRequestHeader, pulls, topic(SUB), group(SUB)),
        row(Code.LITE_PULL_MESSAGE, headers.PullMessageRequestHeader, pulls, topic(SUB), group(SUB)),
    )


def request_types(p: Processors) -> tuple[RequestType, ...]:
    # fmt: off
    return (
        # Clients come, stay and go
        row_with_body(Code.HEART_BEAT, NO_HEADER, bodies.HeartbeatData, p.clients.heart_beat,
            topic(SUB, names=named.subscribed_topics), group(SUB, names=named.consumer_groups)),
        row(Code.UNREGISTER_CLIENT, headers.UnregisterClientRequestHeader, p.clients.unregister_client, group(SUB)),
        row_with_body(Code.CHECK_CLIENT_CONFIG, NO_HEADER, bodies.CheckClientRequestBody,
            p.clients.check_client_config, NOTHING),
        # Consumers: members, offsets, locks
        row(Code.GET_CONSUMER_LIST_BY_GROUP, headers.GetConsumerListByGroupRequestHeader,
            p.consumers.get_consumer_list, group(SUB, GET)),
        row(Code.QUERY_CONSUMER_OFFSET, headers.QueryConsumerOffsetRequestHeader,
            p.consumers.query_offset, topic(SUB, GET), group(SUB, GET), lane=Lane.READ_INDEX),
        row(Code.UPDATE_CONSUMER_OFFSET, headers.UpdateConsumerOffsetRequestHeader,
            p.consumers.update_offset, topic(SUB, UPDATE), group(SUB, UPDATE)),
        row_with_body(Code.LOCK_BATCH_MQ, NO_HEADER, bodies.LockBatchRequestBody,
            p.consumers.lock_batch, topic(SUB, names=named.locked_topics), group(SUB)),
        row_with_body(Code.UNLOCK_BATCH_MQ, NO_HEADER, bodies.LockBatchRequestBody,
            p.consumers.unlock_batch, topic(SUB, names=named.locked_topics), group(SUB)),
        row(Code.CONSUMER_SEND_MSG_BACK, headers.ConsumerSendMsgBackRequestHeader,
            p.send_backs.send_back, group(SUB), topic(SUB, is_in_handler=True)),
        # Pop consumers
        row(Code.POP_MESSAGE, pop_headers.PopMessageRequestHeader, p.pops.pop, topic(SUB), group(SUB)),
        row(Code.PEEK_MESSAGE, pop_headers.PeekMessageRequestHeader, p.pop_looks.peek, topic(SUB), group(SUB)),
        row(Code.NOTIFICATION, pop_headers.NotificationRequestHeader,
            p.pop_looks.notify, topic(SUB), group(SUB)),
        row(Code.POLLING_INFO, pop_headers.PollingInfoRequestHeader,
            p.pop_looks.count_waiting, topic(SUB), group(SUB)),
        row(Code.ACK_MESSAGE, pop_headers.AckMessageRequestHeader,
            p.acks.ack, topic(SUB, names=named.popped_topic), group(SUB)),
        row_with_body(Code.BATCH_ACK_MESSAGE, NO_HEADER, pop_bodies.BatchAckMessageRequestBody,
            p.acks.batch_ack,
            topic(SUB, names=named.acknowledged_topics), group(SUB, names=named.acknowledging_groups)),
        row(Code.CHANGE_MESSAGE_INVISIBLETIME, pop_headers.ChangeInvisibleTimeRequestHeader,
            p.acks.change_invisible_time, topic(SUB, names=named.popped_topic), group(SUB)),
        row_with_body(Code.QUERY_ASSIGNMENT, NO_HEADER, pop_bodies.QueryAssignmentRequestBody,
            p.assignments.query_assignment, topic(SUB), group(SUB)),
        row_with_body(Code.SET_MESSAGE_REQUEST_MODE, NO_HEADER, pop_bodies.SetMessageRequestModeRequestBody,
            p.assignments.set_mode, cluster(UPDATE), lane=Lane.LEADER),
        row(Code.GET_ALL_MESSAGE_REQUEST_MODE, NO_HEADER, p.assignments.get_modes, cluster(GET)),
        # Replies to requests
        row(Code.SEND_REPLY_MESSAGE, headers.SendMessageRequestHeader,
            p.replies.send_reply, topic(PUB), has_raw_body=True),
        row(Code.SEND_REPLY_MESSAGE_V2, headers.SendMessageRequestHeaderV2,
            p.replies.send_reply, topic(PUB), has_raw_body=True),
        # Transactions
        row(Code.END_TRANSACTION, headers.EndTransactionRequestHeader,
            p.transactions.end_transaction, topic(PUB, is_in_handler=True)),
        row(Code.RESUME_CHECK_HALF_MESSAGE, admin_headers.ResumeCheckHalfMessageRequestHeader,
            p.transactions.resume_check, cluster(UPDATE), is_noted=True),
        # Single messages
        row(Code.RECALL_MESSAGE, headers.RecallMessageRequestHeader, p.recalls.recall, topic(PUB)),
        row(Code.QUERY_MESSAGE, headers.QueryMessageRequestHeader, p.queries.query_message, topic(SUB, GET)),
        row(Code.VIEW_MESSAGE_BY_ID, headers.ViewMessageRequestHeader,
            p.queries.view_message, topic(GET, is_in_handler=True)),
        # Queues, topics, groups
        row(Code.GET_MAX_OFFSET, headers.GetMaxOffsetRequestHeader,
            p.admin.get_max_offset, topic(SUB, GET), lane=Lane.READ_INDEX),
        row(Code.GET_MIN_OFFSET, headers.GetMinOffsetRequestHeader,
            p.admin.get_min_offset, topic(SUB, GET), lane=Lane.READ_INDEX),
        row(Code.SEARCH_OFFSET_BY_TIMESTAMP, headers.SearchOffsetRequestHeader,
            p.admin.search_offset, topic(SUB, GET), lane=Lane.READ_INDEX),
        row(Code.GET_EARLIEST_MSG_STORETIME, headers.GetEarliestMsgStoretimeRequestHeader,
            p.admin.get_earliest_store_time, topic(SUB, GET)),
        row(Code.DELETE_EXPIRED_COMMITLOG, NO_HEADER,
            p.admin.delete_expired_commit_log, cluster(UPDATE), is_noted=True),
        row(Code.CLEAN_EXPIRED_CONSUMEQUEUE, NO_HEADER,
            p.admin.clean_expired_consume_queue, cluster(UPDATE), is_noted=True),
        row(Code.CLEAN_UNUSED_TOPIC, NO_HEADER, p.admin.clean_unused_topic, cluster(UPDATE), is_noted=True),
        row(Code.UPDATE_AND_CREATE_TOPIC, headers.CreateTopicRequestHeader,
            p.admin.update_topic, topic(CREATE), lane=Lane.LEADER),
        row_with_body(Code.UPDATE_AND_CREATE_TOPIC_LIST, NO_HEADER, admin_bodies.CreateTopicListRequestBody,
            p.admin.update_topic_list, topic(CREATE, names=named.made_topics), lane=Lane.LEADER),
        row(Code.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicRequestHeader,
            p.admin.delete_topic, topic(DELETE), lane=Lane.LEADER),
        row(Code.GET_ALL_TOPIC_CONFIG, NO_HEADER, p.admin.get_all_topics, cluster(GET)),
        row(Code.GET_TOPIC_CONFIG, admin_headers.GetTopicConfigRequestHeader, p.admin.get_topic, topic(GET)),
        row(Code.GET_TOPIC_STATS_INFO, admin_headers.GetTopicStatsInfoRequestHeader,
            p.admin.get_topic_stats, topic(GET)),
        row(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, NO_HEADER, p.admin.get_system_topics, cluster(GET)),
        row(Code.QUERY_CONSUME_QUEUE, admin_headers.QueryConsumeQueueRequestHeader,
            p.admin.query_consume_queue, topic(GET), group(GET)),
        row_with_body(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, NO_HEADER, bodies.SubscriptionGroupConfig,
            p.admin.update_group, cluster(UPDATE), lane=Lane.LEADER),
        row_with_body(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, NO_HEADER, admin_bodies.SubscriptionGroupList,
            p.admin.update_group_list, cluster(UPDATE), lane=Lane.LEADER),
        row(Code.DELETE_SUBSCRIPTIONGROUP, admin_headers.DeleteSubscriptionGroupRequestHeader,
            p.admin.delete_group, group(DELETE), lane=Lane.LEADER),
        row(Code.GET_SUBSCRIPTIONGROUP_CONFIG, admin_headers.GetSubscriptionGroupConfigRequestHeader,
            p.admin.get_group, group(GET)),
        row(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, admin_headers.UpdateGroupForbiddenRequestHeader,
            p.admin.update_group_forbidden, topic(UPDATE), group(UPDATE), lane=Lane.LEADER),
        row(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, NO_HEADER, p.admin.get_all_groups, cluster(GET)),
        row(Code.GET_TIMER_CHECK_POINT, NO_HEADER, p.timers.get_check_point, cluster(GET)),
        row(Code.GET_TIMER_METRICS, NO_HEADER, p.timers.get_metrics, cluster(GET)),
        row(Code.GET_POPPED_MESSAGES, NO_HEADER, p.pop_admin.get_popped, cluster(GET)),
        row(Code.GET_PENDING_TRANSACTIONS, NO_HEADER, p.transaction_admin.get_pending, cluster(GET)),
        row(Code.GET_TRANSACTION_STATE, admin_headers.GetTransactionStateRequestHeader,
            p.transaction_admin.get_state, cluster(GET)),
        row(Code.GET_TIMER_STATE, admin_headers.GetTimerStateRequestHeader, p.timers.get_timer_state, cluster(GET)),
        row(Code.GET_ALL_DELAY_OFFSET, NO_HEADER, p.admin.get_all_delay_offsets, cluster(GET)),
        # Clients as tools see them
        row(Code.GET_CONSUMER_CONNECTION_LIST, admin_headers.GetConsumerConnectionListRequestHeader,
            p.client_admin.get_consumer_connections, group(GET)),
        row(Code.GET_PRODUCER_CONNECTION_LIST, admin_headers.GetProducerConnectionListRequestHeader,
            p.client_admin.get_producer_connections, cluster(GET)),
        row(Code.GET_ALL_PRODUCER_INFO, NO_HEADER, p.client_admin.get_all_producers, cluster(GET)),
        row(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, admin_headers.QuerySubscriptionByConsumerRequestHeader,
            p.client_admin.query_subscription, topic(GET), group(GET)),
        row(Code.GET_CONSUMER_RUNNING_INFO, admin_headers.GetConsumerRunningInfoRequestHeader,
            p.client_admin.get_running_info, group(GET)),
        row(Code.CONSUME_MESSAGE_DIRECTLY, admin_headers.ConsumeMessageDirectlyResultRequestHeader,
            p.client_admin.consume_directly, topic(SUB), group(SUB), topic(SUB, is_in_handler=True)),
        row(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, admin_headers.GetConsumerStatusRequestHeader,
            p.client_admin.get_consumer_status, topic(GET), group(GET)),
        # Progress of consumers
        row(Code.GET_CONSUME_STATS, admin_headers.GetConsumeStatsRequestHeader,
            p.consume_stats.get_consume_stats, topic(GET, names=named.counted_topics), group(GET)),
        row(Code.GET_BROKER_CONSUME_STATS, admin_headers.GetConsumeStatsInBrokerHeader,
            p.consume_stats.get_broker_consume_stats, cluster(GET)),
        row(Code.QUERY_TOPIC_CONSUME_BY_WHO, admin_headers.QueryTopicConsumeByWhoRequestHeader,
            p.consume_stats.query_topic_consume_by_who, topic(GET)),
        row(Code.QUERY_TOPICS_BY_CONSUMER, admin_headers.QueryTopicsByConsumerRequestHeader,
            p.consume_stats.query_topics_by_consumer, group(GET)),
        row(Code.QUERY_CONSUME_TIME_SPAN, admin_headers.QueryConsumeTimeSpanRequestHeader,
            p.consume_stats.query_consume_time_span, topic(GET), group(GET)),
        # Offsets by hand
        row(Code.INVOKE_BROKER_TO_RESET_OFFSET, admin_headers.ResetOffsetRequestHeader,
            p.offset_admin.reset_offset, topic(UPDATE), group(UPDATE), is_audited=True),
        row(Code.CLONE_GROUP_OFFSET, admin_headers.CloneGroupOffsetRequestHeader,
            p.offset_admin.clone_group_offset,
            topic(UPDATE), group(UPDATE, names=named.cloned_groups), is_audited=True),
        # The broker itself
        row(Code.GET_BROKER_RUNTIME_INFO, NO_HEADER, p.info.get_runtime_info, cluster(GET)),
        row(Code.GET_BROKER_CONFIG, NO_HEADER, p.info.get_config, cluster(GET)),
        row(Code.UPDATE_BROKER_CONFIG, NO_HEADER, p.info.update_config, cluster(UPDATE), is_noted=True),
        row(Code.VIEW_BROKER_STATS_DATA, admin_headers.ViewBrokerStatsDataRequestHeader,
            p.info.view_stats, cluster(GET)),
        row(Code.GET_BROKER_HA_STATUS, NO_HEADER, p.info.get_ha_status, cluster(GET)),
        # The group and its disks
        row(Code.LEADERSHIP_TRANSFER, admin_headers.LeadershipTransferRequestHeader,
            p.leadership.transfer_leadership, cluster(UPDATE), is_noted=True),
        row(Code.LIST_MEMBERS, NO_HEADER, p.membership.list_members, cluster(GET)),
        row(Code.ADD_MEMBER, admin_headers.AddMemberRequestHeader,
            p.membership.add_member, cluster(UPDATE), is_audited=True),
        row(Code.REMOVE_MEMBER, admin_headers.RemoveMemberRequestHeader,
            p.membership.remove_member, cluster(UPDATE), is_audited=True),
        row(Code.SCRUB, admin_headers.ScrubRequestHeader, p.scrub.scrub, cluster(UPDATE)),
        row(Code.REPAIR_STATUS, NO_HEADER, p.repair.get_status, cluster(GET)),
        # The log has the secrets of users.
        row(Code.GET_ENTRIES, admin_headers.GetEntriesRequestHeader, p.entries.get_entries, cluster(UPDATE)),
        row(Code.GET_ENTRY_HEAD, admin_headers.GetEntryHeadRequestHeader, p.entries.get_head, cluster(GET)),
        # Users and policies
        row_with_body(Code.AUTH_CREATE_USER, auth_headers.CreateUserRequestHeader, auth_bodies.UserInfo,
            p.access.create_user, cluster(UPDATE), lane=Lane.LEADER),
        row_with_body(Code.AUTH_UPDATE_USER, auth_headers.UpdateUserRequestHeader, auth_bodies.UserInfo,
            p.access.update_user, cluster(UPDATE), lane=Lane.LEADER),
        row(Code.AUTH_DELETE_USER, auth_headers.DeleteUserRequestHeader,
            p.access.delete_user, cluster(UPDATE), lane=Lane.LEADER),
        row(Code.AUTH_GET_USER, auth_headers.GetUserRequestHeader,
            p.access.get_user, cluster(GET), is_private=True),
        row(Code.AUTH_LIST_USER, auth_headers.ListUsersRequestHeader,
            p.access.list_users, cluster(GET), is_private=True),
        row_with_body(Code.AUTH_CREATE_ACL, auth_headers.CreateAclRequestHeader, auth_bodies.AclInfo,
            p.access.put_acl, cluster(UPDATE), lane=Lane.LEADER),
        row_with_body(Code.AUTH_UPDATE_ACL, auth_headers.UpdateAclRequestHeader, auth_bodies.AclInfo,
            p.access.put_acl, cluster(UPDATE), lane=Lane.LEADER),
        row(Code.AUTH_DELETE_ACL, auth_headers.DeleteAclRequestHeader,
            p.access.delete_acl, cluster(UPDATE), lane=Lane.LEADER),
        row(Code.AUTH_GET_ACL, auth_headers.GetAclRequestHeader, p.access.get_acl, cluster(GET), is_private=True),
        row(Code.AUTH_LIST_ACL, auth_headers.ListAclsRequestHeader,
            p.access.list_acls, cluster(GET), is_private=True),
        row(Code.EXPLAIN_ACCESS, auth_headers.ExplainAccessRequestHeader,
            p.access.explain_access, cluster(GET), is_private=True),
        row(Code.GET_AUDIT, auth_headers.GetAuditRequestHeader, p.access.get_audit, cluster(GET), is_private=True),
        row_with_body(Code.CHECK_ACCESS, NO_HEADER, auth_bodies.CheckAccessRequestBody,
            p.access.check_access, cluster(GET), is_private=True),
    )
    # fmt: on


def row(
    code: Code,
    header: type[HeaderT],
    handler: Handler[HeaderT],
    *needs: Need,
    lane: Lane = Lane.HERE,
    is_noted: bool = False,
    is_audited: bool = False,
    has_raw_body: bool = False,
    is_private: bool = False,
) -> RequestType:
    """The type checker sees that the handler takes this header. `is_private`: administration although it only asks."""
    return RequestType(
        code,
        header,
        None,
        handler,
        with_names(needs, header, None),
        lane,
        is_noted or is_audited or lane is Lane.LEADER,
        is_audited or lane is Lane.LEADER,
        has_raw_body,
        is_private or is_administration(needs),
    )


def row_with_body(
    code: Code,
    header: type[HeaderT],
    body: type[BodyT],
    handler: BodyHandler[HeaderT, BodyT],
    *needs: Need,
    lane: Lane = Lane.HERE,
    is_private: bool = False,
) -> RequestType:
    """Of a code whose body is JSON, which the handler gets as a value. `is_private`: as with row()."""
    return RequestType(
        code,
        header,
        body,
        handler,
        with_names(needs, header, body),
        lane,
        is_noted=lane is Lane.LEADER,
        is_audited=lane is Lane.LEADER,
        has_raw_body=False,
        is_administration=is_private or is_administration(needs),
    )
