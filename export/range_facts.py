"""What a manifest says of the entries of its range, gathered as they are read."""

from __future__ import annotations

from export.manifest import TermBegin
from verify.log.entry_scan import Run
from verify.log.log_part import digest_sum
from verify.log.log_walk import LogPlace, place_after


class RangeFacts:
    """Takes runs in their order. `place` is where the range ends so far."""

    def __init__(self, begin: LogPlace) -> None:
        self.place = begin
        self._terms: list[TermBegin] = []
        self._digest = 0

    def take(self, run: Run) -> None:
        for index, term in enumerate(run.terms, run.first_index):
            if not self._terms or self._terms[-1].term != term:
                self._terms.append(TermBegin(term, index))
        self._digest = digest_sum(run, self._digest)
        self.place = place_after(run)

    @property
    def terms(self) -> tuple[TermBegin, ...]:
        return tuple(self._terms)

    @property
    def digest(self) -> str:
        """In hex."""
        return f"{self._digest:032x}"
