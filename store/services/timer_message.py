"""A timer message: how it waits in the timer topic, when it is due, and what it becomes then.

It lies in rmq_sys_wheel_timer, queue 0, as RocketMQ writes it: with its own topic and queue as properties, and with
TIMER_OUT_MS, the asked time rounded down to the slot of RocketMQ's wheel. Delivery goes by the asked time itself.
"""

import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from message import const
from message.names import NOT_ALLOWED_SEND_TOPICS, TIMER_TOPIC, topic_fault
from message.properties import PROPERTIES_LENGTH_MAX, pairs_of, with_properties
from store.put_message import PutMessage
from store.services.delayed_message import delivered

TIMER_TOPIC_BYTES: Final = TIMER_TOPIC.encode()
# RocketMQ's slots are so long at most: a message is due within that of its TIMER_OUT_MS.
SLOT_MS_MAX: Final = 1000
# The first of them counts.
_ASKED: Final = (const.TIMER_DELAY_SEC, const.TIMER_DELAY_MS, const.TIMER_DELIVER_MS)
# Names in what a record says, which is what pairs_of() gives of its properties.
_REAL_TOPIC: Final = const.REAL_TOPIC.encode()
_UNIQ_KEY: Final = const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode()
_TIMER_DELAY_MS: Final = const.TIMER_DELAY_MS.encode()
_TIMER_DELAY_SEC: Final = const.TIMER_DELAY_SEC.encode()
_TIMER_DELIVER_MS: Final = const.TIMER_DELIVER_MS.encode()
_TIMER_DEL_UNIQKEY: Final = const.TIMER_DEL_UNIQKEY.encode()
_TIMER_OUT_MS: Final = const.TIMER_OUT_MS.encode()
_TIMER_ROLL_TIMES: Final = const.TIMER_ROLL_TIMES.encode()
# What waiting and delivery add to the properties of a message: names and values of eight, at the longest.
_ADDED_LENGTH: Final = 256
TIMER_PROPERTIES_LENGTH_MAX: Final = PROPERTIES_LENGTH_MAX - _ADDED_LENGTH
_MS_MAX: Final = (1 << 47) - 1


