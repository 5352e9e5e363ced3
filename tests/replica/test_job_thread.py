"""Jobs in a thread of their own: order, errors, the end."""

import subprocess
import sys
import threading
from collections.abc import Callable

from dledger.job_thread import JobThread
from dledger.log.jobs import DiskJob


class Job:
    kind = "job"

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run


def nothing() -> None:
    pass


def test_jobs_run_in_their_order_in_another_thread_and_all_before_close_returns() -> None:
    threads: list[int] = []
    told: list[tuple[DiskJob, Exception | None]] = []
    thread = JobThread("jobs", lambda job, error: told.append((job, error)))
    jobs = [Job(lambda: threads.append(threading.get_ident())) for _ in range(20)]
    for job in jobs:
        thread.submit(job)
    thread.close()
    assert told == [(job, None) for job in jobs]
    assert set(threads).isdisjoint({threading.get_ident()})
    assert len(set(threads)) == 1


def test_what_a_job_raises_is_told_and_the_next_one_runs() -> None:
    told: list[tuple[DiskJob, Exception | None]] = []
    error = OSError("disk")

    def fail() -> None:
        raise error

    failing, sound = Job(fail), Job(nothing)
    thread = JobThread("jobs", lambda job, error: told.append((job, error)))
    thread.submit(failing)
    thread.submit(sound)
    thread.close()
    assert told == [(failing, error), (sound, None)]


def test_without_a_job_there_is_no_thread() -> None:
    before = threading.active_count()
    JobThread("jobs", lambda job, error: None).close()
    assert threading.active_count() == before


def test_a_process_that_fails_without_close_ends_although_a_job_hangs() -> None:
    code = """
import threading
from dledger.job_thread import JobThread

class Hanging:
    kind = "sync"

    def run(self):
        begun.set()
        threading.Event().wait()

begun = threading.Event()
JobThread("jobs", print).submit(Hanging())
begun.wait()
raise SystemExit(7)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=30, check=False)
    assert done.returncode == 7
