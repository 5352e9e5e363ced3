"""Seeds run in several processes, and their results come in the order of the seeds."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from multiprocessing.pool import AsyncResult

from simulator.run import Result

# So many seeds of each process are given out ahead: a long one does not keep the others waiting at once.
_AHEAD = 8


def _begin_worker() -> None:
    # An interrupt from the terminal goes to all processes; the one that counts alone heeds it, and ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def results_of(
    run: Callable[[int], Result], seeds: Iterable[int], jobs: int
) -> Generator[Result, None, None]:
    """`seeds` may be endless: no more are taken than are under way. Closing the iterator ends the processes."""
    if jobs == 1:
        yield from map(run, seeds)
        return
    remaining = iter(seeds)
    under_way: deque[AsyncResult[Result]] = deque()
    with multiprocessing.Pool(jobs, _begin_worker) as pool:
        while True:
            while len(under_way) < jobs * _AHEAD and (seed := next(remaining, None)) is not None:
                under_way.append(pool.apply_async(run, (seed,)))
            if not under_way:
                return
            yield under_way.popleft().get()
