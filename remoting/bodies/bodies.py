"""JSON bodies of requests and responses, as values.

Read as tolerantly as fastjson does (fastjson.py and fastjson_values.py). Written as Java does: names in alphabetical
order, None left out, map entries in the order that they have. A field whose default is None may be missing in the
bodies of older versions; times are milliseconds since the epoch.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import field

from remoting.errors import RemotingBodyError
from remoting.fastjson import VALUES_MAX, dumps_fastjson
from remoting.fastjson import loads_fastjson as loads_fastjson
from remoting.fastjson_values import java_enum, to_struct
from remoting.headers.headers import Int32, Int64

BodyT = TypeVar("BodyT", bound="RemotingBody")

ConsumeType = Annotated[str, java_enum("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")]
MessageModel = Annotated[str, java_enum("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE")]
ConsumeFromWhere = Annotated[
    str,
    java_enum(
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
]


class RemotingBody(msgspec.Struct, kw_only=True, rename="camel"):
    """Base of all JSON bodies and of the beans in them."""

    def encode(self) -> bytes:
        return dumps_fastjson(to_json_value(self))

    @classmethod
    def decode(cls: type[BodyT], data: bytes | memoryview) -> BodyT:
        """Raises RemotingBodyError, which names the type and the place, when the body is not of this type."""
        try:
            value = loads_fastjson(bytes(data))
        except RemotingBodyError as error:
            raise RemotingBodyError(f"{cls.__name__}: {error}") from error
        return from_json_value(cls, value)


def from_json_value(body_type: type[BodyT], value: object, *, values_max: int = VALUES_MAX) -> BodyT:
    """A body from what loads_fastjson gives. Raises RemotingBodyError."""
    try:
        return to_struct(body_type, value, zeros=True, values_max=values_max)
    except msgspec.ValidationError as error:
        raise RemotingBodyError(f"{body_type.__name__}: {error}") from error


def to_json_value(value: object) -> object:
    """The same value in dicts and lists, for dumps_fastjson; a bean as a map key becomes a BeanKey."""
    if isinstance(value, msgspec.Struct):
        return {
            name: to_json_value(member)
            for attribute, name in _sorted_names(type(value))
            if (member := getattr(value, attribute)) is not None
        }
    if isinstance(value, dict):
        return {
            tuple(bean.items()) if isinstance(bean := to_json_value(key), dict) else bean: to_json_value(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    return value


@cache
def _sorted_names(body_type: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    fields = msgspec.structs.fields(body_type)
    return tuple(sorted(((info.name, info.encode_name) for info in fields), key=lambda pair: pair[1]))


# Routes


# Whoever has a route counts its queues: a number from outside must not take all memory.
QueueCount = Annotated[int, msgspec.Meta(ge=0, le=65_536)]


class QueueData(RemotingBody):
    """Queues of one topic on one broker group. `perm`: 4 read, 2 write, 1 inherit, 8 priority."""

    broker_name: str
    read_queue_nums: QueueCount
    write_queue_nums: QueueCount
    perm: Int64
    topic_sys_flag: Int64 = 0


MASTER_ID: Final = 0  # the broker id of the one that leads


class BrokerData(RemotingBody):
    """Addresses ("ip:port") of one broker group by broker id; MASTER_ID is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str]
    zone_name: str | None = None
    enable_acting_master: bool | None = None


class TopicRouteData(RemotingBody):
    """Answer to GET_ROUTEINFO_BY_TOPIC."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    topic_queue_mapping_by_broker: dict[str, object] | None = None

    def encode_for(self, *, standard_json: bool) -> bytes:
        """Broker ids quoted for those who read JSON only, bare for clients before V4_9_4."""
        if not standard_json:
            return self.encode()
        value = to_json_value(self)
        assert isinstance(value, dict), "a body is an object"
        for broker_data in value["brokerDatas"]:
            broker_data["brokerAddrs"] = {str(key): addr for key, addr in broker_data["brokerAddrs"].items()}
        return dumps_fastjson(value)


class ClusterInfo(RemotingBody):
    """Answer to GET_BROKER_CLUSTER_INFO; its broker ids always stand bare."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


# Clients


class SubscriptionData(RemotingBody):
    """One subscription. `code_set`: Java's String.hashCode of each tag; both sets empty for `*`."""

    topic: str
    sub_string: str
    tags_set: list[str] = []
    code_set: list[Int32] = []
    sub_version: Int64 = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ConsumerData(RemotingBody):
    group_name: str
    consume_type: ConsumeType = "CONSUME_PASSIVELY"
    message_model: MessageModel = "CLUSTERING"
    consume_from_where: ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(RemotingBody):
    group_name: str


class HeartbeatData(RemotingBody):
    """Body of HEART_BEAT. A repeat of an unchanged one may come without subscriptions."""

    client_id: str = field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int64 | None = None
    without_sub: bool | None = None


class CheckClientRequestBody(RemotingBody):
    """A subscription that a client is about to make; some clients send none."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None

    @classmethod
    def decode(cls: type[BodyT], data: bytes | memoryview) -> BodyT:
        """Raises RemotingBodyError."""
        return super().decode(data if data else b"{}")


class GetConsumerListByGroupResponseBody(RemotingBody):
    consumer_id_list: list[str] = []


class MessageQueue(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """One queue of a topic on one broker group; also a map key, hence no RemotingBody, which can change."""

    topic: str
    broker_name: str
    queue_id: Int32


class LockBatchRequestBody(RemotingBody):
    """Body of LOCK_BATCH_MQ and of UNLOCK_BATCH_MQ."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []
    only_this_broker: bool | None = None


class LockBatchResponseBody(RemotingBody):
    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")


# Tables


class DataVersion(RemotingBody):
    """Version of a table; a higher state_version wins over any counter."""

    timestamp: Int64
    counter: Int64
    state_version: Int64 | None = None


class KVTable(RemotingBody):
    table: dict[str, str] = {}


class TopicList(RemotingBody):
    topic_list: list[str] = []
    broker_addr: str | None = None


class SubscriptionGroupConfig(RemotingBody):
    group_name: str | None = None
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool | None = None
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: dict[str, object] | None = None
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 | None = None
    consume_timeout_minute: Int32 | None = None
    subscription_data_set: list[object] | None = None
    attributes: dict[str, str] | None = None
