"""What a message becomes that a pop consumer did not acknowledge in time."""

from message import const
from message.decoder import decode_message, raw_properties
from message.message_id import pack_host
from message.names import RETRY_GROUP_TOPIC_PREFIX, dlq_topic, pop_retry_topic, popped_topic
from message.properties import PROPERTIES_LENGTH_MAX, encode_properties
from message.sys_flag import STOREHOSTADDRESS_V6_FLAG
from message.tags import tags_code_of_bytes
from store.put_message import PutMessage


def topic_of_retry(group: str, topic: str, *, is_v2: bool) -> str:
    """Where a message of `topic` comes again."""
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return topic
    return pop_retry_topic(group, topic, v2=is_v2)


def revived(record: bytes, group: str, pop_time: int, *, is_v2: bool, is_attempt: bool) -> PutMessage:
    """The copy that comes again, as RocketMQ makes it; not `is_attempt`: for no further attempt. Raises
    MessageDecodeError.
    """
    message = decode_message(record)
    added = {}
    if const.FIRST_POP_TIME not in message.properties:
        added[const.FIRST_POP_TIME] = str(pop_time)
    if const.ORIGIN_GROUP not in message.properties:
        added[const.ORIGIN_GROUP] = group
    return _copied(record, topic_of_retry(group, message.topic, is_v2=is_v2), added, int(is_attempt))


def dead(record: bytes, group: str) -> PutMessage:
    """The copy in the group's dead letter topic. Raises MessageDecodeError."""
    message = decode_message(record)
    added = {}
    if const.RETRY_TOPIC not in message.properties:
        added[const.RETRY_TOPIC] = popped_topic(group, message.topic)
    if const.ORIGIN_MESSAGE_ID not in message.properties:
        added[const.ORIGIN_MESSAGE_ID] = message.msg_id
    return _copied(record, dlq_topic(group), added, 0)


def _copied(record: bytes, topic: str, added: dict[str, str], attempts: int) -> PutMessage:
    """What there is no room for is not added."""
    message = decode_message(record)
    properties = raw_properties(record)
    more = encode_properties(added)
    if properties and not properties.endswith(b"\x02"):
        more = b"\x02" + more
    if len(properties) + len(more) <= PROPERTIES_LENGTH_MAX:
        properties += more
    return PutMessage(
        topic.encode(),
        0,
        message.body,
        properties,
        tags_code_of_bytes(message.tags.encode()) if message.tags else 0,
        message.born_timestamp,
        pack_host(message.born_host),
        message.flag,
        message.sys_flag & ~STOREHOSTADDRESS_V6_FLAG,
        message.reconsume_times + attempts,
    )
