"""What tools ask about pops: which messages consumers have, by queue, and for how long. Any member can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.answers import Request
from remoting.bodies.pop_bodies import PoppedMessages, PoppedMessagesOfQueue
from remoting.headers.headers import CommandHeader

if TYPE_CHECKING:
    from store.message_store import MessageStore

# Queues of one answer: those whose messages were popped first.
QUEUES_MAX: Final = 2048


class PopAdminProcessor:
    def __init__(self, store: MessageStore) -> None:
        self._table = store.tables.pop_table

    def get_popped(self, request: Request[CommandHeader], now_ms: int) -> None:
        queues = []
        for (group, topic, queue_id), queue in self._table.queues.items():
            count = queue.in_flight_count
            if not count:
                continue
            pop_times = [pop_time for _, pop_time in queue.check_points]
            visible = [check_point.visible_ms for check_point in queue.check_points.values()]
            if queue.order is not None:
                pop_times.append(queue.order.pop_time)
                visible += queue.order.visible.values()
            queues.append(
                PoppedMessagesOfQueue(
                    group=group,
                    topic=topic,
                    queue_id=queue_id,
                    count=count,
                    oldest_pop_ms=min(pop_times),
                    next_visible_ms=min(visible),
                )
            )
        queues.sort(key=lambda told: told.oldest_pop_ms)
        body = PoppedMessages(total=self._table.in_flight_count, queues=queues[:QUEUES_MAX])
        request.answer(body=body)
