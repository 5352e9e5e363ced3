"""What a schedule of faults has to know of a nemesis, and one firing of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

WHOLE_GROUP: Final = "group"
LEADER: Final = "leader"
OUTAGE_MS: Final = 5_000  # until another leads and serves


class TargetKind(StrEnum):
    MEMBER = "member"  # one of them, by its id
    LEADER = "leader"  # whoever leads when the fault begins
    LINK = "link"  # one direction between two members: "n0->n1"
    GROUP = "group"  # all members at once
    OUTSIDE = "outside"  # a NameServer, a client: no member is impaired


@dataclass(frozen=True, slots=True, kw_only=True)
class NemesisSpec:
    """`excludes`: nemeses that are not on beside it, by name; it never meets itself.

    `impairs`: its target cannot be counted on while it lasts and for `recovery_ms` more. `spares_majority`: while it
    lasts, members that are whole and hear each other are a majority, whatever else is on. `outage_ms`, `while_leading`:
    see FaultBegun.
    """

    name: str
    targets: tuple[TargetKind, ...]
    duration_ms: tuple[int, int]  # least and most
    weight: float = 1.0
    excludes: frozenset[str] = frozenset()
    impairs: bool = True
    spares_majority: bool = True
    recovery_ms: int = 2_000
    outage_ms: int | None = OUTAGE_MS
    while_leading: bool = False

    def __post_init__(self) -> None:
        least, most = self.duration_ms
        if not self.targets or not 0 < least <= most or self.weight <= 0 or self.recovery_ms < 0:
            raise ValueError(f"{self}: it has targets, a duration from above 0 on, and a weight above 0")
        if self.spares_majority and self.impairs and TargetKind.GROUP in self.targets:
            raise ValueError(f"{self.name}: what impairs the whole group spares no majority")


@dataclass(frozen=True, slots=True)
class Firing:
    """Times are milliseconds since the run began."""

    spec: NemesisSpec
    kind: TargetKind
    target: str
    begin_ms: int
    end_ms: int

    @property
    def clear_ms(self) -> int:
        """From when on it is as if it had not been."""
        return self.end_ms + self.spec.recovery_ms

    def describe(self) -> str:
        lasts_ms = self.end_ms - self.begin_ms
        return f"{self.begin_ms / 1000:9.3f} s  {lasts_ms / 1000:6.3f} s  {self.spec.name} {self.target}"
