"""kill -9 of one member. Its page cache outlives it; what it had not written is gone."""

from nemeses.nemesis import Group

from faults.nemesis import NemesisSpec, TargetKind


class Kill:
    spec = NemesisSpec(
        name="kill",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(300, 8_000),
        weight=2.0,
        excludes=frozenset({"kill_all", "pause"}),
        recovery_ms=6_000,  # Python starts, the log is read, the tail is caught up with
        outage_ms=5_000,
    )

    def __init__(self, group: Group) -> None:
        self._group = group
        self._victim: str | None = None
        self._former: int | None = None
        self._next: int | None = None

    def begin(self, target: str) -> None:
        self._victim, self._next = target, None
        self._former = self._group.pid(target)
        self._group.kill(target)

    def evidence(self) -> str | None:
        if self._former is None or self._victim is None:
            return None
        now = self._next or self._group.pid(self._victim)
        if now == self._former:
            return None
        return f"process {self._former} is gone" + (f", {now} is in its place" if now is not None else "")

    def end(self) -> None:
        if self._victim is not None:
            self._group.start(self._victim)
            self._next = self._group.pid(self._victim)
