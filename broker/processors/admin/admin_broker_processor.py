"""Queue bounds and units, topics and groups by hand, whole tables: what tools and clients ask of a
broker besides sending and pulling.

Look-ups are answered by every member; what changes a table goes through the log and is answered when applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.answers import Request, answer_applied, answer_told, propose_all
from broker.broker_stats import BrokerStats
from broker.clients.consumer_manager import ConsumerManager
from broker.config.broker_config import BrokerConfig
from broker.config.broker_settings import TOPIC_QUEUE_NUMS_MAX
from broker.processors.admin.client_admin_processor import shown_subscription
from broker.registration.told_name_servers import ToldNameServers
from broker.topics.subscription_group_manager import SubscriptionGroupManager
from broker.topics.topic_attributes import altered_attributes, attribute_changes_of
from broker.topics.topic_config_manager import TopicConfigManager
from message import names
from remoting.bodies import admin_bodies, bodies, topic_bodies
from remoting.codes import ResponseCode
from remoting.fastjson import dumps_fastjson
from remoting.headers import admin_headers, headers
from remoting.headers.headers import CommandHeader
from store.get_message import BoundaryType
from store.retention import has_expired
from store.state.table import StateChange
from store.state.table_configs import PERM_READ, DataVersion, SubscriptionGroupConfig, TopicConfig
from store.state.tables.subscription_group_table import PutForbidden, PutSubscriptionGroup
from store.state.tables.topic_config_table import PutTopicConfig

if TYPE_CHECKING:
    from store.message_store import MessageStore
    from store.queues.unit_queue import UnitQueue

QUERY_UNITS_MAX = 1000  # of one ConsumeQueue look-up
TOPIC_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class AdminBrokerProcessor:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        stats: BrokerStats,
        name_servers: ToldNameServers,
    ) -> None:
        self._broker_name = config.broker_name
        self._is_group = config.dledger is not None
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._stats = stats
        self._name_servers = name_servers

    @property
    def _state_version(self) -> int:
        """As NameServers are told: a group's term, and of a plain broker, whose terms count its starts, 0."""
        return self._store.term if self._is_group else 0

    # Queues and messages

    def delete_expired_commit_log(self, request: Request[CommandHeader], now_ms: int) -> None:
        """Of this member alone; the answer comes before anything is deleted."""
        self._store.retention.log.delete_expired()
        request.answer()

    def clean_expired_consume_queue(self, request: Request[CommandHeader], now_ms: int) -> None:
        """As _delete_expired_commit_log."""
        self._store.retention.queues.let_go(has_expired)
        request.answer()

    def clean_unused_topic(self, request: Request[CommandHeader], now_ms: int) -> None:
        """As _delete_expired_commit_log. The messages stay in the log, and found by their keys."""
        if not self._store.reads.is_state_whole:
            remark = "this member does not know all topics yet, its log does not reach back: ask again later"
            request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
            return
        self._store.retention.queues.let_go(self._is_unused)
        request.answer()

    def _is_unused(self, queue: UnitQueue) -> bool:
        # Queues are looked at later, when the log may have begun anew: what is not known then is not unused.
        topic = queue.topic_name
        is_known = self._topics.select(topic) is not None or names.is_system_topic(topic)
        return not is_known and self._store.reads.is_state_whole

    def get_max_offset(self, request: Request[headers.GetMaxOffsetRequestHeader], now_ms: int) -> None:
        header = request.header
        offset = self._store.reads.max_offset(header.topic, header.queue_id)
        request.answer(ext_fields={"offset": str(offset)})

    def get_min_offset(self, request: Request[headers.GetMinOffsetRequestHeader], now_ms: int) -> None:
        header = request.header
        offset = self._store.reads.min_offset(header.topic, header.queue_id)
        request.answer(ext_fields={"offset": str(offset)})

    def search_offset(self, request: Request[headers.SearchOffsetRequestHeader], now_ms: int) -> None:
        header = request.header
        is_upper = (header.boundary_type or "").upper() == BoundaryType.UPPER.name
        boundary = BoundaryType.UPPER if is_upper else BoundaryType.LOWER
        offset = self._store.reads.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
        request.answer(ext_fields={"offset": str(offset)})

    def get_earliest_store_time(
        self, request: Request[headers.GetEarliestMsgStoretimeRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        offset = self._store.reads.min_offset(header.topic, header.queue_id)
        timestamp = self._store.reads.store_timestamp(header.topic, header.queue_id, offset)
        request.answer(ext_fields={"timestamp": str(timestamp)})

    def query_consume_queue(
        self, request: Request[admin_headers.QueryConsumeQueueRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        queue = self._store.queues.find(header.topic.encode(), header.queue_id)
        if queue is None:
            remark = f"{header.queue_id}@{header.topic} is not exist!"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
            return
        first = max(header.index, queue.min_offset)
        units = queue.units(first, min(header.count, QUERY_UNITS_MAX))
        group = header.consumer_group
        subscription = self._consumers.subscriptions(group).get(header.topic) if group else None
        body = admin_bodies.QueryConsumeQueueResponseBody(
            min_queue_index=queue.min_offset,
            max_queue_index=queue.max_offset,
            queue_data=[
                admin_bodies.ConsumeQueueData(
                    physic_offset=phy_offset,
                    physic_size=size,
                    tags_code=tags_code,
                    eval=subscription is not None and subscription.matches(tags_code),
                )
                for (phy_offset, size, tags_code), _, _ in queue.parse(units, first)
            ],
            subscription_data=shown_subscription(subscription) if subscription is not None else None,
            filter_data=f"{group}@{header.topic} is not online!" if group and subscription is None else None,
        )
        request.answer(body=body)

    # Topics

    def update_topic(self, request: Request[headers.CreateTopicRequestHeader], now_ms: int) -> None:
        header = request.header
        fault = self._topic_fault(header.topic, header)
        if fault is not None:
            request.answer(ResponseCode.INVALID_PARAMETER, fault)
            return
        known = self._topics.select(header.topic)
        try:
            changes = attribute_changes_of(header.attributes or "")
            config = _topic_config(header.topic, header, known, changes)
        except ValueError as error:
            request.answer(ResponseCode.SYSTEM_ERROR, str(error))
            return
        if config == known and self._store.serving:
            self._name_servers.wait(lambda remark: request.answer(remark=remark))
        else:
            on_applied = answer_told(request, self._name_servers)
            self._topics.put(config, answer_applied(request, on_applied), now_ms)

    def update_topic_list(
        self, request: Request[CommandHeader], body: admin_bodies.CreateTopicListRequestBody, now_ms: int
    ) -> None:
        """All of them, or none when one cannot be made."""
        changes: list[StateChange] = []
        for topic in body.topic_config_list:
            name = topic.topic_name
            fault = self._topic_fault(name, topic)
            if fault is not None:
                request.answer(ResponseCode.INVALID_PARAMETER, f"topic {name}: {fault}")
                return
            try:
                config = _topic_config(name, topic, self._topics.select(name), topic.attributes or {})
            except ValueError as error:
                request.answer(ResponseCode.SYSTEM_ERROR, f"topic {name}: {error}")
                return
            changes.append(PutTopicConfig(config))
        on_applied = answer_told(request, self._name_servers)
        propose_all(self._store, changes, request, now_ms, on_applied)

    def _topic_fault(
        self, topic: str, wanted: headers.CreateTopicRequestHeader | topic_bodies.TopicConfig
    ) -> str | None:
        fault = (
            names.topic_fault(topic)
            or self._system_fault(topic)
            or _queue_nums_fault("readQueueNums", wanted.read_queue_nums)
            or _queue_nums_fault("writeQueueNums", wanted.write_queue_nums)
        )
        if fault is None and not 0 <= wanted.perm <= topic_bodies.PERM_MAX:
            fault = f"perm {wanted.perm}: a sum of 1 (inherit), 2 (write), 4 (read), 8 (priority) is allowed"
        if fault is None and wanted.topic_filter_type not in TOPIC_FILTER_TYPES:
            fault = (
                f"topicFilterType {wanted.topic_filter_type}: {' or '.join(TOPIC_FILTER_TYPES)} is allowed"
            )
        return fault

    def delete_topic(self, request: Request[headers.DeleteTopicRequestHeader], now_ms: int) -> None:
        topic = request.header.topic
        fault = "The specified topic is blank." if not topic.strip() else self._system_fault(topic)
        if fault is not None:
            request.answer(ResponseCode.INVALID_PARAMETER, fault)
        else:
            # A registration under way must not bring the topic back when the NameServers are told, too.
            on_applied = answer_told(request, self._name_servers)
            for retry_topic in self._pop_retry_topics(topic):
                self._topics.delete(retry_topic, lambda status: None, now_ms)
            self._topics.delete(topic, answer_applied(request, on_applied), now_ms)
            self._stats.forget_topic(topic)

    def _pop_retry_topics(self, topic: str) -> list[str]:
        """Where messages of the topic are that came again, but for what may be the retry topic of another group."""
        tables = self._store.tables
        groups = tables.consumer_offset_table.groups_of(topic)
        found = [names.pop_retry_topic(group, topic, v2=v2) for group in groups for v2 in (False, True)]
        return [
            name
            for name in found
            if tables.topic_config_table.get(name) is not None
            and tables.subscription_group_table.get(name.removeprefix(names.RETRY_GROUP_TOPIC_PREFIX)) is None
        ]

    def _system_fault(self, topic: str) -> str | None:
        if topic in self._topics.system_topics or names.is_system_topic(topic):
            return f"The topic[{topic}] is conflict with system topic."
        return None

    def get_all_topics(self, request: Request[CommandHeader], now_ms: int) -> None:
        topics = self._topics.all_topics()
        body = dumps_fastjson(
            {
                "dataVersion": _data_version(
                    self._store.tables.topic_config_table.data_version, self._state_version
                ),
                "mappingDataVersion": _data_version(DataVersion(), 0),
                "topicConfigTable": {name: config.to_json() for name, config in topics.items()},
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            }
        )
        request.answer(ext_fields={"totalTopicNum": str(len(topics))}, body=body)

    def get_topic(self, request: Request[admin_headers.GetTopicConfigRequestHeader], now_ms: int) -> None:
        topic = request.header.topic
        config = self._topics.select(topic)
        if config is None:
            request.answer(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        else:
            request.answer(body=dumps_fastjson(config.to_json()))

    def get_topic_stats(
        self, request: Request[admin_headers.GetTopicStatsInfoRequestHeader], now_ms: int
    ) -> None:
        topic = request.header.topic
        config = self._topics.select(topic)
        if config is None:
            request.answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
            return
        body = admin_bodies.TopicStatsTable(topic_put_tps=self._stats.topic_put_tps(topic))
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            max_offset = self._store.reads.max_offset(topic, queue_id)
            last_ms = self._store.reads.store_timestamp(topic, queue_id, max_offset - 1) if max_offset else 0
            queue = bodies.MessageQueue(topic=topic, broker_name=self._broker_name, queue_id=queue_id)
            body.offset_table[queue] = admin_bodies.TopicOffset(
                min_offset=self._store.reads.min_offset(topic, queue_id),
                max_offset=max_offset,
                last_update_timestamp=max(last_ms, 0),
            )
        request.answer(body=body)

    def get_system_topics(self, request: Request[CommandHeader], now_ms: int) -> None:
        topics = [
            name
            for name in self._topics.all_topics()
            if name in self._topics.system_topics or names.is_system_topic(name)
        ]
        request.answer(body=bodies.TopicList(topic_list=topics))

    # Groups

    def update_group(
        self, request: Request[CommandHeader], body: bodies.SubscriptionGroupConfig, now_ms: int
    ) -> None:
        fault = _group_fault(body)
        if fault is not None:
            request.answer(ResponseCode.INVALID_PARAMETER, fault)
        else:
            self._groups.put(_group_config(body), answer_applied(request), now_ms)

    def update_group_list(
        self, request: Request[CommandHeader], body: admin_bodies.SubscriptionGroupList, now_ms: int
    ) -> None:
        """All of them, or none when one cannot be made."""
        for group in body.group_config_list:
            fault = _group_fault(group)
            if fault is not None:
                remark = f"group {group.group_name}: {fault}"
                request.answer(ResponseCode.INVALID_PARAMETER, remark)
                return
        changes = [PutSubscriptionGroup(_group_config(group)) for group in body.group_config_list]
        propose_all(self._store, changes, request, now_ms)

    def delete_group(
        self, request: Request[admin_headers.DeleteSubscriptionGroupRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        on_done = answer_applied(request)
        self._groups.delete(header.group_name, header.clean_offset, on_done, now_ms)
        self._stats.forget_group(header.group_name)

    def update_group_forbidden(
        self, request: Request[admin_headers.UpdateGroupForbiddenRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        group, topic, table = header.group, header.topic, self._store.tables.subscription_group_table
        bits = table.forbidden_bits(group, topic)
        changed = bits
        if header.readable is not None:
            changed = bits & ~PERM_READ if header.readable else bits | PERM_READ
        fault = None
        if self._topics.select(topic) is None:
            fault = f"topic[{topic}] not exist"
        elif table.get(group) is None:
            fault = f"No group in this broker. group: {group}"
        if fault is not None:
            request.answer(ResponseCode.INVALID_PARAMETER, fault)
            return
        body = admin_bodies.GroupForbidden(group=group, topic=topic, readable=not changed & PERM_READ)
        changes = [PutForbidden(group, topic, changed)] if changed != bits else []
        propose_all(self._store, changes, request, now_ms, lambda: request.answer(body=body))

    def get_group(
        self, request: Request[admin_headers.GetSubscriptionGroupConfigRequestHeader], now_ms: int
    ) -> None:
        group = request.header.group
        config = self._groups.find(group, now_ms)
        if config is None:
            request.answer(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"No group in this broker. group: {group}",
            )
        else:
            request.answer(body=dumps_fastjson(config.to_json()))

    def get_all_groups(self, request: Request[CommandHeader], now_ms: int) -> None:
        table = self._store.tables.subscription_group_table
        body = dumps_fastjson(
            {
                "dataVersion": _data_version(table.data_version, self._state_version),
                "forbiddenTable": table.forbidden,
                "subscriptionGroupTable": {name: config.to_json() for name, config in table.configs.items()},
            }
        )
        request.answer(ext_fields={"totalGroupNum": str(len(table.configs))}, body=body)

    def get_all_delay_offsets(self, request: Request[CommandHeader], now_ms: int) -> None:
        table = self._store.tables.delay_offset_table
        body = admin_bodies.DelayOffsetSerializeWrapper(
            data_version=bodies.DataVersion(
                counter=table.data_version.counter,
                timestamp=table.data_version.timestamp,
                state_version=self._state_version,
            ),
            offset_table=dict(sorted(table.offsets.items())),
        )
        request.answer(body=body)


def _data_version(version: DataVersion, term: int) -> dict[str, object]:
    return {"counter": version.counter, "stateVersion": term, "timestamp": version.timestamp}


def _topic_config(
    name: str,
    wanted: headers.CreateTopicRequestHeader | topic_bodies.TopicConfig,
    known: TopicConfig | None,
    attribute_changes: Mapping[str, str],
) -> TopicConfig:
    """Raises ValueError for attributes that cannot be changed so."""
    return TopicConfig(
        topic_name=name,
        read_queue_nums=wanted.read_queue_nums,
        write_queue_nums=wanted.write_queue_nums,
        perm=wanted.perm,
        topic_filter_type=wanted.topic_filter_type,
        topic_sys_flag=wanted.topic_sys_flag or 0,
        order=wanted.order,
        attributes=altered_attributes(name, known.attributes if known else None, attribute_changes),
    )


def _group_fault(group: bodies.SubscriptionGroupConfig) -> str | None:
    return names.group_fault(group.group_name or "") or _queue_nums_fault(
        "retryQueueNums", group.retry_queue_nums
    )


def _group_config(body: bodies.SubscriptionGroupConfig) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(
        group_name=body.group_name or "",
        consume_enable=body.consume_enable,
        consume_from_min_enable=body.consume_from_min_enable,
        consume_broadcast_enable=body.consume_broadcast_enable,
        consume_message_orderly=bool(body.consume_message_orderly),
        retry_queue_nums=body.retry_queue_nums,
        retry_max_times=body.retry_max_times,
        broker_id=body.broker_id,
        which_broker_when_consume_slowly=body.which_broker_when_consume_slowly,
        notify_consumer_ids_changed_enable=body.notify_consumer_ids_changed_enable,
        group_sys_flag=body.group_sys_flag or 0,
        consume_timeout_minute=15 if body.consume_timeout_minute is None else body.consume_timeout_minute,
    )


def _queue_nums_fault(name: str, nums: int) -> str | None:
    if 0 <= nums <= TOPIC_QUEUE_NUMS_MAX:
        return None
    return f"{name} {nums}: 0 to {TOPIC_QUEUE_NUMS_MAX} are allowed"
