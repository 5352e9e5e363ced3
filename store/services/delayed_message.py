"""A delayed message: how it waits in the schedule topic, and what it becomes when its time has come.

It lies in the queue of its level, with its own topic and queue as properties. Its ConsumeQueue unit has the time of
its delivery in the place of a tags code.
"""

from typing import Final

import msgspec

from message import const
from message.decoder import decode_message, raw_properties
from message.names import SCHEDULE_TOPIC
from message.properties import PROPERTIES_LENGTH_MAX, delete_property, number_of, with_properties
from store.put_message import PutMessage, put_again

SCHEDULE_TOPIC_BYTES: Final = SCHEDULE_TOPIC.encode()
# With a delay level a message is none of the timer's, whatever else it says.
_OF_TIMERS: Final = tuple(
    name.encode() for name in (const.TIMER_DELIVER_MS, const.TIMER_DELAY_SEC, const.TIMER_DELAY_MS)
)
_MS_PER_S: Final = 1000
_DELAY_MS_MAX: Final = 100 * 366 * 24 * 3_600_000
_QUEUE_ID_MAX: Final = 2**31 - 1


def delayed(message: PutMessage, level: int, level_max: int) -> PutMessage:
    """The message as it waits in the schedule topic; a level above the highest counts as that."""
    level = min(level, level_max)
    properties = message.properties
    for name in _OF_TIMERS:
        properties = delete_property(properties, name)
    waiting = {
        const.REAL_TOPIC: message.topic.decode(),
        const.REAL_QUEUE_ID: str(message.queue_id),
        const.DELAY_TIME_LEVEL: str(level),
    }
    return msgspec.structs.replace(
        message,
        topic=SCHEDULE_TOPIC_BYTES,
        queue_id=level - 1,
        properties=with_properties(properties, waiting),
        tags_code=0,
    )


def delivered(record: bytes) -> PutMessage | None:
    """What a record of the schedule topic becomes; None for one that does not say where it belongs. Raises
    MessageDecodeError.

    The properties go on byte by byte, whatever they hold: decoded and encoded again they could become too long for
    their field. As RocketMQ leaves them, they still tell of the delay.
    """
    message = decode_message(record)
    topic = message.properties.get(const.REAL_TOPIC)
    queue_id = number_of(message.properties, const.REAL_QUEUE_ID)
    properties = raw_properties(record)
    # Senders of ours do not write such records, but a store that was taken over may hold them.
    if (
        topic in (None, SCHEDULE_TOPIC)
        or queue_id is None
        or queue_id > _QUEUE_ID_MAX
        or len(properties) > PROPERTIES_LENGTH_MAX
    ):
        return None
    assert topic is not None, "looked at above"
    return put_again(message, topic.encode(), queue_id, properties)


def is_delay_of_other_levels(deliver_ms: int, by_the_record_ms: int) -> bool:
    """Whether a unit's time of delivery may be another than its record now gives because messageDelayLevel was changed
    meanwhile: then the difference is whole seconds, which damage to one byte never makes.
    """
    difference = abs(deliver_ms - by_the_record_ms)
    return difference % _MS_PER_S == 0 and difference <= _DELAY_MS_MAX
