"""Notes when the machine itself stands still: the disk beside the histories, or the processors.

Where a shared disk takes a second for a sector, no group that syncs to it acknowledges anything meanwhile, and nobody
could tell that from a fault of its own.
"""

import argparse
import asyncio
import os
import threading
import time
from pathlib import Path

from workload.client_process import Client, run_client
from workload.noting import Notes

from faults.history import Standstill

INTERVAL_S = 0.05
NOTED_MS = 200  # a sync takes some milliseconds, tens of them beside others
_SECTOR = bytes(512)


async def watch(client: Client, options: argparse.Namespace) -> None:
    ended = threading.Event()
    async with asyncio.TaskGroup() as tasks:
        for of in (_watch_disk, _watch_processors):
            tasks.create_task(asyncio.to_thread(of, client.notes, options.history, ended))
        await client.ending.wait()
        ended.set()


def _watch_disk(notes: Notes, history: Path, ended: threading.Event) -> None:
    path = history.with_suffix(".sync")
    with path.open("wb", buffering=0) as file:
        while not ended.wait(INTERVAL_S):
            begun_ns = time.monotonic_ns()
            os.pwrite(file.fileno(), _SECTOR, 0)
            os.fdatasync(file.fileno())
            _note_if_long(notes, begun_ns, "disk")
    path.unlink()


def _watch_processors(notes: Notes, history: Path, ended: threading.Event) -> None:
    while True:
        due_ns = time.monotonic_ns() + round(INTERVAL_S * 1e9)
        if ended.wait(INTERVAL_S):
            return
        _note_if_long(notes, due_ns, "processor")


def _note_if_long(notes: Notes, begun_ns: int, of: str) -> None:
    if time.monotonic_ns() - begun_ns >= NOTED_MS * 1_000_000:
        notes.note(Standstill, begun_ns=begun_ns, of=of)


if __name__ == "__main__":
    run_client(watch)
