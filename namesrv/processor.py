"""What a NameServer answers. One method per request code over the route tables and the key-value store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from auth.authentication import AccessRefused
from auth.signature import ACCESS_KEY
from namesrv.kv_config_manager import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from namesrv.namesrv_access import ADMINISTRATION, NamesrvAccess
from namesrv.namesrv_config import NAMESRV_SETTINGS, NamesrvConfig
from namesrv.route_info_manager import Registration, RouteInfoManager
from remoting.bodies import admin_bodies
from remoting.bodies.bodies import ClusterInfo, DataVersion, KVTable, QueueData, TopicList, TopicRouteData
from remoting.bodies.topic_bodies import PERM_MAX, RegisterBrokerBody, TopicConfigSerializeWrapper, body_crc32
from remoting.codes import FAQ, V3_0_11, V4_9_4, RequestCode, ResponseCode
from remoting.configuration import (
    ConfigError,
    format_properties,
    is_changeable,
    parse_properties,
    without_effect,
)
from remoting.connection_limits import ADMITTED
from remoting.errors import RemotingError
from remoting.frame.command import RemotingCommand, request, response
from remoting.headers import admin_headers, headers
from remoting.operator_requests import note_operator_request

log = logging.getLogger(__name__)

# Of a topic's sysFlag.
UNIT_FLAG = 1
UNIT_SUB_FLAG = 2
BLACK_LIST = frozenset({"configBlackList", "configStorePath", "kvConfigPath"})  # RocketMQ's


class BrokerChannel(Protocol):
    """The part of remoting's Channel that is used here."""

    @property
    def id(self) -> int: ...
    @property
    def remote_address(self) -> str: ...
    @property
    def attributes(self) -> dict[str, object]: ...
    def write(self, data: bytes) -> None: ...


