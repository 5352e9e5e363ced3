"""What tools ask of timer messages: GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61), and what comes next of one.

The check point has RocketMQ's layout. While a broker runs it has no wheel and no timerlog, so what it says of these is
0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.answers import Request
from remoting.bodies import admin_bodies, bodies
from remoting.codes import ResponseCode
from remoting.headers import admin_headers
from remoting.headers.headers import CommandHeader
from store.layout.timer_check_point import TIMER_CHECK_POINT

if TYPE_CHECKING:
    from store.message_store import MessageStore


class TimerAdminProcessor:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def get_check_point(self, request: Request[CommandHeader], now_ms: int) -> None:
        service = self._store.services.timer_message_service
        version = service.table.data_version
        offset = service.index.next_offset
        values = (service.read_ms(now_ms), 0, offset, offset, 0, version.timestamp, version.counter)
        request.answer(body=TIMER_CHECK_POINT.pack(*values))

    def get_metrics(self, request: Request[CommandHeader], now_ms: int) -> None:
        service = self._store.services.timer_message_service
        version = service.table.data_version
        body = admin_bodies.TimerMetricsSerializeWrapper(
            data_version=bodies.DataVersion(
                counter=version.counter, timestamp=version.timestamp, state_version=0
            ),
            timing_count={
                topic: admin_bodies.TimerMetric(count=count, time_stamp=now_ms)
                for topic, count in sorted(service.index.counts.items())
            },
        )
        request.answer(body=body)

    def get_timer_state(
        self, request: Request[admin_headers.GetTimerStateRequestHeader], now_ms: int
    ) -> None:
        state = self._store.services.timer_message_service.state_of(request.header.offset, now_ms)
        if state is None:
            remark = f"no timer message at physical offset {request.header.offset}"
            request.answer(ResponseCode.QUERY_NOT_FOUND, remark)
            return
        request.answer(ext_fields=state)
