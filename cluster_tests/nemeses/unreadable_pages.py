"""Pages of an old data file of a member cannot be read until they are written anew.

Nobody may ever read there, so the scrub is asked to: it names the damage, and has it repaired from a peer. What a
member has appended last lies in its memory, which the scrub leaves out: the older the file, the surer it is read.
"""

import asyncio
import random
from typing import ClassVar

from disk_faults import DiskFaults
from nemeses.around_store import listen_address
from nemeses.disk_nemesis import DISK_NEMESES, DiskNemesis
from nemeses.nemesis import NemesisError
from nemeses.scrub import scrub
from our_group import OurGroup

from faults.nemesis import NemesisSpec, TargetKind

PAGE = 4096
PAGES = 8


class UnreadablePages(DiskNemesis):
    # The same page of two members is damage that nobody can repair, so no second member before the first is whole.
    spec: ClassVar = NemesisSpec(
        name="unreadable_pages",
        targets=(TargetKind.MEMBER,),
        duration_ms=(5_000, 12_000),
        excludes=DISK_NEMESES | {"damaged_file"},
        recovery_ms=10_000,
    )
    felt_as = "read_failed"

    def __init__(self, group: OurGroup, dice: random.Random | None = None) -> None:
        super().__init__(group)
        self._dice = dice or random.Random(1)

    def begin(self, target: str) -> None:
        super().begin(target)
        asyncio.run(scrub(self._group.namesrv, listen_address(self._group, target)))

    def _impair(self, member: str, disk: DiskFaults) -> None:
        files = sorted(self._group.store_dir(member).glob("dledger-*/data/*"))
        if not files:
            raise NemesisError(f"{member} has no data file")
        first = files[0]
        pages = first.stat().st_size // PAGE
        disk.fail_reads(first, self._dice.randrange(max(1, pages - PAGES)) * PAGE, PAGES * PAGE)
