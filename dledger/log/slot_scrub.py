"""The walk of the scrub over records in two slots: a damaged one is written anew from memory."""

from collections.abc import Sequence

from disk.slots import SLOT_SIZE, Slots
from dledger.log.scrub_walk import Finding


class SlotScrubJob:
    """Fulfils ScrubJob."""

    __slots__ = ("size", "slots", "was_damaged")
    kind = "scrub"
    writes = True

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.size = 2 * SLOT_SIZE
        self.was_damaged = False

    def run(self) -> None:
        self.was_damaged = self.slots.mend()


class SlotScrub:
    """Fulfils ScrubWalk."""

    def __init__(self, files: Sequence[Slots]) -> None:
        self._files = files
        self._next = 0

    @property
    def size(self) -> int:
        return 2 * SLOT_SIZE * len(self._files)

    def begin_round(self) -> None:
        self._next = 0

    @property
    def is_over(self) -> bool:
        return self._next == len(self._files)

    def next_job(self, size_max: int) -> SlotScrubJob:
        return SlotScrubJob(self._files[self._next])

    def settle(self, job: SlotScrubJob) -> list[Finding]:
        self._next += 1
        if not job.was_damaged:
            return []
        return [Finding("slots", job.slots.path, "a slot did not hold the record", is_mended=True)]
