"""Which messages wait in the timer topic, and which of those are refused: RocketMQ's rules and words, in its order.

The time that is asked for is in TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS, of which the first counts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from broker.config.broker_config import BrokerConfig
from broker.processors.send.send_batch import SendRefused, illegal
from message import const
from message.names import RETRY_GROUP_TOPIC_PREFIX
from message.properties import pairs_of
from message.recall_handle import RecallHandle
from remoting.codes import ResponseCode
from store.put_message import PutMessage
from store.services.timer_message import (
    TIMER_PROPERTIES_LENGTH_MAX,
    asked_ms,
    out_ms,
    real_topic,
    slot_of,
    timed,
)

if TYPE_CHECKING:
    from store.message_store import MessageStore

_MS_PER_S = 1000
_ANY_SLOT_MS = 1_700_000_000_000


class TimerAdmission:
    def __init__(self, config: BrokerConfig, store: MessageStore, rng: random.Random) -> None:
        self._broker_name = config.broker_name
        self._config = config.store
        self._timers = store.services.timer_message_service
        self._random = rng
        self._max_delay_ms = config.store.timer_max_delay_sec * _MS_PER_S
        self._not_legal = (
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{self._max_delay_ms}ms; or if set del msg, the delay time should be bigger than the current time"
        )
        self._is_illegal = illegal(config.store.max_message_size)

    def deliver_ms(self, properties: Mapping[str, str], now_ms: int) -> int | None:
        """When a message is to be delivered; None if at once. Raises SendRefused."""
        try:
            deliver_ms = asked_ms(properties, now_ms)
        except ValueError:
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, self._not_legal) from None
        if deliver_ms is None:
            return None
        if not self._config.timer_wheel_enable:
            raise SendRefused(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false",
            )
        if deliver_ms <= now_ms:
            if const.TIMER_DEL_UNIQKEY in properties:
                raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, self._not_legal)
            return None
        if deliver_ms - now_ms > self._max_delay_ms:
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, self._not_legal)
        if (refusal := self._timers.refusal()) is not None:
            raise SendRefused(ResponseCode.SYSTEM_BUSY, refusal)
        return deliver_ms

    def admit(self, message: PutMessage, deliver_ms: int) -> PutMessage:
        """The message as it waits. Raises SendRefused."""
        slot_ms = slot_of(deliver_ms, self._config.timer_precision_ms)
        limit = self._config.timer_congest_num_each_slot
        count = self._timers.index.slots[slot_ms]
        if count > limit and self._random.random() * limit > 2 * limit - count:
            raise SendRefused(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control, max num limit is {2 * limit} or the current value is greater "
                f"than {limit} and less than {2 * limit}, trigger random flow control",
            )
        waiting = timed(message, slot_ms)
        if len(waiting.properties) > TIMER_PROPERTIES_LENGTH_MAX:
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, self._is_illegal)
        return waiting

    def check_room(self, half: PutMessage, topic: bytes) -> PutMessage:
        """A half message of that topic, once it is sure that it can wait for its time as well. Raises SendRefused."""
        if len(timed(replace(half, topic=topic), _ANY_SLOT_MS).properties) > TIMER_PROPERTIES_LENGTH_MAX:
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, self._is_illegal)
        return half

    def recall_fields(self, waiting: PutMessage) -> dict[str, str] | None:
        """What the answer to a message says besides, as it waits now; None if nothing."""
        said = pairs_of(waiting.properties)
        topic = real_topic(said).decode()
        slot_ms = out_ms(said)
        if slot_ms is None or topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return None
        key = said.get(b"UNIQ_KEY", b"").decode()
        return {"recallHandle": RecallHandle(topic, self._broker_name, slot_ms + 1, key).encode()}
