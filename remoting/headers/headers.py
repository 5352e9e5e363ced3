"""Request and response headers as typed values, and their way to and from ext fields.

RocketMQ sends every header value as a string in Java's toString form. `decode` turns a map of them
into a struct, `to_ext_fields` a struct into the map that Java would write. The wire name of a field
is the camel-case of its name here unless it says otherwise; fields that a class does not list are
ignored, as Java does (ReqT, or the trace marks of a send response, travel that way).

A field without a default is required. Java's primitives, which are always written, get Java's own
default, so that a peer of another language may leave them out. Times are milliseconds since the epoch.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, TypeVar

import msgspec
from msgspec import field

from remoting.codes import RequestCode
from remoting.errors import RemotingHeaderError
from remoting.fastjson_values import TRUE_WORDS, to_struct

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class CommandHeader(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """Base of all headers."""


class RpcRequestHeader(CommandHeader, kw_only=True):
    """What any request may carry besides: namespace, namespaced already, broker name, oneway."""

    ns: str | None = None
    nsd: bool | None = None
    bname: str | None = None
    oway: bool | None = None


class TopicRequestHeader(RpcRequestHeader, kw_only=True):
    """`lo`: the queue id is a logical one (static topics)."""

    lo: bool | None = None


HeaderT = TypeVar("HeaderT", bound=CommandHeader)

_LONG_NAMED_SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
_FIELD_IN_ERROR = re.compile(r"field `(\w+)`|\$\.(\w+)")


def decode(header_type: type[HeaderT], ext_fields: dict[str, str]) -> HeaderT:
    """The header that these ext fields hold. Raises RemotingHeaderError, which names the field."""
    try:
        return to_struct(header_type, ext_fields, zeros=False)
    except msgspec.ValidationError as error:
        found = _FIELD_IN_ERROR.search(str(error))
        name = (found[1] or found[2]) if found else ""
        value = ext_fields.get(name)
        reason = str(error) if value is None else f"{error}, it is {value!r:.80}"
        raise RemotingHeaderError(header_type.__name__, name, reason) from error


def is_true(ext_fields: dict[str, str], name: str) -> bool:
    """Whether a field says yes that is read without its header; what is no boolean does not."""
    return ext_fields.get(name, "").lower() in TRUE_WORDS


def to_ext_fields(header: CommandHeader) -> dict[str, str]:
    """The ext fields of a header, in its class's order; None is left out."""
    ext_fields: dict[str, str] = {}
    for attribute, name in _wire_names(type(header)):
        value = getattr(header, attribute)
        if value is None:
            continue
        if value is True:
            ext_fields[name] = "true"
        elif value is False:
            ext_fields[name] = "false"
        else:
            ext_fields[name] = str(value)
    return ext_fields


@cache
def _wire_names(header_type: type[CommandHeader]) -> tuple[tuple[str, str], ...]:
    return tuple((info.name, info.encode_name) for info in msgspec.structs.fields(header_type))


# Sending


class SendMessageRequestHeader(TopicRequestHeader, kw_only=True):
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None


class SendMessageRequestHeaderV2(TopicRequestHeader, kw_only=True):
    """The same values under one-letter names: the form that clients use unless told otherwise."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(default=None, name="i")
    reconsume_times: Int32 | None = field(default=None, name="j")
    unit_mode: bool | None = field(default=None, name="k")
    max_reconsume_times: Int32 | None = field(default=None, name="l")
    batch: bool | None = field(default=None, name="m")
    broker_name: str | None = field(default=None, name="n")


SendMessageHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2


def decode_send_message(code: int, ext_fields: dict[str, str]) -> SendMessageHeader:
    """The send header in the form that the request code calls for; both read alike."""
    if code in _LONG_NAMED_SENDS:
        return decode(SendMessageRequestHeader, ext_fields)
    return decode(SendMessageRequestHeaderV2, ext_fields)


class SendMessageResponseHeader(CommandHeader, kw_only=True):
    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class ReplyMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """A reply as the broker pushes it to its requester."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64


class ConsumerSendMsgBackRequestHeader(RpcRequestHeader, kw_only=True):
    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class EndTransactionRequestHeader(RpcRequestHeader, kw_only=True):
    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool | None = None
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(RpcRequestHeader, kw_only=True):
    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


# Reading


class PullMessageRequestHeader(TopicRequestHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None
    lite_topic: str | None = None


class PullMessageResponseHeader(CommandHeader, kw_only=True):
    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class RecallMessageRequestHeader(TopicRequestHeader, kw_only=True):
    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(CommandHeader, kw_only=True):
    msg_id: str


class ViewMessageRequestHeader(CommandHeader, kw_only=True):
    topic: str | None = None
    offset: Int64


class QueryMessageRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None
    last_key: str | None = None
    is_unique_key_query: bool | None = field(default=None, name="_UNIQUE_KEY_QUERY")  # of clients before 5.0


class QueryMessageResponseHeader(CommandHeader, kw_only=True):
    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


# Offsets of queues and groups


class QueryConsumerOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(CommandHeader, kw_only=True):
    offset: Int64


class UpdateConsumerOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32 | None = None
    commit_offset: Int64 | None = None


class GetMaxOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str
    queue_id: Int32
    committed: bool = True


class GetMaxOffsetResponseHeader(CommandHeader, kw_only=True):
    offset: Int64


class GetMinOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str
    queue_id: Int32


class GetMinOffsetResponseHeader(CommandHeader, kw_only=True):
    offset: Int64


class SearchOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    lite_topic: str | None = None


class SearchOffsetResponseHeader(CommandHeader, kw_only=True):
    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(CommandHeader, kw_only=True):
    timestamp: Int64


# Clients and groups


class HeartbeatRequestHeader(RpcRequestHeader, kw_only=True):
    pass


class UnregisterClientRequestHeader(RpcRequestHeader, kw_only=True):
    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(RpcRequestHeader, kw_only=True):
    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(RpcRequestHeader, kw_only=True):
    consumer_group: str


class LockBatchMqRequestHeader(RpcRequestHeader, kw_only=True):
    pass


class UnlockBatchMqRequestHeader(RpcRequestHeader, kw_only=True):
    pass


# Topics and routes


class CreateTopicRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class DeleteTopicRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str


class DeleteTopicFromNamesrvRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str
    cluster_name: str | None = None


class GetRouteInfoRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str
    accept_standard_json_only: bool | None = None


class GetTopicsByClusterRequestHeader(CommandHeader, kw_only=True):
    cluster: str


class GetAllTopicConfigRequestHeader(CommandHeader, kw_only=True):
    topic_seq: Int32 = 0  # 4.9 asks for the whole table and writes no header
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetAllTopicConfigResponseHeader(CommandHeader, kw_only=True):
    total_topic_num: Int32


# Name server


class RegisterBrokerRequestHeader(CommandHeader, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 | None = None
    confirmed: bool | None = None  # of our own: said in answer to CONFIRM_REGISTRATION


class RegisterBrokerResponseHeader(CommandHeader, kw_only=True):
    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(CommandHeader, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequestHeader(CommandHeader, kw_only=True):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class GetKVConfigRequestHeader(CommandHeader, kw_only=True):
    namespace: str
    key: str


class GetKVConfigResponseHeader(CommandHeader, kw_only=True):
    value: str | None = None


class PutKVConfigRequestHeader(CommandHeader, kw_only=True):
    namespace: str
    key: str
    value: str


class DeleteKVConfigRequestHeader(CommandHeader, kw_only=True):
    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(CommandHeader, kw_only=True):
    namespace: str
