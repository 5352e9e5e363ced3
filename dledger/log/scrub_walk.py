"""What a scrub reads, one kind of file after the other: each is a walk, whose steps are jobs."""

from typing import Any, Protocol

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """Something on disk is not what was written there."""

    kind: str  # of file, one word
    where: str
    reason: str
    is_mended: bool  # by this member alone, with what it knows


class ScrubJob(Protocol):
    """A DiskJob."""

    size: int  # bytes read, once it has run

    @property
    def kind(self) -> str: ...
    @property
    def writes(self) -> bool:
        """It mends what it finds, so that a failure of it is final, as one of a sync is."""
        ...

    def run(self) -> None: ...


class ScrubWalk(Protocol):
    """Called in the replica's thread; only the jobs run elsewhere, one at a time."""

    @property
    def size(self) -> int:
        """Bytes that a round reads, about."""
        ...

    def begin_round(self) -> None: ...

    @property
    def is_over(self) -> bool:
        """Nothing is left to be read in this round."""
        ...

    def next_job(self, size_max: int) -> ScrubJob | None:
        """Reads about `size_max` bytes. None: what it would read is being changed, so ask again soon."""
        ...

    def settle(self, job: Any) -> list[Finding]:
        """Of a job that has run without error."""
        ...
