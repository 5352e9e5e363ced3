"""What consumers ask for: their group's clients (38), its offsets (14, 15), locks of queues (41, 42).

Offset queries and client lists are answered by every member, but that there is no offset is for the serving leader to
say; commits go through the log, so only a serving leader takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.answers import Request, answer_applied
from broker.clients.consumer_manager import ConsumerManager
from broker.clients.rebalance_lock_manager import RebalanceLockManager
from broker.config.broker_settings import TOPIC_QUEUE_NUMS_MAX
from broker.topics.subscription_group_manager import SubscriptionGroupManager
from broker.topics.topic_config_manager import TopicConfigManager
from remoting.bodies import bodies
from remoting.codes import ResponseCode
from remoting.headers import headers
from remoting.headers.headers import CommandHeader
from store.state.tables.consumer_offset_table import CommitOffset

if TYPE_CHECKING:
    from store.message_store import MessageStore

NO_OFFSET = -1
NOT_SET_TO_ZERO_REMARK = "Not found, do not set to zero, maybe this group boot first"
NOT_FOUND_REMARK = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


class ConsumerManageProcessor:
    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        locks: RebalanceLockManager,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._locks = locks

    def get_consumer_list(
        self, request: Request[headers.GetConsumerListByGroupRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        client_ids = self._consumers.client_ids(header.consumer_group)
        if client_ids:
            body = bodies.GetConsumerListByGroupResponseBody(consumer_id_list=client_ids)
            request.answer(body=body)
        else:
            request.answer(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer for this group, {header.consumer_group}",
            )

    def query_offset(self, request: Request[headers.QueryConsumerOffsetRequestHeader], now_ms: int) -> None:
        header = request.header
        offset = self._store.reads.query_offset(header.consumer_group, header.topic, header.queue_id)
        if offset == NO_OFFSET and not self._store.serving:
            # It may be behind. Told that there is none, a consumer begins at the queue's end; now it asks again.
            remark = "no offset is known here, and this member does not serve as leader now"
            request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
            return
        if offset == NO_OFFSET:
            offset = self._begin_offset(header)
        if offset == NO_OFFSET:
            is_refused = header.set_zero_if_not_found is False
            remark = NOT_SET_TO_ZERO_REMARK if is_refused else NOT_FOUND_REMARK
            request.answer(ResponseCode.QUERY_NOT_FOUND, remark)
        else:
            request.answer(ext_fields={"offset": str(offset)})

    def _begin_offset(self, header: headers.QueryConsumerOffsetRequestHeader) -> int:
        """A group without offset begins with the topic's first message where that still counts as new."""
        store, topic, queue_id = self._store, header.topic, header.queue_id
        begin = store.reads.begin_offset(topic, queue_id)
        if header.set_zero_if_not_found is False or begin is None:
            return NO_OFFSET
        return begin if store.reads.is_in_memory(topic, queue_id, begin) else NO_OFFSET

    def update_offset(self, request: Request[headers.UpdateConsumerOffsetRequestHeader], now_ms: int) -> None:
        header = request.header
        group, topic, queue_id, offset = (
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.commit_offset,
        )
        if queue_id is None or offset is None:
            request.answer(ResponseCode.INVALID_PARAMETER, "QueueId and offset must be set")
            return
        config = self._topics.select(topic)
        if self._groups.find(group, now_ms) is None:
            request.answer(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {group} not exist!",
            )
        elif config is None:
            request.answer(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        elif not 0 <= queue_id < max(TOPIC_QUEUE_NUMS_MAX, config.read_queue_nums):
            # Whatever is committed stays in the replicated table, so there must not be 2**32 numbers to choose from.
            # Queues that the topic does not have now count: it may have had them, and what is left there is consumed.
            remark = f"Topic {topic} cannot have a queue {queue_id}; nothing was committed"
            request.answer(ResponseCode.INVALID_PARAMETER, remark)
        elif offset < 0:
            # Kept, it would read as if the group had committed none.
            remark = f"offset {offset} of topic {topic}: it cannot be negative; nothing was committed"
            request.answer(ResponseCode.INVALID_PARAMETER, remark)
        elif self._store.tables.consumer_offset_table.reset_offset(group, topic, queue_id) is not None:
            # From a consumer that has not heard of it yet.
            request.answer(remark="Offset has been previously reset")
        else:
            change = CommitOffset(group, topic, queue_id, offset)
            on_done = None if request.is_oneway else answer_applied(request)
            self._store.propose(change, on_done, now_ms)

    def lock_batch(
        self, request: Request[CommandHeader], body: bodies.LockBatchRequestBody, now_ms: int
    ) -> None:
        if not self._store.serving:
            # Two members that both grant locks would let two clients consume one queue.
            request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, "this member does not serve as leader now")
            return
        queues = {(queue.topic, queue.broker_name, queue.queue_id): queue for queue in body.mq_set}
        locked = self._locks.lock_batch(body.consumer_group, queues, body.client_id, now_ms)
        response_body = bodies.LockBatchResponseBody(lock_ok_mq_set=[queues[key] for key in locked])
        request.answer(body=response_body)

    def unlock_batch(
        self, request: Request[CommandHeader], body: bodies.LockBatchRequestBody, now_ms: int
    ) -> None:
        queues = [(queue.topic, queue.broker_name, queue.queue_id) for queue in body.mq_set]
        self._locks.unlock_batch(body.consumer_group, queues, body.client_id)
        request.answer()
