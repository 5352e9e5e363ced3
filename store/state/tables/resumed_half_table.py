"""Which given-up messages are halves once more: by their queue offsets in TRANS_CHECK_MAX_TIME_TOPIC, queue 0."""

from typing import ClassVar

from store.state.ended_offsets_table import EndedOffsetsTable, EndOffsets


class ResumeHalf(EndOffsets, frozen=True):
    kind: ClassVar[int] = 30


class ResumedHalfTable(EndedOffsetsTable):
    name = "resumedHalves"
    changes = (ResumeHalf,)
