"""The topics and groups that requests name elsewhere than in a field `topic` or `consumerGroup`."""

from __future__ import annotations

from collections.abc import Iterable

from message.names import RETRY_GROUP_TOPIC_PREFIX
from remoting.bodies.admin_bodies import CreateTopicListRequestBody
from remoting.bodies.bodies import HeartbeatData, LockBatchRequestBody
from remoting.bodies.pop_bodies import BatchAckMessageRequestBody
from remoting.headers.admin_headers import CloneGroupOffsetRequestHeader, GetConsumeStatsRequestHeader
from remoting.headers.pop_headers import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader


def subscribed_topics(header: object, body: HeartbeatData) -> Iterable[str]:
    for consumer in body.consumer_data_set:
        for subscription in consumer.subscription_data_set:
            yield subscription.topic


def consumer_groups(header: object, body: HeartbeatData) -> Iterable[str]:
    return [consumer.group_name for consumer in body.consumer_data_set]


def locked_topics(header: object, body: LockBatchRequestBody) -> Iterable[str]:
    return [queue.topic for queue in body.mq_set]


def popped_topic(
    header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader, body: object
) -> Iterable[str]:
    return _but_own_retries(header.consumer_group, header.topic)


def acknowledged_topics(header: object, body: BatchAckMessageRequestBody) -> Iterable[str]:
    for ack in body.acks:
        yield from _but_own_retries(ack.consumer_group, ack.topic)


def acknowledging_groups(header: object, body: BatchAckMessageRequestBody) -> Iterable[str]:
    return [ack.consumer_group for ack in body.acks]


def made_topics(header: object, body: CreateTopicListRequestBody) -> Iterable[str]:
    return [config.topic_name for config in body.topic_config_list]


def counted_topics(header: GetConsumeStatsRequestHeader, body: object) -> Iterable[str]:
    listed = (header.topic_list or "").split(";")
    return [topic for topic in (header.topic, *listed) if topic]


def cloned_groups(header: CloneGroupOffsetRequestHeader, body: object) -> Iterable[str]:
    return (header.src_group, header.dest_group)


def _but_own_retries(group: str, topic: str) -> tuple[str, ...]:
    """A pop consumer names the retry topic that it was given a message from, `%RETRY%group_topic`. Its group is needed
    anyway, and what it popped there is its group's.
    """
    return () if topic.startswith(f"{RETRY_GROUP_TOPIC_PREFIX}{group}_") else (topic,)