def slot_of(deliver_ms: int, precision_ms: int) -> int:
    """TIMER_OUT_MS of a message that is to be delivered then; the slot is read once it is over."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def asked_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """When the sender of a message asks for it to be delivered; None for a message with no such wish, or one that had
    it before. Raises ValueError for what is no number.
    """
    asked = [name for name in _ASKED if name in properties]
    if not asked or const.TIMER_OUT_MS in properties:
        return None
    value = properties[asked[0]]
    if re.fullmatch("[+-]?[0-9]{1,18}", value, re.ASCII) is None:
        raise ValueError(value)
    if asked[0] == const.TIMER_DELAY_SEC:
        return now_ms + int(value) * 1000
    return int(value) + (now_ms if asked[0] == const.TIMER_DELAY_MS else 0)


def timed(message: PutMessage, out_ms: int) -> PutMessage:
    """The message as it waits in the timer topic."""
    waiting = {
        const.TIMER_OUT_MS: str(out_ms),
        const.REAL_TOPIC: message.topic.decode(),
        const.REAL_QUEUE_ID: str(message.queue_id),
    }
    return replace(
        message,
        topic=TIMER_TOPIC_BYTES,
        queue_id=0,
        properties=with_properties(message.properties, waiting),
    )


def out_ms(said: Mapping[bytes, bytes]) -> int | None:
    """The slot that a record of the timer topic lies in."""
    return _number(said, _TIMER_OUT_MS)


def real_topic(said: Mapping[bytes, bytes]) -> bytes:
    return said.get(_REAL_TOPIC, b"")


def is_rolled(said: Mapping[bytes, bytes]) -> bool:
    return _TIMER_ROLL_TIMES in said


def roll_times(said: Mapping[bytes, bytes]) -> int:
    return _number(said, _TIMER_ROLL_TIMES) or 0


def without_rolls(said: Mapping[bytes, bytes]) -> bytes:
    """What a record and those that it is rolled to have in common, and no record of another message has."""
    names = _UNIQ_KEY, _REAL_TOPIC, _TIMER_OUT_MS, _TIMER_DEL_UNIQKEY
    return b"\1".join(said.get(name, b"") for name in names)


def recalled_key(said: Mapping[bytes, bytes]) -> bytes | None:
    """Which message a record recalls: its UNIQ_KEY, after its topic and a plus where appendTopicForTimerDeleteKey is
    on. None for a record that is no recall.
    """
    return said.get(_TIMER_DEL_UNIQKEY)


def recall_keys(said: Mapping[bytes, bytes]) -> tuple[bytes, bytes]:
    """What recalls may call a message by."""
    key, topic = said.get(_UNIQ_KEY, b""), real_topic(said)
    return key, topic + b"+" + key


def due_ms(said: Mapping[bytes, bytes], store_timestamp: int) -> int:
    """When a record of the timer topic is to be delivered; 0 for one that does not say it.

    A delay counts from when it was stored. A rolled record was stored anew, so it says the time itself. Whatever a
    record says, it is due within its slot: its clients count on that, and its recall lies there.
    """
    slot_ms = out_ms(said)
    if slot_ms is None:
        return 0
    deliver_ms = _number(said, _TIMER_DELIVER_MS)
    if deliver_ms is None or not is_rolled(said):
        delay_s = _number(said, _TIMER_DELAY_SEC)
        delay_ms = _number(said, _TIMER_DELAY_MS)
        if delay_s is not None:
            deliver_ms = store_timestamp + delay_s * 1000
        elif delay_ms is not None:
            deliver_ms = store_timestamp + delay_ms
    return min(max(deliver_ms or 0, slot_ms + 1), slot_ms + SLOT_MS_MAX)


def wheel_slot(said: Mapping[bytes, bytes], store_timestamp: int, window_ms: int) -> tuple[int, bool]:
    """The slot that a record lies in first in RocketMQ's wheel, and whether it is rolled when that comes."""
    slot_ms = out_ms(said) or 0
    write_ms = store_timestamp // SLOT_MS_MAX * SLOT_MS_MAX
    beyond_ms = slot_ms - write_ms - window_ms
    if beyond_ms < 0:
        return slot_ms, False
    return write_ms + (window_ms // 2 if beyond_ms < window_ms // 3 else window_ms), True


def fired(record: bytes, store_timestamp: int, precision_ms: int, now_ms: int) -> PutMessage | None:
    """What a record of the timer topic becomes when its time has come; None for one that does not say where it belongs,
    or names a topic that no client may send to. Raises MessageDecodeError.
    """
    message = delivered(record)
    topic = message.topic.decode() if message is not None else ""
    if message is None or topic in NOT_ALLOWED_SEND_TOPICS or topic_fault(topic) is not None:
        return None
    return _taken_out(message, store_timestamp, precision_ms, now_ms, {})


def rolled(
    record: bytes, store_timestamp: int, deliver_ms: int, precision_ms: int, now_ms: int
) -> PutMessage | None:
    """As fired(), of one that goes on waiting as a new record of the timer topic."""
    message = delivered(record)
    if message is None:
        return None
    times = str(roll_times(pairs_of(message.properties)) + 1)
    more = {const.TIMER_ROLL_TIMES: times, const.TIMER_DELIVER_MS: str(deliver_ms)}
    return _taken_out(
        replace(message, topic=TIMER_TOPIC_BYTES, queue_id=0), store_timestamp, precision_ms, now_ms, more
    )


def _taken_out(
    message: PutMessage, store_timestamp: int, precision_ms: int, now_ms: int, more: dict[str, str]
) -> PutMessage:
    added = {
        const.TIMER_ENQUEUE_MS: str(store_timestamp // precision_ms * precision_ms),
        const.TIMER_DEQUEUE_MS: str(now_ms),
        **more,
    }
    return replace(message, properties=with_properties(message.properties, added))


def _number(said: Mapping[bytes, bytes], name: bytes) -> int | None:
    """A property that Java reads as a long; None for anything that is no time."""
    value = said.get(name)
    if value is None or not value.isdigit() or len(value) > 15:
        return None
    return min(int(value), _MS_MAX)
