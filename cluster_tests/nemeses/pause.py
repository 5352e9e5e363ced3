"""A member stands still: SIGSTOP, later SIGCONT. Its connections stay open, and it believes that no time has passed."""

import contextlib
import os
import signal
from pathlib import Path

from nemeses.nemesis import Group, NemesisError

from faults.nemesis import NemesisSpec, TargetKind

_STATE, _USER_TICKS, _SYSTEM_TICKS = 0, 11, 12  # fields of /proc/<pid>/stat behind the name


class Pause:
    spec = NemesisSpec(
        name="pause",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(500, 10_000),
        weight=2.0,
        excludes=frozenset({"kill", "kill_all"}),
        recovery_ms=3_000,
        outage_ms=5_000,
    )

    def __init__(self, group: Group) -> None:
        self._group = group
        self._pid: int | None = None
        self._ticks: int | None = None  # of CPU time, when it was first seen stopped
        self._looks = 0

    def begin(self, target: str) -> None:
        self._ticks, self._looks, self._pid = None, 0, self._group.pid(target)
        if self._pid is None:
            raise NemesisError(f"{target} does not run")
        os.kill(self._pid, signal.SIGSTOP)

    def evidence(self) -> str | None:
        """Stopped, and without any CPU time between two looks: so it answers nobody."""
        fields = _stat(self._pid)
        if fields is not None and fields[_STATE] in "Tt":
            ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
            if ticks != self._ticks:
                self._ticks, self._looks = ticks, 0
            self._looks += 1
        if self._looks < 2:
            return None
        return f"process {self._pid} is stopped, its CPU time stands at {self._ticks} ticks"

    def end(self) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGCONT)


def _stat(pid: int | None) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