class NamesrvProcessor:
    def __init__(
        self,
        routes: RouteInfoManager,
        kv: KVConfigManager,
        settings: dict[str, str],
        find_channel: Callable[[int], BrokerChannel | None],
        access: NamesrvAccess | None = None,
    ) -> None:
        """`settings` is what GET_NAMESRV_CONFIG shows. `find_channel`: an open one by its id."""
        self._find_channel = find_channel
        self._routes = routes
        self._kv = kv
        self._settings = settings
        self._access = access or NamesrvAccess(NamesrvConfig())
        self._handlers: dict[int, Callable[[BrokerChannel, RemotingCommand, int], RemotingCommand]] = {
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kvlist,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.BROKER_HEARTBEAT: self._broker_heartbeat,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route_info,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._get_has_unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._get_has_unit_sub_un_unit_topics,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._get_broker_member_group,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
        }

    def process(self, channel: BrokerChannel, commands: Sequence[RemotingCommand], now_ms: int) -> None:
        """Answers the requests of one read, in order and in one write."""
        answers = []
        for command in commands:
            if command.is_response:
                continue
            answer = self._answer(channel, command, now_ms)
            if not command.is_oneway:
                answers.append(answer.encode())
        if answers:
            channel.write(b"".join(answers))

    def _answer(self, channel: BrokerChannel, command: RemotingCommand, now_ms: int) -> RemotingCommand:
        handler = self._handlers.get(command.code)
        if handler is None:
            return response(
                command,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {command.code} not supported",
            )
        try:
            self._access.check(command, channel.remote_address)
            channel.attributes[ADMITTED] = True
            if command.code in ADMINISTRATION:
                note_operator_request(command, channel.remote_address)
            return handler(channel, command, now_ms)
        except AccessRefused as refused:
            log.warning(
                "refused code=%d user=%.100r addr=%s rule=%r remark=%.500r",
                *(command.code, command.ext_fields.get(ACCESS_KEY), channel.remote_address),
                *(refused.rule, str(refused)),
                extra={"per_connection": True},
            )
            return response(command, ResponseCode.NO_PERMISSION, str(refused))
        except RemotingError as error:
            log.warning(
                "bad request code=%d addr=%s: %s",
                command.code,
                channel.remote_address,
                error,
                extra={"per_connection": True},
            )
            return response(command, ResponseCode.SYSTEM_ERROR, str(error))
        except Exception as error:
            # A defect of ours, and the other requests of this connection are no part of it.
            log.exception("request failed code=%d addr=%s", command.code, channel.remote_address)
            return response(command, ResponseCode.SYSTEM_ERROR, f"failed: {type(error).__name__}: {error}")

    # Brokers

    def _register_broker(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        header = headers.decode(headers.RegisterBrokerRequestHeader, command.ext_fields)
        if header.body_crc32 and header.body_crc32 != body_crc32(command.body):
            return response(command, ResponseCode.SYSTEM_ERROR, "crc32 not match")
        registration = _registration(header, self._topics_of(command, header.compressed))
        fault = _registration_fault(registration)
        if fault is not None:
            return response(command, ResponseCode.INVALID_PARAMETER, f"register broker failed: {fault}")
        result = self._routes.register_broker(registration, channel.id, now_ms)
        self._ask_to_confirm(result.to_ask)
        if result.refusal is not None:
            return response(command, ResponseCode.SYSTEM_ERROR, f"register broker failed: {result.refusal}")
        order_topics = self._kv.config_table.get(NAMESPACE_ORDER_TOPIC_CONFIG)
        return response(
            command,
            ext_fields=headers.to_ext_fields(
                headers.RegisterBrokerResponseHeader(
                    ha_server_addr=result.ha_server_addr or None, master_addr=result.master_addr or None
                )
            ),
            body=KVTable(table=order_topics).encode() if order_topics is not None else b"",
        )

    def _topics_of(self, command: RemotingCommand, is_compressed: bool) -> TopicConfigSerializeWrapper:
        body = bytes(command.body)
        if not body or command.version < V3_0_11:
            return TopicConfigSerializeWrapper(data_version=DataVersion(timestamp=0, counter=0))
        if is_compressed:
            registered = RegisterBrokerBody.decode_compressed(body, command.version)
        else:
            registered = RegisterBrokerBody.decode(body)
        return registered.topic_config_serialize_wrapper

    def _unregister_broker(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        header = headers.decode(headers.UnRegisterBrokerRequestHeader, command.ext_fields)
        if self._routes.unregister_broker(header.broker_addr, header.broker_name, channel.id):
            return response(command)
        remark = f"{header.broker_name} {header.broker_addr} was registered by another connection and stays"
        return response(command, ResponseCode.NO_PERMISSION, remark)

    def _ask_to_confirm(self, channel_ids: Iterable[int]) -> None:
        for channel_id in channel_ids:
            channel = self._find_channel(channel_id)
            if channel is not None:
                channel.write(request(RequestCode.CONFIRM_REGISTRATION, opaque=0, oneway=True).encode())

    def _query_data_version(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        header = headers.decode(headers.QueryDataVersionRequestHeader, command.ext_fields)
        theirs = DataVersion.decode(command.body)
        ours = self._routes.data_version(header.broker_addr)
        if ours == theirs:
            self._routes.heartbeat(header.broker_addr, now_ms)
        return response(
            command,
            ext_fields={"changed": "false" if ours == theirs else "true"},
            body=ours.encode() if ours is not None else b"",
        )

    def _broker_heartbeat(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        self._routes.heartbeat(command.ext_fields.get("brokerAddr", ""), now_ms)
        return response(command)

    # Routes

    def _get_route_info(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        fields = command.ext_fields
        topic = fields.get("topic", "null")  # Java asks its table for null then, and finds nothing
        route = self._routes.topic_route(topic)
        if route is None:
            return response(
                command,
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}{FAQ}",
            )
        data = TopicRouteData(queue_datas=list(route.queues), broker_datas=list(route.brokers))
        is_standard = command.version >= V4_9_4 or headers.is_true(fields, "acceptStandardJsonOnly")
        return response(command, body=data.encode_for(standard_json=is_standard))

    def _get_cluster_info(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        info = ClusterInfo(
            broker_addr_table=self._routes.broker_addr_table,
            cluster_addr_table={
                name: sorted(brokers) for name, brokers in self._routes.cluster_addr_table.items()
            },
        )
        return response(command, body=info.encode())

    def _wipe_write_perm(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        header = headers.decode(admin_headers.WipeWritePermOfBrokerRequestHeader, command.ext_fields)
        count = self._routes.operate_write_perm(header.broker_name, is_allowed=False)
        return response(command, ext_fields={"wipeTopicCount": str(count)})

    def _add_write_perm(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        header = headers.decode(admin_headers.AddWritePermOfBrokerRequestHeader, command.ext_fields)
        count = self._routes.operate_write_perm(header.broker_name, is_allowed=True)
        return response(command, ext_fields={"addTopicCount": str(count)})

    def _get_all_topics(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        return response(command, body=TopicList(topic_list=self._routes.topics()).encode())

    def _get_topics_by_cluster(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        header = headers.decode(headers.GetTopicsByClusterRequestHeader, command.ext_fields)
        brokers = self._routes.cluster_addr_table.get(header.cluster, set())
        return response(command, body=TopicList(topic_list=self._routes.topics(brokers)).encode())

    def _get_system_topics(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        """Each cluster and each broker has a topic of its name; and the address of some broker."""
        routes = self._routes
        names = [
            name
            for cluster, brokers in routes.cluster_addr_table.items()
            for name in (cluster, *sorted(brokers))
        ]
        addresses = (
            addr for broker in routes.broker_addr_table.values() for addr in broker.broker_addrs.values()
        )
        body = TopicList(topic_list=names, broker_addr=next(addresses, None))
        return response(command, body=body.encode())

    def _get_unit_topics(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        return self._topics_by_flags(command, UNIT_FLAG, UNIT_FLAG)

    def _get_has_unit_sub_topics(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        return self._topics_by_flags(command, UNIT_SUB_FLAG, UNIT_SUB_FLAG)

    def _get_has_unit_sub_un_unit_topics(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        return self._topics_by_flags(command, UNIT_FLAG | UNIT_SUB_FLAG, UNIT_SUB_FLAG)

    def _topics_by_flags(self, command: RemotingCommand, mask: int, wanted: int) -> RemotingCommand:
        topics = [
            topic
            for topic, queues in self._routes.topic_queue_table.items()
            if any(queue.topic_sys_flag & mask == wanted for queue in queues.values())
        ]
        return response(command, body=TopicList(topic_list=topics).encode())

    def _get_broker_member_group(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        header = headers.decode(admin_headers.GetBrokerMemberGroupRequestHeader, command.ext_fields)
        broker = self._routes.broker_addr_table.get(header.broker_name)
        group = admin_bodies.BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=dict(broker.broker_addrs) if broker is not None else {},
        )
        body = admin_bodies.GetBrokerMemberGroupResponseBody(broker_member_group=group)
        return response(command, body=body.encode())

    def _delete_topic(self, channel: BrokerChannel, command: RemotingCommand, now_ms: int) -> RemotingCommand:
        header = headers.decode(headers.DeleteTopicFromNamesrvRequestHeader, command.ext_fields)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return response(command)

    # Key-value store and settings

    def _put_kv_config(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        header = headers.decode(headers.PutKVConfigRequestHeader, command.ext_fields)
        self._kv.put(header.namespace, header.key, header.value)
        return response(command)

    def _get_kv_config(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        header = headers.decode(headers.GetKVConfigRequestHeader, command.ext_fields)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            return response(
                command,
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return response(command, ext_fields={"value": value})

    def _delete_kv_config(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        header = headers.decode(headers.DeleteKVConfigRequestHeader, command.ext_fields)
        self._kv.delete(header.namespace, header.key)
        return response(command)

    def _get_kvlist(self, channel: BrokerChannel, command: RemotingCommand, now_ms: int) -> RemotingCommand:
        header = headers.decode(headers.GetKVListByNamespaceRequestHeader, command.ext_fields)
        table = self._kv.config_table.get(header.namespace)
        if table is None:
            return response(
                command, ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}"
            )
        return response(command, body=KVTable(table=table).encode())

    def _update_config(
        self, channel: BrokerChannel, command: RemotingCommand, now_ms: int
    ) -> RemotingCommand:
        """Says what to do instead: there is nothing that could be changed."""
        try:
            keys = [item.key for item in parse_properties(bytes(command.body).decode(), "request")]
            if not BLACK_LIST.isdisjoint(keys):
                return response(command, ResponseCode.NO_PERMISSION, "Can not update config in black list.")
            unused = [key for key in keys if not is_changeable(key, (), NAMESRV_SETTINGS, "NameServer")]
        except (ConfigError, UnicodeDecodeError) as error:
            return response(command, ResponseCode.INVALID_PARAMETER, str(error))
        return response(command, remark=without_effect(unused))

    def _get_config(self, channel: BrokerChannel, command: RemotingCommand, now_ms: int) -> RemotingCommand:
        return response(command, body=format_properties(self._settings.items()).encode())


def _registration_fault(registration: Registration) -> str | None:
    """What clients could not do with, or would take for something else. No more: brokers of all versions come here."""
    for name in ("cluster", "broker_name", "broker_addr"):
        if not getattr(registration, name).strip():
            return f"its {name} is blank"
    if registration.broker_id < 0:
        return f"broker id {registration.broker_id} is negative"
    for topic, queue in registration.topics.items():
        if not topic.strip():
            return "a topic's name is blank"
        if min(queue.read_queue_nums, queue.write_queue_nums) < 0 or not 0 <= queue.perm <= PERM_MAX:
            return (
                f"topic {topic} has {queue.read_queue_nums} read and {queue.write_queue_nums} write queues and "
                f"permission {queue.perm}"
            )
    return None


def _registration(
    header: headers.RegisterBrokerRequestHeader, wrapper: TopicConfigSerializeWrapper
) -> Registration:
    return Registration(
        cluster=header.cluster_name,
        broker_addr=header.broker_addr,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        ha_server_addr=header.ha_server_addr,
        data_version=wrapper.data_version,
        topics={
            name: QueueData(
                broker_name=header.broker_name,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                perm=topic.perm,
                topic_sys_flag=topic.topic_sys_flag,
            )
            for name, topic in wrapper.topic_config_table.items()
        },
        enable_acting_master=header.enable_acting_master,
        heartbeat_timeout_ms=header.heartbeat_timeout_millis,
        is_confirmed=bool(header.confirmed),
    )
