"""Pages of a member's log cannot be read until they are written anew.

Nobody may ever read there but the scrub: it names the damage, and has it repaired from a peer. So they lie where it
comes by next, which in a log of gigabytes is not its begin; nor near its end, for what a member has appended last lies
in its memory, which the scrub leaves out.
"""

import asyncio
import random
from typing import ClassVar

from fault_runs.our_group import OurGroup
from nemeses.around_store import listen_address
from nemeses.disks.disk_nemesis import DISK_NEMESES, DiskNemesis
from nemeses.disks.scrub import scrub
from nemeses.nemesis import NemesisError
from preloaded.disk_faults import DiskFaults

from faults.nemesis import NemesisSpec, TargetKind

PAGE = 4096
PAGES = 8
# Of the scrub, and by up to as much again: a part of a second, at the rate of fault runs.
_AHEAD = 8 << 20


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
        file_size = files[0].stat().st_size
        # The last is made ahead, the one before it may be half full.
        begin = self._ahead_of_scrub(member, max(0, len(files) - 2) * file_size)
        pages = min(_AHEAD, file_size) // PAGE
        number, offset = divmod(begin + self._dice.randrange(max(1, pages - PAGES)) * PAGE, file_size)
        disk.fail_reads(files[number], offset - offset % PAGE, PAGES * PAGE)

    def _ahead_of_scrub(self, member: str, full_size: int) -> int:
        """Where it comes by soon, within the `full_size` bytes of the files that are full. A round reads the log twice:
        for its own sake, and to hold what is derived from it against it. It reads units beside, so it is not as far as
        its bytes say.
        """
        place = self._group.scrub_read_size(member) % full_size if full_size else 0
        return place + _AHEAD if place + 2 * _AHEAD < full_size else 0
