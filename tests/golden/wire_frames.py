"""The recorded frames under wire/, and what a frame of each request code holds.

Frames were recorded between real RocketMQ 5.5.0 / 4.9.5 processes; `frame` is what was on the wire,
all other fields of a line were derived from it by the recorder.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remoting.bodies import admin_bodies, auth_bodies, bodies, pop_bodies, topic_bodies
from remoting.codes import RequestCode
from remoting.headers import admin_headers, auth_headers, headers, pop_headers

WIRE_DIR = Path(__file__).parent / "wire"


@dataclass(frozen=True)
class RecordedFrame:
    """`code` is the request's, also on its response; `kind` is request, oneway or response."""

    file: str
    seq: int
    code: int
    code_name: str
    kind: str
    response_code: int
    frame: bytes

    @property
    def is_dledger(self) -> bool:
        return self.file.startswith("dledger_")

    @property
    def direction(self) -> str:
        return "response" if self.kind == "response" else "request"

    @property
    def key(self) -> str:
        """What the manifest groups by."""
        system = "DLEDGER" if self.is_dledger else "MQ"
        return f"{system} {self.code} {self.code_name} {self.kind}"


def recorded_files() -> list[Path]:
    return sorted(WIRE_DIR.glob("*.jsonl.gz"))


def recorded_frames(path: Path) -> Iterator[RecordedFrame]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if "frame_b64" not in row:
                continue
            is_response = row["kind"] == "response"
            prefix = "reply_to_" if is_response else ""
            yield RecordedFrame(
                file=path.name,
                seq=row["seq"],
                code=row[prefix + "code"],
                code_name=row[prefix + "code_name"],
                kind=row["kind"],
                response_code=row["code"] if is_response else 0,
                frame=base64.b64decode(row["frame_b64"]),
            )


# Request code -> header class, of what tools send.
ADMIN_REQUESTS: dict[int, type[headers.CommandHeader]] = {
    RequestCode.GET_CONSUME_STATS: admin_headers.GetConsumeStatsRequestHeader,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: admin_headers.QueryTopicConsumeByWhoRequestHeader,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: admin_headers.QueryTopicsByConsumerRequestHeader,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: admin_headers.QuerySubscriptionByConsumerRequestHeader,
    RequestCode.QUERY_CONSUME_TIME_SPAN: admin_headers.QueryConsumeTimeSpanRequestHeader,
    RequestCode.QUERY_CONSUME_QUEUE: admin_headers.QueryConsumeQueueRequestHeader,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: admin_headers.ResetOffsetRequestHeader,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: admin_headers.ResetOffsetRequestHeader,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: admin_headers.GetConsumerStatusRequestHeader,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: admin_headers.GetConsumerStatusRequestHeader,
    RequestCode.CLONE_GROUP_OFFSET: admin_headers.CloneGroupOffsetRequestHeader,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: admin_headers.GetConsumerConnectionListRequestHeader,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: admin_headers.GetProducerConnectionListRequestHeader,
    RequestCode.GET_CONSUMER_RUNNING_INFO: admin_headers.GetConsumerRunningInfoRequestHeader,
    RequestCode.VIEW_BROKER_STATS_DATA: admin_headers.ViewBrokerStatsDataRequestHeader,
    RequestCode.GET_BROKER_CONSUME_STATS: admin_headers.GetConsumeStatsInBrokerHeader,
    RequestCode.GET_TOPIC_STATS_INFO: admin_headers.GetTopicStatsInfoRequestHeader,
    RequestCode.GET_TOPIC_CONFIG: admin_headers.GetTopicConfigRequestHeader,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: admin_headers.GetSubscriptionGroupConfigRequestHeader,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: admin_headers.UpdateGroupForbiddenRequestHeader,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: admin_headers.DeleteSubscriptionGroupRequestHeader,
    RequestCode.GET_BROKER_MEMBER_GROUP: admin_headers.GetBrokerMemberGroupRequestHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: admin_headers.WipeWritePermOfBrokerRequestHeader,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: admin_headers.AddWritePermOfBrokerRequestHeader,
}

