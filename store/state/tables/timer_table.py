"""Which timer messages wait no more: by their queue offsets in rmq_sys_wheel_timer, queue 0.

One ends when it is delivered, when it is rolled (then a later record of the queue stands for it), when it is recalled
or cannot be delivered. A recall ends when what it recalls has.
"""

from typing import Any, ClassVar

from store.layout.timer_check_point import TIMER_CHECK_POINT
from store.state.ended_offsets_table import NOT_TAKEN_OVER, EndedOffsetsTable, EndOffsets


class EndTimers(EndOffsets, frozen=True):
    kind: ClassVar[int] = 21


class TimerTable(EndedOffsetsTable):
    """`java_offset` and `java_read_ms`: RocketMQ's broker had the store before. Of the messages before that offset, it
    has delivered or dropped those whose slot comes before that time.
    """

    name = "timers"
    changes = (EndTimers,)

    def __init__(self) -> None:
        super().__init__()
        self.java_offset = self.java_read_ms = 0

    @property
    def awaits_take_over(self) -> bool:
        """Whether it is still to be found out what RocketMQ has ended."""
        return self.java_read_ms > 0 and self.first_waiting == NOT_TAKEN_OVER

    def read_check_point(self, content: bytes) -> None:
        """RocketMQ's config/timercheck."""
        if len(content) >= TIMER_CHECK_POINT.size:
            self.java_read_ms, _, self.java_offset, *_ = TIMER_CHECK_POINT.unpack_from(content)

    def pack(self) -> list[Any]:
        return [*super().pack(), self.java_offset, self.java_read_ms]

    def unpack(self, values: list[Any]) -> None:
        *ended, self.java_offset, self.java_read_ms = values
        super().unpack(ended)
