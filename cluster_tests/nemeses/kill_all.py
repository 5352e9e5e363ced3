"""kill -9 of all members at once: nobody is left who knows what was under way."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from nemeses.nemesis import Group, NemesisError

from faults.nemesis import NemesisSpec, TargetKind


class KillAll:
    spec = NemesisSpec(
        name="kill_all",
        targets=(TargetKind.GROUP,),
        duration_ms=(200, 3_000),
        weight=0.5,
        excludes=frozenset({"kill", "pause"}),
        spares_majority=False,
        recovery_ms=10_000,  # three times Python at once, an election, the tails
        outage_ms=None,
    )

    def __init__(self, group: Group) -> None:
        self._group = group
        self._former: dict[str, int] = {}
        self._next: dict[str, int | None] = {}

    def begin(self, target: str) -> None:
        self._former, self._next = {}, {}
        pids = {member: self._group.pid(member) for member in self._group.members}
        if down := [member for member, pid in pids.items() if pid is None]:
            raise NemesisError(f"{', '.join(down)} do not run: not all members would end at once")
        self._former = {member: pid for member, pid in pids.items() if pid is not None}
        self._of_all(self._group.kill)

    def evidence(self) -> str | None:
        now = self._next or {member: self._group.pid(member) for member in self._former}
        if not self._former or any(pid == now[member] for member, pid in self._former.items()):
            return None
        gone = ", ".join(map(str, self._former.values()))
        follow = ", ".join(str(pid) for pid in now.values() if pid)
        return f"processes {gone} are gone" + (f", {follow} are in their places" if follow else "")

    def end(self) -> None:
        if self._former:
            self._of_all(self._group.start)
            self._next = {member: self._group.pid(member) for member in self._former}

    def _of_all(self, act: Callable[[str], None]) -> None:
        with ThreadPoolExecutor(len(self._group.members)) as pool:
            list(pool.map(act, self._group.members))
