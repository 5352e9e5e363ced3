"""When the scrub reads what: one walk after the other, round after round, slower than a byte rate.

A member reads all it has again and again, so that damage is found, and repaired, before a reader needs the bytes and
before a second member loses the same ones. One job is under way at a time, in a thread of its own. Where a round stands
is not kept over a restart: a new one begins soon.
"""

import logging
from collections.abc import Callable, Sequence

import msgspec

from dledger.figures import Figures
from dledger.log.jobs import DiskJob
from dledger.log.scrub_walk import Finding, ScrubJob, ScrubWalk

log = logging.getLogger(__name__)

# Some milliseconds of a thread's work: what stands behind the interpreter's lock meanwhile waits no longer.
_STEP_SIZE = 256 * 1024
_RETRY_MS = 1000
DEFAULT_BYTES_PER_SECOND = 4 * 1024 * 1024  # a terabyte in three days
DEFAULT_PAUSE_MS = 60 * 60 * 1000
# A member that has just come up has other work; one that is restarted daily must come to its rounds.
_FIRST_ROUND_MS = 60_000


class ScrubRound(msgspec.Struct):
    """Times in ms of the replica's clock."""

    began_ms: int
    ended_ms: int | None = None
    bytes_read: int = 0
    faults: int = 0
    mended: int = 0


class ScrubStatus(msgspec.Struct, frozen=True):
    """Since the start. `round`: the one under way."""

    bytes_per_second: int  # 0: reads only when it is told to
    pause_ms: int
    size: int  # bytes that a round reads, about
    rounds: int  # complete ones
    bytes_read: int
    faults: int
    mended: int
    round: ScrubRound | None
    last_round: ScrubRound | None


class Scrubber:
    """Invariant: a walk's job that is under way is settled before the walk is asked for another."""

    def __init__(
        self,
        name: str,
        walks: Sequence[ScrubWalk],
        submit: Callable[[DiskJob], None],
        *,
        bytes_per_second: int,
        pause_ms: int,
        now_ms: int,
    ) -> None:
        """`bytes_per_second` 0: it reads only when it is told to."""
        self._name = name
        self._walks = list(walks)
        self._submit = submit
        self._bytes_per_second = bytes_per_second or DEFAULT_BYTES_PER_SECOND
        self._pause_ms = pause_ms if bytes_per_second else None
        self._next_ms = now_ms + min(pause_ms, _FIRST_ROUND_MS)  # of the next step
        self._round: ScrubRound | None = None
        self._last_round: ScrubRound | None = None
        self._walk_number = 0
        self._job: ScrubJob | None = None
        self._is_stopped = False
        self.rounds = 0  # complete ones
        self.bytes_read = 0
        self.faults = 0
        self.mended = 0

    def add(self, walk: ScrubWalk) -> None:
        """From the next round on, behind those that are there."""
        self._walks.append(walk)

    @property
    def due_ms(self) -> int | None:
        """When the next step may begin; None where it waits to be told."""
        return None if self._round is None and self._pause_ms is None else self._next_ms

    @property
    def idle(self) -> bool:
        return self._job is None

    def stop(self) -> None:
        """Begins nothing more."""
        self._is_stopped = True

    def start_round(self, now_ms: int) -> bool:
        """Now. False: one is under way already, and goes on."""
        if self._round is not None or self._is_stopped:
            return False
        self._begin_round(now_ms)
        return True

    def tick(self, now_ms: int) -> None:
        if self._job is not None or self._is_stopped or now_ms < self._next_ms:
            return
        if self._round is None:
            if self._pause_ms is None:
                return
            self._begin_round(now_ms)
        while self._walk_number < len(self._walks):
            walk = self._walks[self._walk_number]
            if not walk.is_over:
                self._job = walk.next_job(_STEP_SIZE)
                if self._job is not None:
                    self._submit(self._job)
                return
            self._walk_number += 1
        self._end_round(now_ms)

    def job_done(self, job: DiskJob, error: Exception | None, now_ms: int) -> str | None:
        """Returns why the member must not go on, if it must not. Raises an error that is none
        of a disk's, and DiskError where a walk could not mend.
        """
        mine, self._job = self._job, None
        assert mine is not None, "a job is under way"
        if error is not None:
            if not isinstance(error, OSError):
                raise error
            if mine.writes:
                return f"scrub job: {error!r}"
            log.warning("%s scrub step failed, will be tried again error=%s", self._name, error)
            self._next_ms = now_ms + _RETRY_MS
            return None
        self._next_ms = now_ms + mine.size * 1000 // self._bytes_per_second
        self.bytes_read += mine.size
        assert self._round is not None
        self._round.bytes_read += mine.size
        for finding in self._walks[self._walk_number].settle(job):
            self._note(finding, self._round)
        return None

    def status(self) -> ScrubStatus:
        return ScrubStatus(
            bytes_per_second=self._bytes_per_second if self._pause_ms is not None else 0,
            pause_ms=self._pause_ms or 0,
            size=sum(walk.size for walk in self._walks),
            rounds=self.rounds,
            bytes_read=self.bytes_read,
            faults=self.faults,
            mended=self.mended,
            round=self._round,
            last_round=self._last_round,
        )

    def figures(self) -> Figures:
        return {
            "scrub_rounds_total": self.rounds,
            "scrub_read_bytes_total": self.bytes_read,
            "scrub_round_read_bytes": self._round.bytes_read if self._round is not None else 0,
            "scrub_faults_total": self.faults,
            "scrub_mended_total": self.mended,
        }

    def _begin_round(self, now_ms: int) -> None:
        self._round = ScrubRound(now_ms)
        self._walk_number = 0
        self._next_ms = now_ms
        for walk in self._walks:
            walk.begin_round()

    def _end_round(self, now_ms: int) -> None:
        ended = self._round
        assert ended is not None
        ended.ended_ms = now_ms
        self._round, self._last_round = None, ended
        self.rounds += 1
        self._next_ms = now_ms + (self._pause_ms or 0)
        log.info(
            "%s scrub round done bytes=%d faults=%d mended=%d took_ms=%d",
            self._name, ended.bytes_read, ended.faults, ended.mended, now_ms - ended.began_ms,
        )  # fmt: skip

    def _note(self, finding: Finding, this_round: ScrubRound) -> None:
        self.faults += 1
        this_round.faults += 1
        if finding.is_mended:
            self.mended += 1
            this_round.mended += 1
        log.log(
            logging.WARNING if finding.is_mended else logging.ERROR,
            "%s scrub found damage file=%s where=%s mended=%s reason=%s",
            self._name, finding.kind, finding.where, finding.is_mended, finding.reason,
        )  # fmt: skip
