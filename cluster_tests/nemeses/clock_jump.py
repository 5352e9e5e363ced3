"""The wall clock of a member jumps, by a minute to hours, forwards or back, and jumps back.

Members keep their own time, so it impairs nobody, and not a moment without service is excused. What a clock that is
wrong when its member starts does to the log is another matter: whoever starts meanwhile has the right one.
"""

import random
import time
from dataclasses import dataclass
from typing import ClassVar

from fault_runs.our_group import OurGroup
from nemeses.around_store import log_file
from nemeses.nemesis import NemesisError

from faults.nemesis import WHOLE_GROUP, NemesisSpec, TargetKind

MINUTE_MS = 60_000
SHIFT_MS_MAX = 6 * 60 * MINUTE_MS
ASCTIME = "%Y-%m-%d %H:%M:%S"
ASCTIME_LENGTH = len("2000-01-01 00:00:00")


@dataclass(frozen=True, slots=True)
class _Shifted:
    pid: int
    ms: int
    log_size: int  # when it began
    at_s: float


class ClockJump:
    """Its evidence is a line in the log of each target that has another time than the host."""

    # Members write a line every 10 s, at rest too.
    spec: ClassVar = NemesisSpec(
        name="clock_jump",
        targets=(TargetKind.MEMBER, TargetKind.LEADER, TargetKind.GROUP),
        duration_ms=(12_000, 25_000),
        impairs=False,
        spares_majority=False,
        recovery_ms=0,
        outage_ms=0,
    )

    def __init__(self, group: OurGroup, dice: random.Random | None = None) -> None:
        self._group = group
        self._clocks = group.clocks()
        self._dice = dice or random.Random(1)
        self._shifted: dict[str, _Shifted] = {}

    def begin(self, target: str) -> None:
        self._shifted = {}
        for member in self._group.members if target == WHOLE_GROUP else (target,):
            pid = self._group.pid(member)
            if pid is None:
                continue  # it has no clock
            shift_ms = self._dice.choice((1, -1)) * round(
                MINUTE_MS * (SHIFT_MS_MAX / MINUTE_MS) ** self._dice.random()
            )
            log = log_file(self._group, member)
            self._shifted[member] = _Shifted(pid, shift_ms, log.stat().st_size, time.time())
            self._clocks.shift(pid, shift_ms)
        if not self._shifted:
            raise NemesisError(f"{target} does not run: it has no clock")

    def evidence(self) -> str | None:
        lines = {member: self._told(member, shifted) for member, shifted in self._shifted.items()}
        if not lines or None in lines.values():
            return None
        return ", ".join(
            f"{member}: {self._shifted[member].ms / MINUTE_MS:+.1f} min, its log says {line}"
            for member, line in lines.items()
        )

    def end(self) -> None:
        for shifted in self._shifted.values():
            self._clocks.shift(shifted.pid, 0)

    def _told(self, member: str, shifted: _Shifted) -> str | None:
        """The time of the first line that is nearer to the shifted clock than to the host's."""
        with log_file(self._group, member).open("rb") as log:
            log.seek(shifted.log_size)
            lines = log.read().decode(errors="replace").splitlines()
        for line in lines:
            try:
                told_s = time.mktime(time.strptime(line[:ASCTIME_LENGTH], ASCTIME))
            except ValueError:
                continue  # of a stack, or the end of a line that began before
            if abs(told_s - shifted.at_s - shifted.ms / 1000) < abs(told_s - shifted.at_s):
                return line[:ASCTIME_LENGTH]
        return None
