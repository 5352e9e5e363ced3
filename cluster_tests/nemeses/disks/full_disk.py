"""Disks are full: what has no block yet gets none. A member's, then those of all members at once."""

from typing import ClassVar

from nemeses.disks.disk_nemesis import DISK_NEMESES, DiskNemesis
from preloaded.disk_faults import DiskFaults

from faults.nemesis import NemesisSpec, TargetKind


class FullDisk(DiskNemesis):
    spec: ClassVar = NemesisSpec(
        name="full_disk",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(3_000, 10_000),
        excludes=DISK_NEMESES,
        recovery_ms=5_000,
    )
    felt_as = "no_space"

    def _impair(self, member: str, disk: DiskFaults) -> None:
        disk.no_space()


class FullDisks(FullDisk):
    """Sends are refused while it lasts."""

    spec: ClassVar = NemesisSpec(
        name="full_disks",
        targets=(TargetKind.GROUP,),
        duration_ms=(3_000, 10_000),
        excludes=DISK_NEMESES,
        spares_majority=False,
        recovery_ms=5_000,
        outage_ms=None,
    )
