"""Writes of a member's log fail with EIO: it ends."""

from typing import ClassVar

from nemeses.disks.disk_nemesis import DISK_NEMESES, STARTING, FatalDiskNemesis
from preloaded.disk_faults import DiskFaults

from faults.nemesis import NemesisSpec, TargetKind


class FailedWrites(FatalDiskNemesis):
    spec: ClassVar = NemesisSpec(
        name="failed_writes",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(2_000, 6_000),
        excludes=DISK_NEMESES | STARTING,
        recovery_ms=5_000,
    )
    felt_as = "write_failed"

    def _impair(self, member: str, disk: DiskFaults) -> None:
        disk.fail_writes(self.log_directory(member))
