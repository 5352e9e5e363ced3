"""Syncs of a member's log fail: the kernel may have dropped what they were for, so the member ends."""

from typing import ClassVar

from nemeses.disks.disk_nemesis import DISK_NEMESES, STARTING, FatalDiskNemesis
from preloaded.disk_faults import DiskFaults

from faults.nemesis import NemesisSpec, TargetKind


class FailedSyncs(FatalDiskNemesis):
    spec: ClassVar = NemesisSpec(
        name="failed_syncs",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(2_000, 6_000),
        excludes=DISK_NEMESES | STARTING,
        recovery_ms=5_000,
    )
    felt_as = "sync_failed"

    def _impair(self, member: str, disk: DiskFaults) -> None:
        disk.fail_syncs(self.log_directory(member))
