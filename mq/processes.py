"""Processes and ports of this machine as Linux tells them in /proc: who listens, who lives, is it still ours.

A process is known by its id *and* its start time: ids are used again, and a cluster that signals by a remembered id
alone would one day kill a stranger.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NamedTuple

TCP_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class ProcessId:
    pid: int
    start_ticks: int
    """Clock ticks from boot to the start of the process (field 22 of its stat file)."""


def process_id_of(pid: int) -> ProcessId | None:
    """None when there is no such process, or only its zombie.

    Its first thread is a zombie while others end, which one in a sync does only once the disk has answered; its ports
    and locks are taken until then.
    """
    stat = _stat(pid)
    return (
        None
        if stat is None or (stat.state == "Z" and stat.threads <= 1)
        else ProcessId(pid, stat.start_ticks)
    )


def is_alive(process: ProcessId) -> bool:
    return process_id_of(process.pid) == process


def is_stopped(process: ProcessId) -> bool:
    """Stopped by SIGSTOP: alive, but running nothing."""
    stat = _stat(process.pid)
    return stat is not None and stat.start_ticks == process.start_ticks and stat.state in "Tt"


def send_signal(process: ProcessId, number: signal.Signals) -> bool:
    """False when the process is gone already (or its id belongs to another one now)."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[None]:
    """SIGINT and SIGTERM that come inside take effect at the end of the block.

    For the moment between a process and the note of its id: an interrupt there would leave it to nobody. Handlers and
    not a mask, because a child inherits masks.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python runs signal handlers in the main thread only
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    former = {one: signal.signal(one, note) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)
        for number in came:
            signal.raise_signal(number)


def wait_gone(processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
    """Waits until all have ended; returns those that still live at the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        for process in processes:
            take_exit_code(process.pid)
        left = [process for process in processes if is_alive(process)]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(0.01)


def take_exit_code(pid: int) -> int | None:
    """Of a child of this process that has ended: its status, or minus the signal that ended it. None of all others: a
    stranger's is not ours to take."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None


def command_line(pid: int) -> str:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def listening_ports() -> set[int]:
    """Every TCP port of this machine that someone listens on. Asks the kernel, so no server sees a connection."""
    return {port for _, port in _listeners()}


def port_holder(port: int) -> int | None:
    """The process that listens on a TCP port; None when nobody does or it belongs to another user."""
    wanted = {f"socket:[{inode}]" for inode, listened in _listeners() if listened == port}
    if not wanted:
        return None
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and _holds_any(directory, wanted):
            return int(directory.name)
    return None


def _listeners() -> list[tuple[str, int]]:
    """Inode and port of each listening socket."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue  # a kernel without IPv6 has no tcp6
        rows = [line.split() for line in lines]
        found += [(row[9], int(row[1].rpartition(":")[2], 16)) for row in rows if row[3] == TCP_LISTEN]
    return found


def _holds_any(process: Path, links: set[str]) -> bool:
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            if str(descriptor.readlink()) in links:
                return True
        except OSError:
            continue  # closed since it was listed
    return False


class _Stat(NamedTuple):
    state: str  # a letter, of the first thread
    threads: int
    start_ticks: int


def _stat(pid: int) -> _Stat | None:
    """The command name in front may hold blanks and brackets, so it is cut off."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[17]), int(fields[19]))
