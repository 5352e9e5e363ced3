"""What a member of a consumer group tells of itself: to brokers in heartbeats, to tools that ask (running info).

Names are those of RocketMQ's Java.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from io import StringIO
from typing import TYPE_CHECKING

from mqclient.consumer.process_queue import ProcessQueue
from mqclient.consumer.subscription import subscription_body
from remoting.bodies import bodies
from remoting.bodies.admin_bodies import ConsumerRunningInfo, ProcessQueueInfo

if TYPE_CHECKING:
    from mqclient.consumer.group_member import GroupMember

CLIENT_VERSION = "V5_5_0"  # the one that the headers of our requests have


def heartbeat_data(member: GroupMember, client_id: str) -> bodies.HeartbeatData:
    consumer = bodies.ConsumerData(
        group_name=member.group,
        consume_type=member.consume_type,
        message_model=member.config.message_model.value,
        consume_from_where=member.config.consume_from.value,
        subscription_data_set=list(map(subscription_body, member.subscriptions.values())),
    )
    return bodies.HeartbeatData(
        client_id=client_id, consumer_data_set=[consumer], heartbeat_fingerprint=0, without_sub=False
    )


def running_info(member: GroupMember, *, with_stacks: bool) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        properties=_properties(member),
        subscription_set=list(map(subscription_body, member.subscriptions.values())),
        mq_table={
            bodies.MessageQueue(
                topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id
            ): _queue_info(process_queue)
            for queue, process_queue in sorted(member.process_queues.items())
        },
        status_table=member.consume_statuses(),
        jstack=_stacks() if with_stacks else None,
    )


def _properties(member: GroupMember) -> dict[str, str]:
    config = member.config
    return {
        "PROP_NAMESERVER_ADDR": "".join(
            f"{address};" for address in member.instance.routes.namesrv_addresses
        ),
        "PROP_CONSUME_TYPE": member.consume_type,
        "PROP_CONSUMEORDERLY": "false",
        "PROP_CLIENT_VERSION": CLIENT_VERSION,
        "PROP_CONSUMER_START_TIMESTAMP": str(member.started_ms),
        "language": "PYTHON",
        "consumerGroup": member.group,
        "messageModel": config.message_model.value,
        "consumeFromWhere": config.consume_from.value,
        "allocateMessageQueueStrategy": config.allocate_strategy.name,
        "pullBatchSize": str(config.pull_batch_size),
        "pullThresholdForQueue": str(config.cached_count_max),
        "pullThresholdSizeForQueue": str(config.cached_bytes_max >> 20),
        "consumeConcurrentlyMaxSpan": str(config.cached_span_max),
        "persistConsumerOffsetInterval": str(int(config.persist_interval_s * 1000)),
        "maxReconsumeTimes": str(config.max_reconsume_times),
    }


def _queue_info(process_queue: ProcessQueue) -> ProcessQueueInfo:
    oldest, newest = process_queue.cached_offsets
    return ProcessQueueInfo(
        commit_offset=process_queue.consume_offset,
        cached_msg_min_offset=oldest,
        cached_msg_max_offset=newest,
        cached_msg_count=process_queue.cached_count,
        cached_msg_size_in_mib=process_queue.cached_bytes >> 20,
        is_dropped=process_queue.is_dropped,
        last_pull_timestamp=process_queue.last_pull_ms,
        last_consume_timestamp=process_queue.last_consume_ms,
    )


def _stacks() -> str:
    """Of the process's threads, a listener's among them, and of this loop's tasks."""
    text = StringIO()
    frames = sys._current_frames()
    for thread in threading.enumerate():
        text.write(f"thread {thread.name}\n")
        if (frame := frames.get(thread.ident or 0)) is not None:
            traceback.print_stack(frame, file=text)
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        text.write(f"task {task.get_name()}\n")
        task.print_stack(file=text)
    return text.getvalue()
