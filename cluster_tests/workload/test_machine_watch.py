"""The process that notes when the machine stands still, which here is made to by a signal."""

import os
import signal
import time
from pathlib import Path

from local_cluster import wait_for
from workload.client_process import ClientProcess
from workload.machine_watch import NOTED_MS

from faults.history import Standstill, read_records

PATIENCE_S = 60


def test_a_standstill_is_noted_with_its_begin(tmp_path: Path) -> None:
    history, long_ns = tmp_path / "machine.jsonl", 3 * NOTED_MS * 1_000_000

    def is_noted(begun_ns: int) -> bool:
        """The machine may have stood still by itself as well."""
        return any(
            one.at_ns - begun_ns >= long_ns and one.at_ns - one.begun_ns >= NOTED_MS * 1_000_000
            for one in read_records(history)
            if isinstance(one, Standstill)
        )

    def is_noted_once_stopped() -> bool:
        """One that comes before both threads look, or between the looks of the one, is none to them."""
        begun_ns = time.monotonic_ns()
        os.kill(watch.pid, signal.SIGSTOP)
        wait_for(lambda: time.monotonic_ns() - begun_ns >= long_ns, PATIENCE_S, "a standstill of that length")
        os.kill(watch.pid, signal.SIGCONT)
        try:
            wait_for(lambda: is_noted(begun_ns), 2, "its note")
        except AssertionError:
            return False
        return True

    watch = ClientProcess("machine_watch", "127.0.0.1:1", history)
    try:
        wait_for((tmp_path / "machine.sync").exists, PATIENCE_S, "the first sync")
        wait_for(is_noted_once_stopped, PATIENCE_S, "a standstill that is noted")
    finally:
        trouble = watch.end(PATIENCE_S)
    assert trouble is None
    assert not (tmp_path / "machine.sync").exists()
