"""Which timer messages wait no more: by their queue offsets in rmq_sys_wheel_timer, queue 0.

One ends when it is delivered, when it is rolled (then a later record of the queue stands for it), when it is recalled
or cannot be delivered. A recall ends when what it recalls has.
"""

from dataclasses import dataclass
from typing import ClassVar

from store.state.ended_offsets_table import EndedOffsetsTable, EndOffsets


@dataclass(frozen=True, slots=True)
class EndTimers(EndOffsets):
    kind: ClassVar[int] = 21


class TimerTable(EndedOffsetsTable):
    name = "timers"
    changes = (EndTimers,)