# (request code, direction) -> header class. Absent: the code has no header class in that direction.
HEADERS: dict[tuple[int, str], type[headers.CommandHeader]] = {
    (RequestCode.SEND_MESSAGE, "request"): headers.SendMessageRequestHeader,
    (RequestCode.SEND_MESSAGE, "response"): headers.SendMessageResponseHeader,
    (RequestCode.SEND_MESSAGE_V2, "request"): headers.SendMessageRequestHeaderV2,
    (RequestCode.SEND_MESSAGE_V2, "response"): headers.SendMessageResponseHeader,
    (RequestCode.SEND_BATCH_MESSAGE, "request"): headers.SendMessageRequestHeaderV2,
    (RequestCode.SEND_BATCH_MESSAGE, "response"): headers.SendMessageResponseHeader,
    (RequestCode.SEND_REPLY_MESSAGE_V2, "request"): headers.SendMessageRequestHeaderV2,
    (RequestCode.SEND_REPLY_MESSAGE_V2, "response"): headers.SendMessageResponseHeader,
    (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, "request"): headers.ReplyMessageRequestHeader,
    (RequestCode.CONSUMER_SEND_MSG_BACK, "request"): headers.ConsumerSendMsgBackRequestHeader,
    (RequestCode.END_TRANSACTION, "request"): headers.EndTransactionRequestHeader,
    (RequestCode.CHECK_TRANSACTION_STATE, "request"): headers.CheckTransactionStateRequestHeader,
    (RequestCode.PULL_MESSAGE, "request"): headers.PullMessageRequestHeader,
    (RequestCode.PULL_MESSAGE, "response"): headers.PullMessageResponseHeader,
    (RequestCode.LITE_PULL_MESSAGE, "request"): headers.PullMessageRequestHeader,
    (RequestCode.LITE_PULL_MESSAGE, "response"): headers.PullMessageResponseHeader,
    (RequestCode.VIEW_MESSAGE_BY_ID, "request"): headers.ViewMessageRequestHeader,
    (RequestCode.QUERY_MESSAGE, "request"): headers.QueryMessageRequestHeader,
    (RequestCode.QUERY_MESSAGE, "response"): headers.QueryMessageResponseHeader,
    (RequestCode.QUERY_CONSUMER_OFFSET, "request"): headers.QueryConsumerOffsetRequestHeader,
    (RequestCode.QUERY_CONSUMER_OFFSET, "response"): headers.QueryConsumerOffsetResponseHeader,
    (RequestCode.UPDATE_CONSUMER_OFFSET, "request"): headers.UpdateConsumerOffsetRequestHeader,
    (RequestCode.GET_MAX_OFFSET, "request"): headers.GetMaxOffsetRequestHeader,
    (RequestCode.GET_MAX_OFFSET, "response"): headers.GetMaxOffsetResponseHeader,
    (RequestCode.GET_MIN_OFFSET, "request"): headers.GetMinOffsetRequestHeader,
    (RequestCode.GET_MIN_OFFSET, "response"): headers.GetMinOffsetResponseHeader,
    (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "request"): headers.SearchOffsetRequestHeader,
    (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "response"): headers.SearchOffsetResponseHeader,
    (RequestCode.RECALL_MESSAGE, "request"): headers.RecallMessageRequestHeader,
    (RequestCode.RECALL_MESSAGE, "response"): headers.RecallMessageResponseHeader,
    (RequestCode.GET_EARLIEST_MSG_STORETIME, "request"): headers.GetEarliestMsgStoretimeRequestHeader,
    (RequestCode.GET_EARLIEST_MSG_STORETIME, "response"): headers.GetEarliestMsgStoretimeResponseHeader,
    (RequestCode.POP_MESSAGE, "request"): pop_headers.PopMessageRequestHeader,
    (RequestCode.POP_MESSAGE, "response"): pop_headers.PopMessageResponseHeader,
    (RequestCode.ACK_MESSAGE, "request"): pop_headers.AckMessageRequestHeader,
    (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, "request"): pop_headers.ChangeInvisibleTimeRequestHeader,
    (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, "response"): pop_headers.ChangeInvisibleTimeResponseHeader,
    (RequestCode.PEEK_MESSAGE, "request"): pop_headers.PeekMessageRequestHeader,
    (RequestCode.PEEK_MESSAGE, "response"): pop_headers.PopMessageResponseHeader,
    (RequestCode.NOTIFICATION, "request"): pop_headers.NotificationRequestHeader,
    (RequestCode.NOTIFICATION, "response"): pop_headers.NotificationResponseHeader,
    (RequestCode.POLLING_INFO, "request"): pop_headers.PollingInfoRequestHeader,
    (RequestCode.POLLING_INFO, "response"): pop_headers.PollingInfoResponseHeader,
    (RequestCode.HEART_BEAT, "request"): headers.HeartbeatRequestHeader,
    (RequestCode.UNREGISTER_CLIENT, "request"): headers.UnregisterClientRequestHeader,
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, "request"): headers.GetConsumerListByGroupRequestHeader,
    (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, "request"): headers.NotifyConsumerIdsChangedRequestHeader,
    (RequestCode.LOCK_BATCH_MQ, "request"): headers.LockBatchMqRequestHeader,
    (RequestCode.UNLOCK_BATCH_MQ, "request"): headers.UnlockBatchMqRequestHeader,
    (RequestCode.UPDATE_AND_CREATE_TOPIC, "request"): headers.CreateTopicRequestHeader,
    (RequestCode.DELETE_TOPIC_IN_BROKER, "request"): headers.DeleteTopicRequestHeader,
    (RequestCode.DELETE_TOPIC_IN_NAMESRV, "request"): headers.DeleteTopicFromNamesrvRequestHeader,
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, "request"): headers.GetRouteInfoRequestHeader,
    (RequestCode.GET_TOPICS_BY_CLUSTER, "request"): headers.GetTopicsByClusterRequestHeader,
    (RequestCode.GET_ALL_TOPIC_CONFIG, "request"): headers.GetAllTopicConfigRequestHeader,
    (RequestCode.GET_ALL_TOPIC_CONFIG, "response"): headers.GetAllTopicConfigResponseHeader,
    (RequestCode.REGISTER_BROKER, "request"): headers.RegisterBrokerRequestHeader,
    (RequestCode.REGISTER_BROKER, "response"): headers.RegisterBrokerResponseHeader,
    (RequestCode.UNREGISTER_BROKER, "request"): headers.UnRegisterBrokerRequestHeader,
    (RequestCode.GET_KV_CONFIG, "request"): headers.GetKVConfigRequestHeader,
    (RequestCode.GET_KV_CONFIG, "response"): headers.GetKVConfigResponseHeader,
    (RequestCode.PUT_KV_CONFIG, "request"): headers.PutKVConfigRequestHeader,
    (RequestCode.DELETE_KV_CONFIG, "request"): headers.DeleteKVConfigRequestHeader,
    (RequestCode.GET_KVLIST_BY_NAMESPACE, "request"): headers.GetKVListByNamespaceRequestHeader,
    (RequestCode.AUTH_CREATE_USER, "request"): auth_headers.CreateUserRequestHeader,
    (RequestCode.AUTH_DELETE_USER, "request"): auth_headers.DeleteUserRequestHeader,
    (RequestCode.AUTH_GET_USER, "request"): auth_headers.GetUserRequestHeader,
    (RequestCode.AUTH_LIST_USER, "request"): auth_headers.ListUsersRequestHeader,
    (RequestCode.AUTH_CREATE_ACL, "request"): auth_headers.CreateAclRequestHeader,
    (RequestCode.AUTH_DELETE_ACL, "request"): auth_headers.DeleteAclRequestHeader,
    (RequestCode.AUTH_LIST_ACL, "request"): auth_headers.ListAclsRequestHeader,
    **{(code, "request"): header for code, header in ADMIN_REQUESTS.items()},
}

