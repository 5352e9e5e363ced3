"""Which given-up messages are halves once more: by their queue offsets in TRANS_CHECK_MAX_TIME_TOPIC, queue 0."""

from dataclasses import dataclass
from typing import ClassVar

from store.state.ended_offsets_table import EndedOffsetsTable, EndOffsets


@dataclass(frozen=True, slots=True)
class ResumeHalf(EndOffsets):
    kind: ClassVar[int] = 30


class ResumedHalfTable(EndedOffsetsTable):
    name = "resumedHalves"
    changes = (ResumeHalf,)
