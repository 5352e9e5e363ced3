"""Which topics and groups a client may name."""

from __future__ import annotations

from message.names import group_fault, is_system_group, is_system_topic, topic_fault
from proxy.protocol.definition import Code, Resource
from proxy.status import StatusError


def check_topic(resource: Resource) -> str:
    """Return the topic's name. Raises StatusError for a name that is not allowed, or the system's."""
    topic = resource.name
    if (fault := topic_fault(topic)) is not None:
        raise StatusError(Code.ILLEGAL_TOPIC, fault)
    if is_system_topic(topic):
        raise StatusError(Code.ILLEGAL_TOPIC, f"cannot access system topic {topic}")
    return topic


def check_group(resource: Resource) -> str:
    """Return the consumer group's name. Raises StatusError for a name that is not allowed, or the system's."""
    group = resource.name
    if (fault := group_fault(group)) is not None:
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, fault)
    if is_system_group(group):
        raise StatusError(Code.ILLEGAL_CONSUMER_GROUP, f"cannot use system consumer group {group}")
    return group
