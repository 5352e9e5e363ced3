"""A bit flips in a file of a member while it is down, in one kind of file after the other (file_kinds.py).

The member is killed, its file damaged, and it is started again. Its start meets some damage, a scrub the rest.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import ClassVar

from damaged_files import MemberFiles, flip_bit
from fault_runs.our_group import OurGroup
from nemeses.around_store import listen_address, log_file
from nemeses.disks.disk_nemesis import STARTING
from nemeses.disks.file_kinds import KINDS, OF_THE_LOG, Place
from nemeses.disks.scrub import scrub
from nemeses.nemesis import NemesisError

from faults.nemesis import NemesisSpec, TargetKind
from mq.cluster import ClusterError


@dataclass(frozen=True, slots=True)
class _Hit:
    member: str
    kind: str
    place: Place
    byte: int  # as it was damaged
    log_size: int  # at the start with the damage

    @property
    def is_there(self) -> bool:
        """Whether the damage still is."""
        try:
            with self.place.path.open("rb") as file:
                file.seek(self.place.offset)
                return file.read(1) == bytes([self.byte])
        except FileNotFoundError:
            return False  # something else is in its place by now


class DamagedFile:
    """Its evidence is that the member has named the damage, or that another byte is there by now.

    While entries of one member are damaged no other gets any damage: what both had would be lost.
    """

    spec: ClassVar = NemesisSpec(
        name="damaged_file",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(5_000, 12_000),
        excludes=frozenset({"unreadable_pages", *STARTING}),
        recovery_ms=10_000,
    )

    def __init__(self, group: OurGroup, dice: random.Random | None = None) -> None:
        self._group = group
        self._dice = dice or random.Random(1)
        self._to_come: list[str] = []
        self._hit: _Hit | None = None
        self._is_scrubbed = False

    def begin(self, target: str) -> None:
        if self._hit is not None and self._hit.kind in OF_THE_LOG and self._hit.is_there:
            raise NemesisError(
                f"{self._hit.member} still has the damage that it got last: {self._hit.kind}, {self._hit.place.path}"
            )
        self._hit, self._is_scrubbed = None, False
        self._group.kill(target)
        try:
            self._damage(target)
        finally:
            self._start(target)

    def _start(self, member: str) -> None:
        try:
            self._group.start(member)
        except ClusterError as error:
            # Where another fault has its disk full it has no room to build anew what is damaged.
            raise NemesisError(f"to be started again at the end: {error}") from error
        asyncio.run(scrub(self._group.namesrv, listen_address(self._group, member)))
        self._is_scrubbed = True

    def _damage(self, member: str) -> None:
        kind, place = self._next_place(MemberFiles(self._group.store_dir(member)))
        flip_bit(place.path, place.offset, place.bit)
        with place.path.open("rb") as file:
            file.seek(place.offset)
            byte = file.read(1)[0]
        self._hit = _Hit(member, kind, place, byte, log_file(self._group, member).stat().st_size)

    def _next_place(self, files: MemberFiles) -> tuple[str, Place]:
        """Of the kind that comes next in a drawn order of all, those of the log first, as a short run comes to few. One
        that the member does not have keeps its turn.
        """
        for _ in range(2):
            for kind in self._to_come:
                place = KINDS[kind](files, self._dice)
                if place is not None:
                    self._to_come.remove(kind)
                    return kind, place
            drawn = self._dice.sample(list(KINDS), len(KINDS))
            self._to_come = sorted(drawn, key=lambda kind: kind not in OF_THE_LOG)
        raise NemesisError(f"nothing to damage in {files.directory}")

    def evidence(self) -> str | None:
        hit = self._hit
        if hit is None:
            return None
        with log_file(self._group, hit.member).open("rb") as log:
            log.seek(hit.log_size)
            lines = log.read().decode(errors="replace").splitlines()
        where = f"{hit.member}: {hit.kind}, {hit.place.path.name} at {hit.place.offset}"
        for line in lines:
            if hit.place.said(line):
                return f"{where}: {line}"
        return None if hit.is_there else f"{where}: sound again"

    @property
    def is_repaired(self) -> bool:
        return self._hit is not None and not self._hit.is_there

    def end(self) -> None:
        if self._hit is None:
            return
        if self._is_scrubbed:
            self._group.start(self._hit.member)
        else:
            self._start(self._hit.member)
