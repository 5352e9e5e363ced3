"""A message of the v2 API as brokers take it, and the checks of what clients send, in RocketMQ's order."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from message import const
from message.names import AUTO_CREATE_TOPIC_KEY_TOPIC
from message.properties import PROPERTIES_LENGTH_MAX
from message.sys_flag import COMPRESSED_FLAG, TRANSACTION_PREPARED_TYPE
from proxy.config import ProxyConfig
from proxy.messages.times import TIMESTAMP_MS_MAX
from proxy.protocol.definition import Code, Encoding, Message, MessageType, SystemProperties
from proxy.status import StatusError

_DELAYS: Final = frozenset(
    {const.DELAY_TIME_LEVEL, const.TIMER_DELIVER_MS, const.TIMER_DELAY_MS, const.TIMER_DELAY_SEC}
)


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    topic: str
    body: bytes
    properties: Mapping[str, str]
    sys_flag: int
    born_timestamp_ms: int
    type: MessageType

    @property
    def message_group(self) -> str:
        """Empty for a message of no group."""
        return self.properties.get(const.SHARDING_KEY, "")

    @property
    def message_id(self) -> str:
        return self.properties[const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX]

    def ext_fields(self, broker_name: str, queue_id: int) -> dict[str, str]:
        """Fields of SEND_MESSAGE_V2. The topic stands for a producer group, which the v2 API does not have."""
        return {
            "a": self.topic,
            "b": self.topic,
            "c": AUTO_CREATE_TOPIC_KEY_TOPIC,
            "d": "4",
            "e": str(queue_id),
            "f": str(self.sys_flag),
            "g": str(self.born_timestamp_ms),
            "h": "0",
            "i": "".join([f"{name}\x01{value}\x02" for name, value in self.properties.items()]),
            "j": "0",
            "k": "false",
            "m": "false",
            "n": broker_name,
        }


def outgoing_message(
    message: Message, topic: str, peer: str, now_ms: int, config: ProxyConfig
) -> OutgoingMessage:
    """Check and convert a message. Raises StatusError for the first rule that it breaks."""
    _check_body(message.body, config)
    system = message.system_properties
    properties = _user_properties(message, config)
    properties[const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = _message_id(system)
    if system.HasField("tag") and system.tag:
        properties[const.TAGS] = system.tag
    if system.keys:
        properties[const.KEYS] = " ".join(system.keys)
    sys_flag = COMPRESSED_FLAG if system.body_encoding == Encoding.GZIP else 0
    if system.message_type == MessageType.TRANSACTION:
        sys_flag |= TRANSACTION_PREPARED_TYPE
        properties[const.TRANSACTION_PREPARED] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            properties[const.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(_recovery_s(system, config))
    if system.HasField("delivery_timestamp"):
        properties[const.TIMER_DELIVER_MS] = str(_delivery_ms(system, now_ms, config))
    properties[const.RECONSUME_TIME] = str(system.delivery_attempt)
    properties[const.PRODUCER_GROUP] = topic
    if system.message_group:
        properties[const.SHARDING_KEY] = _message_group(system.message_group, config)
    if system.HasField("priority"):
        properties[const.PRIORITY] = str(system.priority)
    if system.lite_topic:
        raise StatusError(Code.NOT_IMPLEMENTED, "lite topics are not served here: send without lite_topic")
    if system.trace_context:
        properties[const.TRACE_CONTEXT] = system.trace_context
    properties[const.BORN_HOST] = system.born_host.strip() or peer
    born_ms = system.born_timestamp.seconds * 1000 + system.born_timestamp.nanos // 1_000_000
    if 0 < born_ms <= TIMESTAMP_MS_MAX:
        properties[const.BORN_TIMESTAMP] = str(born_ms)
    else:
        born_ms = now_ms
    _check_pairs(properties)
    kind = _type_of(properties)
    if kind == MessageType.TRANSACTION and not _DELAYS.isdisjoint(properties):
        raise StatusError(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "a message of a transaction cannot be delayed"
        )
    return OutgoingMessage(topic, message.body, properties, sys_flag, born_ms, kind)


def check_type(message: OutgoingMessage, topic_type: str) -> None:
    """Raise StatusError if the topic is for messages of another type."""
    actual = MessageType.Name(message.type)
    if topic_type not in (actual, "MIXED"):
        raise StatusError(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"TopicMessageType validate failed, the expected type is {topic_type}, but actual type is {actual}",
        )


def _check_body(body: bytes, config: ProxyConfig) -> None:
    if not body and config.enable_message_body_empty_check:
        raise StatusError(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if 0 < config.max_message_size < len(body):
        raise StatusError(
            Code.MESSAGE_BODY_TOO_LARGE,
            f"message body cannot exceed the max {config.max_message_size}, it has {len(body)} bytes",
        )


def _user_properties(message: Message, config: ProxyConfig) -> dict[str, str]:
    """Return the user properties. Checks them, and the tag and the keys, which count towards the same limit.

    Raises StatusError.
    """
    own = message.user_properties
    system = message.system_properties
    if len(own) > config.user_property_max_num:
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"too many user properties, max is {config.user_property_max_num}, there are {len(own)}",
        )
    size = 0
    for name, value in own.items():
        if name in const.RESERVED_PROPERTIES:
            raise StatusError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        _check_no_control(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "the key of property", name)
        _check_no_control(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the value of property {name}", value)
        size += len(name.encode()) + len(value.encode())
    if system.tag:
        _check_not_blank(Code.ILLEGAL_MESSAGE_TAG, "tag", system.tag)
        if "|" in system.tag:
            raise StatusError(Code.ILLEGAL_MESSAGE_TAG, f"tag cannot contain '|': {system.tag}")
        _check_no_control(Code.ILLEGAL_MESSAGE_TAG, "tag", system.tag)
    size += len(system.tag.encode())
    for key in system.keys:
        _check_not_blank(Code.ILLEGAL_MESSAGE_KEY, "key", key)
        _check_no_control(Code.ILLEGAL_MESSAGE_KEY, "key", key)
        size += len(key.encode())
    if size > config.max_user_property_size:
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the total size of user property is too large, max is {config.max_user_property_size}, it is {size}",
        )
    return {name: value for name, value in own.items() if name and value}


def _message_id(system: SystemProperties) -> str:
    if not system.message_id.strip():
        raise StatusError(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    _check_no_control(Code.ILLEGAL_MESSAGE_ID, "message id", system.message_id)
    return system.message_id


def _recovery_s(system: SystemProperties, config: ProxyConfig) -> int:
    seconds = system.orphaned_transaction_recovery_duration.seconds
    if 0 < config.max_transaction_recovery_seconds < seconds:
        raise StatusError(
            Code.BAD_REQUEST,
            "the max transaction recovery time of message is too large, max is "
            f"{config.max_transaction_recovery_seconds}",
        )
    return seconds


def _delivery_ms(system: SystemProperties, now_ms: int, config: ProxyConfig) -> int:
    at = system.delivery_timestamp
    delivery_ms = at.seconds * 1000 + -(-at.nanos // 1_000_000)  # rounded up: it is never early
    if 0 < config.max_delay_time_ms < delivery_ms - now_ms:
        raise StatusError(
            Code.ILLEGAL_DELIVERY_TIME,
            f"the max delay time of message is too large, max is {config.max_delay_time_ms}",
        )
    return max(delivery_ms, 0)


def _message_group(group: str, config: ProxyConfig) -> str:
    _check_not_blank(Code.ILLEGAL_MESSAGE_GROUP, "message group", group)
    if 0 < config.max_message_group_size <= len(group.encode()):
        raise StatusError(
            Code.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {config.max_message_group_size}"
        )
    _check_no_control(Code.ILLEGAL_MESSAGE_GROUP, "message group", group)
    return group


def _check_not_blank(code: Code, what: str, text: str) -> None:
    if text and not text.strip():
        raise StatusError(code, f"{what} cannot be the char sequence of whitespace")


def _check_no_control(code: Code, what: str, text: str) -> None:
    if not text.isprintable() and any(unicodedata.category(char) == "Cc" for char in text):
        raise StatusError(code, f"{what} cannot contain control character: {text!r:.80}")


def _check_pairs(properties: Mapping[str, str]) -> None:
    """Check all properties together, with those that have no check of their own, such as the trace context."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if text.count("\x01") != len(properties) or text.count("\x02") != len(properties):
        raise StatusError(Code.BAD_REQUEST, "born host or trace context holds a control character")
    size = len(text.encode())
    if size > PROPERTIES_LENGTH_MAX:
        raise StatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"all properties together have {size} bytes, max is {PROPERTIES_LENGTH_MAX}",
        )


def _type_of(properties: Mapping[str, str]) -> MessageType:
    """Return the type that consumers will see."""
    if properties.get(const.TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION
    if not _DELAYS.isdisjoint(properties):
        return MessageType.DELAY
    if const.SHARDING_KEY in properties:
        return MessageType.FIFO
    if const.PRIORITY in properties:
        return MessageType.PRIORITY
    return MessageType.NORMAL
