"""Members lose power: what they had written and not synced is gone when they are back. One of them, and all at once."""

from typing import ClassVar

from fault_runs.our_group import OurGroup
from nemeses.disks.disk_nemesis import STARTING
from nemeses.nemesis import NemesisError
from power_loss.durable_stores import PowerLoss

from faults.nemesis import WHOLE_GROUP, NemesisSpec, TargetKind


class LostPower:
    """Its evidence is what the syncs of its processes had made durable, and which files had held something else: where
    nothing was written and not synced, the loss of power was a kill.
    """

    spec: ClassVar = NemesisSpec(
        name="lost_power",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(1_000, 6_000),
        excludes=STARTING,
        recovery_ms=6_000,
    )

    def __init__(self, group: OurGroup) -> None:
        self._group = group
        self._stores = group.durable_stores()
        self._losses: dict[str, PowerLoss] = {}
        self._down: tuple[str, ...] = ()

    def begin(self, target: str) -> None:
        self._losses, self._down = {}, ()
        members = self._group.members if target == WHOLE_GROUP else (target,)
        pids = {member: pid for member in members if (pid := self._group.pid(member)) is not None}
        if down := [member for member in members if member not in pids]:
            raise NemesisError(f"without a process, and so without power to lose: {', '.join(down)}")
        self._down = tuple(pids)
        for member in pids:
            self._group.kill(member)
        self._losses = {member: self._stores.lose_power(member, pid) for member, pid in pids.items()}

    def evidence(self) -> str | None:
        losses = self._losses.values()
        if not all(loss.replayed.syncs for loss in losses) or not any(
            loss.changed or loss.gone for loss in losses
        ):
            return None
        return ", ".join(
            f"{member} has what {loss.replayed.syncs} syncs made durable: {len(loss.changed)} files held something "
            f"else, {len(loss.gone)} are gone"
            for member, loss in self._losses.items()
        )

    def end(self) -> None:
        for member in self._down:
            self._group.start(member)


class LostPowerOfAll(LostPower):
    spec: ClassVar = NemesisSpec(
        name="lost_power_of_all",
        targets=(TargetKind.GROUP,),
        duration_ms=(1_000, 3_000),
        excludes=STARTING,
        spares_majority=False,
        recovery_ms=6_000,
        outage_ms=None,
    )
