"""Which term the newer entries have: one pair per run of equal terms, so any question is a bisection."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from dledger.entry import Index, Term


class TermRuns:
    """Invariant: both lists rise strictly. Entries before the first run are unknown here; the index files know them."""

    def __init__(self, runs: Iterable[tuple[Index, Term]]) -> None:
        self._first_indexes: list[Index] = []
        self._terms: list[Term] = []
        for first_index, term in runs:
            self.add(first_index, term)

    def add(self, first_index: int, term: int) -> None:
        """Entries of this term follow from `first_index` on."""
        if not self._terms or self._terms[-1] != term:
            assert not self._terms or (first_index > self._first_indexes[-1] and term > self._terms[-1])
            self._first_indexes.append(Index(first_index))
            self._terms.append(Term(term))

    def add_all(self, first_index: int, terms: Sequence[int]) -> None:
        self.add(first_index, terms[0])
        if terms[-1] != terms[0]:
            for index, term in enumerate(terms, first_index):
                self.add(index, term)

    def term_at(self, index: int) -> Term | None:
        """None before the first run. The caller knows where the last one ends."""
        number = bisect_right(self._first_indexes, index) - 1
        return self._terms[number] if number >= 0 else None

    def first_other(self, first_index: int, terms: Sequence[int]) -> int | None:
        """Number of the first of these entries that has another term than is known here. Terms never fall."""
        last_known = self.term_at(first_index + len(terms) - 1) if terms else None
        if last_known is None or self.term_at(first_index) == terms[0] == terms[-1] == last_known:
            return None
        return next(
            (
                number
                for number, term in enumerate(terms)
                if self.term_at(first_index + number) not in (None, term)
            ),
            None,
        )

    def first_index_of_run(self, index: int) -> tuple[Index, bool]:
        """First index of the run that holds `index`, as far as it is known here, and whether it may begin before."""
        number = bisect_right(self._first_indexes, index) - 1
        return (self._first_indexes[number] if number >= 0 else Index(index)), number <= 0

    def cut_from(self, index: int) -> None:
        """Forgets entries from `index` on."""
        keep = bisect_left(self._first_indexes, index)
        del self._first_indexes[keep:]
        del self._terms[keep:]
