"""Offsets of groups moved by hand: reset by time or to an offset (222), copied from another group (314).

A reset is a change of the log like a commit. It leaves a mark at the queue, so that a consumer that is at work does not
commit its old place over it: commits are ignored until the consumer's next pull, which is told the new offset (answer
21) and takes the mark away. With useServerSideResetOffset=false clients are told instead (220), as 4.9 brokers do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.answers import Request, answer_applied, propose_all
from broker.clients.client_requests import ClientRequests
from broker.clients.consumer_manager import ConsumerManager
from broker.config.broker_config import BrokerConfig
from broker.topics.subscription_group_manager import SubscriptionGroupManager
from broker.topics.topic_config_manager import TopicConfigManager
from remoting.bodies import admin_bodies, bodies
from remoting.codes import RequestCode, ResponseCode
from remoting.headers import admin_headers
from store.state.state_proposals import ProposeStatus
from store.state.tables.consumer_offset_table import CommitOffset, ResetOffset

if TYPE_CHECKING:
    from store.message_store import MessageStore


class OffsetAdminProcessor:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        client_requests: ClientRequests,
        wake_queue: Callable[[str, int], None],
    ) -> None:
        """`wake_queue(topic, queue_id)` has held pulls of a queue look again."""
        self.config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._client_requests = client_requests
        self._wake_queue = wake_queue

    def reset_offset(self, request: Request[admin_headers.ResetOffsetRequestHeader], now_ms: int) -> None:
        if not self._store.serving:
            # What clients are told is not proposed, and what is here may be behind.
            answer_applied(request)(ProposeStatus.NOT_LEADER)
            return
        header = request.header
        topic, group = header.topic, header.group
        config = self._topics.select(topic)
        if config is None:
            request.answer(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
            return
        if self._store.tables.subscription_group_table.get(group) is None:
            remark = f"Group {group} does not exist"
            request.answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            return
        queue_ids, offset_wanted = range(config.read_queue_nums), None
        if header.queue_id is not None and header.queue_id >= 0:
            queue_ids, offset_wanted = range(header.queue_id, header.queue_id + 1), header.offset
        offsets = {}
        for queue_id in queue_ids:
            offset = offset_wanted
            fault = self._offset_fault(topic, queue_id, config.read_queue_nums, offset)
            if fault is not None:
                request.answer(ResponseCode.SYSTEM_ERROR, fault)
                return
            if offset is None or offset < 0:
                offset = self._offset_by_time(topic, queue_id, header.timestamp)
            offsets[queue_id] = offset
        if not offsets:
            request.answer(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        elif self.config.use_server_side_reset_offset:
            changes = [ResetOffset(group, topic, queue_id, offset) for queue_id, offset in offsets.items()]

            def answer_reset() -> None:
                for queue_id in offsets:
                    self._wake_queue(topic, queue_id)
                request.answer(body=self._reset_body(topic, offsets))

            propose_all(self._store, changes, request, now_ms, answer_reset)
        else:
            self._tell_clients(request, offsets)

    def _offset_fault(self, topic: str, queue_id: int, queue_nums: int, offset: int | None) -> str | None:
        if queue_id >= queue_nums:
            return f"queue {queue_id} of topic {topic}: it has {queue_nums} to read from"
        low, high = (
            self._store.reads.min_offset(topic, queue_id),
            self._store.reads.max_offset(topic, queue_id),
        )
        if offset is not None and offset >= 0 and not low <= offset <= high:
            return f"Target offset {offset} not in consume queue range [{low}-{high}]"
        return None

    def _offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self._store.reads.max_offset(topic, queue_id)
        return self._store.reads.offset_by_time(topic, queue_id, timestamp)

    def _tell_clients(
        self,
        request: Request[admin_headers.ResetOffsetRequestHeader],
        offsets: dict[int, int],
    ) -> None:
        """Each client takes the offsets of its own queues and commits them."""
        header = request.header
        group_info = self._consumers.groups.get(header.group)
        if group_info is None:
            remark = (
                f"Consumer not online, so can not reset online consumer. Consumer group: {header.group}. "
                "Reset it while it is offline, or set useServerSideResetOffset=true"
            )
            request.answer(ResponseCode.CONSUMER_NOT_ONLINE, remark)
            return
        if not header.is_force:
            # Only back: a consumer that is behind the time stays where it is.
            for queue_id, offset in offsets.items():
                committed = self._store.reads.query_offset(header.group, header.topic, queue_id)
                if 0 <= committed < offset:
                    offsets[queue_id] = committed
        body = self._reset_body(header.topic, offsets)
        fields = {
            "topic": header.topic,
            "group": header.group,
            "timestamp": str(header.timestamp),
            "isForce": "false",
        }
        for info in group_info.channels.values():
            code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            self._client_requests.notify(info.channel, code, fields, body)
        request.answer(body=body)

    def _reset_body(self, topic: str, offsets: dict[int, int]) -> bytes:
        name = self.config.broker_name
        table = {
            bodies.MessageQueue(topic=topic, broker_name=name, queue_id=queue_id): offset
            for queue_id, offset in offsets.items()
        }
        return admin_bodies.ResetOffsetBody(offset_table=table).encode()

    def clone_group_offset(
        self, request: Request[admin_headers.CloneGroupOffsetRequestHeader], now_ms: int
    ) -> None:
        if not self._store.serving:
            answer_applied(request)(ProposeStatus.NOT_LEADER)
            return
        header = request.header
        table = self._store.tables.consumer_offset_table
        topics = [header.topic] if header.topic else table.topics_of(header.src_group)
        if self._groups.find(header.dest_group, now_ms) is None:
            remark = f"Group {header.dest_group} not exist!"
            request.answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            return
        subscribed = {} if header.offline else self._consumers.subscriptions(header.src_group)
        changes = [
            CommitOffset(header.dest_group, topic, queue_id, offset)
            for topic in topics
            if self._topics.select(topic) is not None and (not subscribed or topic in subscribed)
            for queue_id, offset in table.queues_of(header.src_group, topic).items()
        ]
        propose_all(self._store, changes, request, now_ms)
