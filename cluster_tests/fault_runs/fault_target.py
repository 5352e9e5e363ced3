"""What a fault run asks of the group it is about, beside what nemeses ask."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from nemeses.nemesis import Group

from verify.report.text_report import Verdict


class FaultTarget(Group, Protocol):
    name: str  # whose brokers these are: "ours" or "java"

    @property
    def client_dials(self) -> Mapping[str, str]:
        """What clients of the run are to dial instead of what, host:port each."""

    def up(self) -> None:
        """Returns once all processes listen."""

    def down(self) -> None:
        """Ends all processes and whatever stands around them, also of a group that was never started."""

    def revive(self) -> None:
        """Starts what does not run and lets go on what stands still, members and NameServer."""

    def level(self, seconds: float) -> None:
        """Returns once all members hold the same, and have dispatched it. Raises AssertionError."""

    def led_by(self, member: str) -> tuple[str, int, str] | None:
        """(Raft group, term, leader), as the member says; None if it says nothing, or knows no leader."""

    def judge_replicas(self, history: Path) -> Verdict | None:
        """Replicas held against each other and against what `history` says was acknowledged, once all processes have
        ended. None: it cannot be told."""
