"""What the store asks of those who run it: the broker's shell, or the simulator."""

from typing import Protocol

from dledger.log.jobs import DiskJob


class StoreRuntime(Protocol):
    """What the store needs done outside."""

    def submit(self, job: DiskJob) -> None:
        """Runs job.run() in another thread (or later), then calls the store's job_done(job, error, now_ms) here."""
        ...

    def reput_wanted(self) -> None:
        """Something is to be dispatched: call reput_step() soon, but not from within this call."""
        ...
