"""Names of topics and groups: which are allowed, which are the system's, which stand for retries and dead
letters."""

import re
from typing import Final

TOPIC_MAX_LENGTH: Final = 127  # bytes; what a V1 record can hold
RETRY_TOPIC_MAX_LENGTH: Final = 255
GROUP_MAX_LENGTH: Final = 120

RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
REPLY_TOPIC_POSTFIX: Final = "REPLY_TOPIC"

AUTO_CREATE_TOPIC_KEY_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC_KEY_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        CHECKPOINT_TOPIC,
    }
)
NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        # Not RocketMQ's: what lies there says itself which topic and queue it goes to, and nothing checks that again.
        TIMER_TOPIC,
    }
)
# What lies there is not decided yet: tools look at it (TOOLS_CONSUMER_GROUP), and no consumer is given it.
HIDDEN_TOPICS: Final = frozenset({TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC})
# Whose offsets are how far RocketMQ's check is in the topics of half messages and of op records.
TRANS_GROUP: Final = f"{SYSTEM_GROUP_PREFIX}TRANS"
TOOLS_CONSUMER_GROUP: Final = "TOOLS_CONSUMER"
SYSTEM_GROUPS: Final = frozenset({"CLIENT_INNER_PRODUCER", TOOLS_CONSUMER_GROUP, "SELF_TEST_C_GROUP"})

_NAME_PATTERN: Final = "^[%|a-zA-Z0-9_-]+$"
_is_name = re.compile("[%|a-zA-Z0-9_-]+").fullmatch


def topic_fault(topic: str) -> str | None:
    """Why a topic's name is refused, in RocketMQ's words; None when it is sound."""
    if not topic.strip():
        return "The specified topic is blank."
    if _is_name(topic) is None:
        return f"The specified topic: {topic}, contains illegal characters, allowing only {_NAME_PATTERN}"
    longest = RETRY_TOPIC_MAX_LENGTH if is_retry_or_dlq_topic(topic) else TOPIC_MAX_LENGTH
    if len(topic) > longest:
        return f"The specified topic: {topic}, is longer than topic max length: {longest}"
    return None


def group_fault(group: str) -> str | None:
    """Why a group's name is refused; None when it is sound."""
    if not group.strip():
        return "the specified group is blank"
    if len(group) > GROUP_MAX_LENGTH:
        return "the specified group is longer than group max length."
    if _is_name(group) is None:
        return f"the specified group[{group}] contains illegal characters, allowing only {_NAME_PATTERN}"
    return None


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_retry_or_dlq_topic(topic: str) -> bool:
    return topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX))


def retry_topic(group: str) -> str:
    return group if group.startswith(RETRY_GROUP_TOPIC_PREFIX) else RETRY_GROUP_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_GROUP_TOPIC_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Where replies to the requests of a cluster's topics are sent."""
    return f"{cluster}_{REPLY_TOPIC_POSTFIX}"


def pop_retry_topic(group: str, topic: str, *, v2: bool = False) -> str:
    """Where pop consumers of `group` get failed messages of `topic` again. V2 came with 5.2 and is off by
    default."""
    return f"{RETRY_GROUP_TOPIC_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def popped_topic(group: str, topic: str) -> str:
    """The topic that a message of `topic` came from, which may be the pop retry topic of `group`, in either form."""
    for mark in "_+":
        prefix = f"{RETRY_GROUP_TOPIC_PREFIX}{group}{mark}"
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return topic
