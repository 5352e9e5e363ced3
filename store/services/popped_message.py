"""What a message becomes that a pop consumer did not acknowledge in time."""

from message import const
from message.decoder import decode_message, raw_properties
from message.names import RETRY_GROUP_TOPIC_PREFIX, dlq_topic, pop_retry_topic, popped_topic
from message.properties import PROPERTIES_LENGTH_MAX, encode_properties, join_properties
from store.put_message import PutMessage, put_again


def topic_of_retry(group: str, topic: str, *, is_v2: bool) -> str:
    """Return the topic in which a message of `topic` comes again."""
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return topic
    return pop_retry_topic(group, topic, v2=is_v2)


def revived(record: bytes, group: str, pop_time: int, *, is_v2: bool, is_attempt: bool) -> PutMessage:
    """Make the copy that comes again, as RocketMQ makes it; with `is_attempt` it counts as one more attempt.

    Raises MessageDecodeError.
    """
    message = decode_message(record)
    added = {}
    if const.FIRST_POP_TIME not in message.properties:
        added[const.FIRST_POP_TIME] = str(pop_time)
    if const.ORIGIN_GROUP not in message.properties:
        added[const.ORIGIN_GROUP] = group
    return _copied(record, topic_of_retry(group, message.topic, is_v2=is_v2), added, int(is_attempt))


def dead(record: bytes, group: str) -> PutMessage:
    """Make the copy for the group's dead letter topic. Raises MessageDecodeError."""
    message = decode_message(record)
    added = {}
    if const.RETRY_TOPIC not in message.properties:
        added[const.RETRY_TOPIC] = popped_topic(group, message.topic)
    if const.ORIGIN_MESSAGE_ID not in message.properties:
        added[const.ORIGIN_MESSAGE_ID] = message.msg_id
    return _copied(record, dlq_topic(group), added, 0)


def _copied(record: bytes, topic: str, added: dict[str, str], attempts: int) -> PutMessage:
    """Make a copy with more properties, unless the record has no room for them."""
    message = decode_message(record)
    properties = raw_properties(record)
    longer = join_properties(properties, encode_properties(added))
    if len(longer) <= PROPERTIES_LENGTH_MAX:
        properties = longer
    return put_again(message, topic.encode(), 0, properties, attempts=attempts)
