"""Clients that send messages for a time, and recall some of them."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from message.const import TIMER_DEL_UNIQKEY, TIMER_DELIVER_MS, UNIQ_CLIENT_MESSAGE_ID_KEYIDX
from message.properties import encode_properties
from simulator.harness.options import TIMER_PRECISION_MS, Options
from store.put_message import PutMessage
from store.services.timer_message import slot_of, timed

_DELAY_MS_MAX = 4_000
# A client remembers so many of the messages that it may recall.
_REMEMBERED_COUNT = 30


class Timers:
    def __init__(self, options: Options, random: Random) -> None:
        self._options = options
        self._random = random
        self._sent: list[tuple[int, int]] = []  # uid, and when it is to be delivered (ms)

    def is_timed(self) -> bool:
        """Whether the next batch is one of messages with a time."""
        return self._options.timers > 0 and self._random.random() < self._options.timers

    def timed(self, uids: range, messages: list[PutMessage], now_ms: int) -> list[PutMessage]:
        """Each of them as it waits; now and then one recalls an earlier one in its place."""
        random = self._random
        waiting = []
        for uid, message in zip(uids, messages, strict=True):
            # As RocketMQ: what a slot holds can be recalled until the slot begins.
            may_recall = [sent for sent in self._sent if slot_of(sent[1], TIMER_PRECISION_MS) + 1 > now_ms]
            if may_recall and random.random() < 0.4:
                # Mostly what is due soonest, so that the two meet.
                target, deliver_ms = min(
                    random.sample(may_recall, min(3, len(may_recall))), key=lambda sent: sent[1]
                )
                self._sent.remove((target, deliver_ms))
                deliver_ms = slot_of(deliver_ms, TIMER_PRECISION_MS) + 1
                said = {UNIQ_CLIENT_MESSAGE_ID_KEYIDX: str(target), TIMER_DEL_UNIQKEY: str(target)}
            else:
                deliver_ms = now_ms + random.randint(1, _DELAY_MS_MAX)
                said = {UNIQ_CLIENT_MESSAGE_ID_KEYIDX: str(uid)}
                self._sent = [*self._sent[-_REMEMBERED_COUNT:], (uid, deliver_ms)]
            said[TIMER_DELIVER_MS] = str(deliver_ms)
            asked = replace(message, properties=message.properties + encode_properties(said))
            waiting.append(timed(asked, slot_of(deliver_ms, TIMER_PRECISION_MS)))
        return waiting
