"""A delayed message: how it waits in the schedule topic, and what it becomes when its time has come.

It lies in the queue of its level, with its own topic and queue as properties. Its ConsumeQueue unit has the time of
its delivery in the place of a tags code.
"""

from typing import Final

import msgspec

from message import const
from message.decoder import decode_message, raw_properties
from message.message_id import pack_host
from message.names import SCHEDULE_TOPIC
from message.properties import PROPERTIES_LENGTH_MAX, delete_property, encode_properties, find_property
from message.sys_flag import STOREHOSTADDRESS_V6_FLAG
from message.tags import tags_code_of_bytes
from store.put_message import PutMessage

SCHEDULE_TOPIC_BYTES: Final = SCHEDULE_TOPIC.encode()
# With a delay level a message is none of the timer's, whatever else it says.
_REPLACED: Final = tuple(
    name.encode()
    for name in (
        const.DELAY_TIME_LEVEL,
        const.REAL_TOPIC,
        const.REAL_QUEUE_ID,
        const.TIMER_DELIVER_MS,
        const.TIMER_DELAY_SEC,
        const.TIMER_DELAY_MS,
    )
)
_MS_PER_S: Final = 1000
_DELAY_MS_MAX: Final = 100 * 366 * 24 * 3_600_000
_QUEUE_ID_MAX: Final = 2**31 - 1


def delayed(message: PutMessage, level: int, level_max: int) -> PutMessage:
    """The message as it waits in the schedule topic; a level above the highest counts as that."""
    level = min(level, level_max)
    properties = message.properties
    for name in _REPLACED:
        properties = delete_property(properties, name)
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    waiting = {
        const.REAL_TOPIC: message.topic.decode(),
        const.REAL_QUEUE_ID: str(message.queue_id),
        const.DELAY_TIME_LEVEL: str(level),
    }
    properties += encode_properties(waiting)
    return msgspec.structs.replace(
        message, topic=SCHEDULE_TOPIC_BYTES, queue_id=level - 1, properties=properties, tags_code=0
    )


def delivered(record: bytes) -> PutMessage | None:
    """What a record of the schedule topic becomes; None for one that does not say where it belongs. Raises
    MessageDecodeError.

    The properties go on byte by byte, whatever they hold: decoded and encoded again they could become too long for
    their field. As RocketMQ leaves them, they still tell of the delay.
    """
    message = decode_message(record)
    topic = message.properties.get(const.REAL_TOPIC)
    queue_id = message.properties.get(const.REAL_QUEUE_ID, "")
    if topic is None or topic == SCHEDULE_TOPIC or not queue_id.isascii() or not queue_id.isdigit():
        return None
    properties = raw_properties(record)
    # Not from a sender of ours, but a store that was taken over may hold it.
    if len(properties) > PROPERTIES_LENGTH_MAX or len(queue_id) > 10 or int(queue_id) > _QUEUE_ID_MAX:
        return None
    return PutMessage(
        topic.encode(),
        int(queue_id),
        message.body,
        properties,
        tags_code_of_bytes(find_property(properties, b"TAGS") or b""),
        message.born_timestamp,
        pack_host(message.born_host),
        message.flag,
        message.sys_flag & ~STOREHOSTADDRESS_V6_FLAG,
        message.reconsume_times,
    )


def is_delay_of_other_levels(deliver_ms: int, by_the_record_ms: int) -> bool:
    """Whether a unit's time of delivery may be another than its record now gives because messageDelayLevel was changed
    meanwhile: then the difference is whole seconds, which damage to one byte never makes.
    """
    difference = abs(deliver_ms - by_the_record_ms)
    return difference % _MS_PER_S == 0 and difference <= _DELAY_MS_MAX