# (request code, direction) -> class of its JSON body.
BODIES: dict[tuple[int, str], type[bodies.RemotingBody]] = {
    (RequestCode.HEART_BEAT, "request"): bodies.HeartbeatData,
    (RequestCode.BATCH_ACK_MESSAGE, "request"): pop_bodies.BatchAckMessageRequestBody,
    (RequestCode.QUERY_ASSIGNMENT, "request"): pop_bodies.QueryAssignmentRequestBody,
    (RequestCode.QUERY_ASSIGNMENT, "response"): pop_bodies.QueryAssignmentResponseBody,
    (RequestCode.SET_MESSAGE_REQUEST_MODE, "request"): pop_bodies.SetMessageRequestModeRequestBody,
    (
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        "response",
    ): pop_bodies.MessageRequestModeSerializeWrapper,
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, "response"): bodies.GetConsumerListByGroupResponseBody,
    (RequestCode.LOCK_BATCH_MQ, "request"): bodies.LockBatchRequestBody,
    (RequestCode.LOCK_BATCH_MQ, "response"): bodies.LockBatchResponseBody,
    (RequestCode.UNLOCK_BATCH_MQ, "request"): bodies.LockBatchRequestBody,
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, "response"): bodies.TopicRouteData,
    (RequestCode.GET_BROKER_CLUSTER_INFO, "response"): bodies.ClusterInfo,
    (RequestCode.GET_TOPICS_BY_CLUSTER, "response"): bodies.TopicList,
    (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "response"): bodies.TopicList,
    (RequestCode.GET_ALL_TOPIC_CONFIG, "response"): topic_bodies.TopicConfigSerializeWrapper,
    (RequestCode.REGISTER_BROKER, "request"): topic_bodies.RegisterBrokerBody,
    (RequestCode.REGISTER_BROKER, "response"): bodies.KVTable,
    (RequestCode.GET_KVLIST_BY_NAMESPACE, "response"): bodies.KVTable,
    (RequestCode.GET_CONSUME_STATS, "response"): admin_bodies.ConsumeStats,
    (RequestCode.GET_BROKER_CONSUME_STATS, "response"): admin_bodies.ConsumeStatsList,
    (RequestCode.QUERY_CONSUME_TIME_SPAN, "response"): admin_bodies.QueryConsumeTimeSpanBody,
    (RequestCode.GET_ALL_DELAY_OFFSET, "response"): admin_bodies.DelayOffsetSerializeWrapper,
    (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, "response"): admin_bodies.GroupList,
    (RequestCode.QUERY_TOPICS_BY_CONSUMER, "response"): bodies.TopicList,
    (RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, "response"): admin_bodies.QuerySubscriptionResponseBody,
    (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, "response"): admin_bodies.ResetOffsetBody,
    (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, "request"): admin_bodies.ResetOffsetBody,
    (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, "response"): admin_bodies.GetConsumerStatusBody,
    (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, "response"): admin_bodies.GetConsumerStatusBody,
    (RequestCode.GET_CONSUMER_RUNNING_INFO, "response"): admin_bodies.ConsumerRunningInfo,
    (RequestCode.GET_TOPIC_STATS_INFO, "response"): admin_bodies.TopicStatsTable,
    (RequestCode.GET_TIMER_METRICS, "response"): admin_bodies.TimerMetricsSerializeWrapper,
    (RequestCode.QUERY_CONSUME_QUEUE, "response"): admin_bodies.QueryConsumeQueueResponseBody,
    (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, "request"): admin_bodies.CreateTopicListRequestBody,
    (RequestCode.GET_CONSUMER_CONNECTION_LIST, "response"): admin_bodies.ConsumerConnection,
    (RequestCode.GET_PRODUCER_CONNECTION_LIST, "response"): admin_bodies.ProducerConnection,
    (RequestCode.GET_ALL_PRODUCER_INFO, "response"): admin_bodies.ProducerTableInfo,
    (RequestCode.VIEW_BROKER_STATS_DATA, "response"): admin_bodies.BrokerStatsData,
    (RequestCode.GET_BROKER_MEMBER_GROUP, "response"): admin_bodies.GetBrokerMemberGroupResponseBody,
    (RequestCode.GET_BROKER_RUNTIME_INFO, "response"): bodies.KVTable,
    (RequestCode.GET_TOPIC_CONFIG, "response"): topic_bodies.TopicConfig,
    (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, "response"): bodies.TopicList,
    (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, "response"): bodies.TopicList,
    (RequestCode.GET_UNIT_TOPIC_LIST, "response"): bodies.TopicList,
    (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, "response"): bodies.TopicList,
    (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, "response"): bodies.TopicList,
    (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "request"): bodies.SubscriptionGroupConfig,
    (RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, "response"): admin_bodies.GroupForbidden,
    (RequestCode.AUTH_CREATE_USER, "request"): auth_bodies.UserInfo,
    (RequestCode.AUTH_CREATE_ACL, "request"): auth_bodies.AclInfo,
    (RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, "response"): bodies.SubscriptionGroupConfig,
}

# Codes whose bodies are properties texts.
TEXT_CODES = frozenset(
    {
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
    }
)
# Bodies that the broker takes or writes without a class of their own; its answers are compared with what was recorded.
ANSWERED_CODES = frozenset(
    {
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_TIMER_CHECK_POINT,
    }
)
# Codes that nobody here serves or sends yet, by who brings them. Each recorded code is here or in the tables above.
NOT_YET: dict[str, frozenset[int]] = {
    "a later issue: static topics": frozenset({308, 513}),
    "nobody: tables that a slave copies": frozenset({43}),
    "a later issue: cold data flow control": frozenset({2003}),
}
DLEDGER_NOT_YET = "a later issue: Java's DLedger peer protocol (our peers speak their own)"

# Sent by the recorder to be refused; such a frame has no values beyond its header.
UNKNOWN_CODES = frozenset({-31073, 3442, 23352, 88888, 99999})
EMPTY_CODES = frozenset({306, 316, 329})  # neither fields nor a body, in both directions
TYPED_CODES = frozenset(code for code, _ in (*HEADERS, *BODIES)) | UNKNOWN_CODES | EMPTY_CODES
