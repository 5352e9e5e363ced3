"""What RocketMQ has left of timer messages in a store: which records of the timer topic wait no more.

A record that RocketMQ rolls stands once more in the topic, later and with one more TIMER_ROLL_TIMES. One without such a
successor waits, also where its wheel has passed the time at which it was to be rolled. One whose slot the wheel has
read was delivered.
"""

from collections import defaultdict

from message.decoder import raw_properties
from message.properties import pairs_of
from store.services.deliveries import Deliveries
from store.services.leader_service import LeaderStore
from store.services.take_over import Reading, TakeOver
from store.services.timer_message import TIMER_TOPIC_BYTES, out_ms, roll_times, without_rolls
from store.state.offset_ranges import OffsetRanges
from store.state.tables.timer_table import EndTimers


class RocketMQTimers(TakeOver):
    def __init__(self, store: LeaderStore, deliveries: Deliveries) -> None:
        self._timers = store.state.tables.timer_table
        super().__init__(store, deliveries, self._timers, EndTimers)

    @property
    def is_done(self) -> bool:
        return not self._timers.awaits_take_over

    def _read(self) -> Reading:
        queue = self._store.queues.find(TIMER_TOPIC_BYTES, 0)
        assert queue is not None, "what is to be taken over lies there"
        ended: list[int] = []
        # Offsets of what was not delivered, by message and the number of rolls before.
        waiting: defaultdict[tuple[bytes, int], list[int]] = defaultdict(list)
        for offset, record in self._records(queue, queue.min_offset):
            said = pairs_of(raw_properties(record))
            message, times = without_rolls(said), roll_times(said)
            rolled = waiting.get((message, times - 1))
            if rolled:
                ended.append(rolled.pop(0))
            is_read = (out_ms(said) or 0) < self._timers.java_read_ms
            if offset < self._timers.java_offset and is_read:
                ended.append(offset)
            else:
                waiting[message, times].append(offset)
            yield
        return queue.min_offset, OffsetRanges.of(sorted(ended))
