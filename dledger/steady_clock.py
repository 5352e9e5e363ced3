"""The clock of a process: milliseconds since the epoch that never jump, whoever sets the host's clock meanwhile."""

from collections.abc import Callable

# A process that is moved off its core between two clocks reads them milliseconds apart, and goes on so for its life.
READINGS = 5


def steady_clock(wall_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> Callable[[], int]:
    """The wall clock as it is now, moved on by the monotonic one.

    One clock for elections and for the timestamps in the log: a wall clock that is set elects nobody, and nothing comes
    before its time. The next start of the process takes the wall clock as it is then.
    """

    def reading() -> tuple[int, int]:
        """How long it took, and how far the wall clock is before the monotonic one, both in ns."""
        before = monotonic_ns()
        wall = wall_ns()
        took = monotonic_ns() - before
        return took, wall - before - took // 2

    _, offset = min(reading() for _ in range(READINGS))
    return lambda: (monotonic_ns() + offset) // 1_000_000
