"""What the store asks of those who run it: the broker's shell, or the simulator."""

from collections.abc import Callable
from typing import Protocol

from dledger.log.jobs import DiskJob


class LoopRuntime(Protocol):
    """Time, and the event loop."""

    def clock(self) -> int:
        """ms since the epoch."""
        ...

    def monotonic_us(self) -> int:
        """Since some moment."""
        ...

    def call_soon(self, step: Callable[[], None]) -> None:
        """Calls back when all that this turn of the event loop has read was handed over."""
        ...

    def call_later(self, delay_ms: int, step: Callable[[], None]) -> None: ...


class StoreRuntime(LoopRuntime, Protocol):
    """What the store needs done outside."""

    def submit(self, job: DiskJob) -> None:
        """Runs job.run() in another thread (or later), then calls the store's job_done(job, error, now_ms) here."""
        ...

    def reput_wanted(self) -> None:
        """Something is to be dispatched: call reput_step() soon, but not from within this call."""
        ...
