"""Where a message goes: checks of topic and queue that all kinds of sends have in common."""

from __future__ import annotations

import random

from broker.processors.send.send_batch import SendRefused
from broker.topics.topic_config_manager import TopicEntry
from message.names import NOT_ALLOWED_SEND_TOPICS, topic_fault
from remoting.codes import FAQ, ResponseCode


def check_topic_name(topic: str) -> None:
    """Raises SendRefused for a name that no topic can have, and for topics of the broker's own."""
    fault = topic_fault(topic)
    if fault is not None:
        raise SendRefused(ResponseCode.INVALID_PARAMETER, fault)
    if topic in NOT_ALLOWED_SEND_TOPICS:
        raise SendRefused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")


def topic_missing(topic: str) -> SendRefused:
    return SendRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")


def sending_forbidden(broker_ip: str) -> SendRefused:
    return SendRefused(ResponseCode.NO_PERMISSION, f"the broker[{broker_ip}] sending message is forbidden")


def queue_of(entry: TopicEntry, queue_id: int, producer_address: str, rng: random.Random) -> int:
    """The queue that is asked for, or any for -1. Raises SendRefused for one that the topic does not have."""
    if 0 <= queue_id < entry.queue_limit:
        return queue_id
    if queue_id < 0 and entry.config.write_queue_nums > 0:
        return rng.randrange(entry.config.write_queue_nums)
    raise SendRefused(
        ResponseCode.INVALID_PARAMETER,
        f"request queueId[{queue_id}] is illegal, {entry.describe()} Producer: {producer_address}",
    )
