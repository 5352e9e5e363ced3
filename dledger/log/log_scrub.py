"""The walk of the scrub over a ledger, from its begin to the synced mark: which step comes next, and what became of it.

A fault counts when a second reading finds the same. A file that has been deleted meanwhile, or a cut, is none.
"""

import logging

from dledger.entry import INDEX_UNIT_SIZE, Index
from dledger.errors import FaultyEntryError
from dledger.log.errors import LedgerError
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.scrub_job import BlankFault, EntriesFault, LogFault, LogScrubJob, Place, UnitsFault
from dledger.log.scrub_walk import Finding
from dledger.log.scrubbed_log import ScrubbedLog, ScrubBounds

log = logging.getLogger(__name__)


class LogScrub:
    """Fulfils ScrubWalk. Invariant: all up to `_place` has been read in this round, or was reported."""

    def __init__(self, log: ScrubbedLog) -> None:
        self._log = log
        self._suspect: list[LogFault] | str | None = None  # what the last reading found, not confirmed yet
        self.begin_round()

    @property
    def size(self) -> int:
        bounds = self._log.scrub_bounds()
        units = (bounds.last_index - bounds.begin.index) * INDEX_UNIT_SIZE
        return max(0, bounds.end_pos - bounds.begin.end_pos) + units

    def begin_round(self) -> None:
        bounds = self._log.scrub_bounds()
        self._place = bounds.begin
        self._last_index = bounds.last_index
        self._log_generation = bounds.log_generation
        self._suspect = None

    @property
    def is_over(self) -> bool:
        bounds = self._log.scrub_bounds()
        return max(self._place.index, bounds.begin.index) >= min(self._last_index, bounds.last_index)

    def next_job(self, size_max: int) -> LogScrubJob | None:
        log, bounds = self._log, self._log.scrub_bounds()
        if log.is_cutting:
            return None
        if self._place.is_before(bounds.begin):
            self._place, self._suspect = bounds.begin, None
        if self._log_generation != bounds.log_generation:
            self._log_generation = bounds.log_generation
            if not self._is_of_log(self._place, bounds):
                self._last_index = Index(-1)  # other entries came behind the cut: they have the next round
                return None
        last_index, end_pos, end_chain = bounds.last_index, bounds.end_pos, bounds.end_chain
        return LogScrubJob(
            log.disk,
            log.config,
            self._place,
            last_index,
            end_pos,
            end_chain,
            size_max=size_max,
            log_generation=log.log_generation,
        )

    def _is_of_log(self, place: Place, bounds: ScrubBounds) -> bool:
        """Whether no cut has taken the entry behind which the walk would go on."""
        if place.index == bounds.begin.index:
            return True
        try:
            return place.chain is not None and self._log.chain_at(place.index) == place.chain
        except (FaultyEntryError, LedgerError):
            return False

    def settle(self, job: LogScrubJob) -> list[Finding]:
        bounds = self._log.scrub_bounds()
        if job.log_generation != bounds.log_generation or job.start.is_before(bounds.begin):
            return []
        suspect = job.missing or job.faults
        if suspect and suspect != self._suspect:
            self._suspect = suspect
            return []
        self._suspect = None
        if job.missing is not None:
            try:
                if self._log.remake_index_file(job.missing):
                    return [Finding("index", job.missing, "the file is gone", is_mended=True)]
            except OSError as error:  # of the directory as well, which may be gone with it
                log.warning("a file that is gone could not be made anew path=%s: %s", job.missing, error)
            # Where it would go on no unit and no entry says. The next start finds the member damaged.
            self._place = Place(bounds.last_index, job.place.term, bounds.end_pos, None, is_proven=False)
            return [Finding("log", job.missing, "the file is gone", is_mended=False)]
        self._place = job.place
        return [finding for fault in job.faults if (finding := self._told(fault)) is not None]

    def _told(self, fault: LogFault) -> Finding | None:
        """The log looks at it itself: what follows from sound entries is right then, and the rest is noted. None where
        another finding covers it.
        """
        log = self._log
        match fault:
            case EntriesFault(first_index, last_index, pos, next_pos, reason):
                where = f"entries {first_index}..{last_index} pos={pos}"
                if not self._is_known(first_index, last_index):
                    log.fault_found(first_index - 1, last_index)
                    is_found = log.faulty.first_within(first_index, last_index) is not None
                    # Else units told it that are right by now, or entries in front that are the damage themselves.
                    is_there = (
                        log.first_index_at(pos) == first_index
                        and log.first_index_at(next_pos) == last_index + 1
                    )
                    if pos >= 0 and next_pos >= 0 and is_there and not is_found:
                        log.note_damage(FaultyRange(first_index, last_index, pos, next_pos))
                return Finding("log", where, reason, is_mended=False)
            case UnitsFault(first_index, last_index):
                log.fault_found(first_index - 1, last_index)
                where = f"units {first_index}..{last_index}"
                is_mended = log.faulty.first_within(first_index, last_index) is None
                return Finding("index", where, "they disagree with the entries", is_mended=is_mended)
            case BlankFault(last_index, pos, size):
                log.fault_found(last_index, last_index + 1)
                if log.faulty_at(pos):
                    return None  # the header in front is damaged as well: it is a part of that range
                return Finding("log", f"blank pos={pos} size={size}", "it is not exact", is_mended=True)

    def _is_known(self, first_index: Index, last_index: Index) -> bool:
        known = self._log.faulty.first_within(first_index, last_index)
        return known is not None and known.first_index <= first_index and known.last_index >= last_index
