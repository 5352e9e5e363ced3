"""Each sync of a member takes so much longer."""

from typing import ClassVar

from nemeses.disks.disk_nemesis import DISK_NEMESES, DiskNemesis
from preloaded.disk_faults import DiskFaults

from faults.nemesis import NemesisSpec, TargetKind

DELAY_MS = 300


class SlowSyncs(DiskNemesis):
    spec: ClassVar = NemesisSpec(
        name="slow_syncs",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(3_000, 10_000),
        excludes=DISK_NEMESES,
    )
    felt_as = "sync_delayed"

    def _impair(self, member: str, disk: DiskFaults) -> None:
        disk.delay_syncs(DELAY_MS)
