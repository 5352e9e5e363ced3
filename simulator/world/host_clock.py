"""The two clocks of a simulated host: the wall clock, which may be set, and the monotonic one, which cannot."""

from simulator.world.event_loop import EventLoop

# Virtual time 0 as clocks have it that go right.
EPOCH_MS = 1_700_000_000_000


class HostClock:
    """Invariant: the monotonic clock never goes faster than virtual time, and never back."""

    __slots__ = ("_jumped_ms", "_loop", "_skew_ms", "suspended_us")

    def __init__(self, loop: EventLoop, skew_ms: int) -> None:
        """`skew_ms`: by which the wall clock is wrong although it is well kept."""
        self._loop = loop
        self._skew_ms = skew_ms
        self._jumped_ms = 0
        self.suspended_us = 0  # in which the whole host stood still, and with it the monotonic clock

    def wall_ns(self) -> int:
        return (EPOCH_MS + self._skew_ms + self._jumped_ms) * 1_000_000 + self._loop.now_us * 1_000

    def monotonic_ns(self) -> int:
        return (self._loop.now_us - self.suspended_us) * 1_000

    def jump(self, ms: int) -> None:
        """Somebody sets the wall clock."""
        self._jumped_ms += ms

    def set_right(self) -> None:
        """It is well kept again."""
        self._jumped_ms = 0
