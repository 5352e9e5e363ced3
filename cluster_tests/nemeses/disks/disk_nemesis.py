"""What nemeses have in common that break a member's disk by the preloaded library of disk_faults.py."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Final

from fault_runs.our_group import OurGroup
from local_cluster import wait_for
from nemeses.nemesis import NemesisError
from preloaded.disk_faults import DiskFaults

from faults.nemesis import WHOLE_GROUP, NemesisSpec

# All that a disk suffers from is lifted at once, and counted from the first of it on: so one at a time.
DISK_NEMESES: Final = frozenset(
    {
        "failed_syncs",
        "slow_syncs",
        "hung_syncs",
        "failed_writes",
        "full_disk",
        "full_disks",
        "unreadable_pages",
    }
)
# A member that one of them has ended must not be started by another one's end: its disk, its files are not ready.
STARTING: Final = frozenset(
    {"kill", "kill_all", "failed_syncs", "failed_writes", "damaged_file", "lost_power", "lost_power_of_all"}
)
END_TIMEOUT_S: Final = 30.0


class DiskNemesis(ABC):
    """Its evidence is that the disks of all its targets have counted calls that felt it."""

    spec: NemesisSpec
    felt_as: ClassVar[str]  # a kind of disk_faults.py

    def __init__(self, group: OurGroup) -> None:
        self._group = group
        self._disks = group.disks()
        self._targets: tuple[str, ...] = ()

    def begin(self, target: str) -> None:
        self._targets = self._group.members if target == WHOLE_GROUP else (target,)
        for member in self._targets:
            self._impair(member, self._disks[member])

    @abstractmethod
    def _impair(self, member: str, disk: DiskFaults) -> None: ...

    def evidence(self) -> str | None:
        felt = {member: self._disks[member].counts()[self.felt_as] for member in self._targets}
        if not felt or not all(felt.values()):
            return None
        return ", ".join(f"{member}: {count} calls {self.felt_as}" for member, count in felt.items())

    def end(self) -> None:
        for member in self._targets:
            self._disks[member].lift()


class FatalDiskNemesis(DiskNemesis):
    """What a member does not outlive: it ends by itself, and is started again when its disk is whole.

    Of the log alone: what is derived from it, and exports, may fail and be done again.
    """

    def log_directory(self, member: str) -> Path:
        """Raises NemesisError."""
        for directory in self._group.store_dir(member).glob("dledger-*"):
            return directory
        raise NemesisError(f"{member} has no log yet")

    def begin(self, target: str) -> None:
        self._process = self._group.pid(target)
        super().begin(target)

    def evidence(self) -> str | None:
        felt = super().evidence()
        (member,) = self._targets or ("",)
        if felt is None or self._lives(member):
            return None
        return f"{felt}, and its process {self._process} has ended"

    def end(self) -> None:
        super().end()
        for member in self._targets:
            if self._disks[member].counts()[self.felt_as]:
                self._wait_ended(member)
            self._group.start(member)

    def _lives(self, member: str) -> bool:
        """Not one that took its place."""
        return self._process is not None and self._group.pid(member) == self._process

    def _wait_ended(self, member: str) -> None:
        what = f"the end of {member} (process {self._process}), whose disk failed it"
        try:
            wait_for(lambda: not self._lives(member), END_TIMEOUT_S, what)
        except AssertionError as error:
            raise NemesisError(str(error)) from error
