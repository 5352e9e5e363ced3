"""How long the jobs of one kind took: all of them in sum, the newest ones in their spread."""

from typing import Final

# Enough for a 99th percentile, and seconds of a busy disk.
NEWEST: Final = 1024
_QUANTILES: Final = (0.5, 0.99)
_NS_PER_S: Final = 1e9


class JobTimes:
    """One thread adds, another may read at any time: what it reads is some moment's, give or take the newest job."""

    def __init__(self) -> None:
        self.count = 0
        self._sum_ns = 0
        self._newest_ns: list[int] = []

    def add(self, took_ns: int) -> None:
        if self.count < NEWEST:
            self._newest_ns.append(took_ns)
        else:
            self._newest_ns[self.count % NEWEST] = took_ns
        self._sum_ns += took_ns
        self.count += 1

    def figures(self) -> dict[str, float]:
        """Seconds: `sum` and `count` of all jobs; of the newest ones the time within which a share of them was done,
        by that share (no such key before the first job).
        """
        ascending = sorted(self._newest_ns)
        figures = {
            str(share): ascending[min(int(share * len(ascending)), len(ascending) - 1)] / _NS_PER_S
            for share in _QUANTILES
            if ascending
        }
        return figures | {"sum": self._sum_ns / _NS_PER_S, "count": self.count}
