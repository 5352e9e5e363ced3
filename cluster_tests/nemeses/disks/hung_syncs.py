"""No sync of a member comes back; then all of them do."""

from typing import ClassVar

from nemeses.disks.disk_nemesis import DISK_NEMESES, DiskNemesis
from preloaded.disk_faults import DiskFaults

from faults.nemesis import NemesisSpec, TargetKind


class HungSyncs(DiskNemesis):
    # A leader gives way when a sync has hung for so long as its conf says (pyDLedgerStalledSyncMs, 5 s).
    spec: ClassVar = NemesisSpec(
        name="hung_syncs",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(3_000, 10_000),
        excludes=DISK_NEMESES,
        recovery_ms=5_000,
        outage_ms=8_000,
    )
    felt_as = "sync_hung"

    def _impair(self, member: str, disk: DiskFaults) -> None:
        disk.hang_syncs()
