"""One thread that runs blocking jobs in the order they come, and tells what became of each.

Not a ThreadPoolExecutor: its future, locks and conditions cost more than a small sync does, for a result that nobody
awaits.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from time import perf_counter_ns

from dledger.job_times import JobTimes
from dledger.log.jobs import DiskJob

OnJobRun = Callable[[DiskJob, Exception | None], None]


class JobThread:
    """Invariant: `on_run` is called once for each job, in the order of submit(), in the thread.

    The thread starts with the first job. Without close() it holds up nothing: a process that fails where nobody
    expected it must end, also while its disk hangs.
    """

    def __init__(self, name: str, on_run: OnJobRun) -> None:
        self.times = JobTimes()  # of the jobs that have run, failed ones included
        self._name = name
        self._on_run = on_run
        self._queue: SimpleQueue[DiskJob | None] = SimpleQueue()
        self._thread: Thread | None = None

    def submit(self, job: DiskJob) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(job)

    def close(self) -> None:
        """Blocks until all jobs have run. No submit() after this."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        get, on_run, times = self._queue.get, self._on_run, self.times
        while (job := get()) is not None:
            error: Exception | None = None
            begun_ns = perf_counter_ns()
            try:
                job.run()
            except Exception as failure:  # noqa: BLE001 (the top of a thread; who made the job decides what it means)
                error = failure
            times.add(perf_counter_ns() - begun_ns)
            on_run(job, error)
            # A job holds files, which is not to last until the next one comes.
            del job
