"""What takes processes away is not said to have happened where it met too few of them; no process runs here."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nemeses.disks.lost_power import LostPower, LostPowerOfAll
from nemeses.kill_all import KillAll
from nemeses.nemesis import NemesisError
from power_loss.durable_stores import PowerLoss

from faults.nemesis import WHOLE_GROUP


class Pids:
    """A group of nothing but them. Each loss of power costs `changed` files."""

    members = ("n0", "n1", "n2")

    def __init__(self, *down: str, changed: int = 1) -> None:
        self.pids = {
            member: None if member in down else number for number, member in enumerate(self.members, 1)
        }
        self._changed = changed

    def pid(self, member: str) -> int | None:
        return self.pids[member]

    def kill(self, member: str) -> None:
        self.pids[member] = None

    def start(self, member: str) -> None:
        self.pids[member] = 99

    def durable_stores(self) -> Any:
        replayed = SimpleNamespace(syncs=3)
        changed = (Path("file"),) * self._changed
        return SimpleNamespace(lose_power=lambda member, pid: PowerLoss(replayed, changed, ()))


def begun(nemesis: Any, target: str) -> Any:
    nemesis.begin(target)
    return nemesis


def test_all_are_killed_at_once_or_none_is() -> None:
    assert begun(KillAll(Pids()), WHOLE_GROUP).evidence() == "processes 1, 2, 3 are gone"
    group = Pids("n1", "n2")
    nemesis = KillAll(group)
    with pytest.raises(NemesisError, match="n1, n2 do not run"):
        nemesis.begin(WHOLE_GROUP)
    assert nemesis.evidence() is None
    nemesis.end()
    assert group.pids == {"n0": 1, "n1": None, "n2": None}


@pytest.mark.parametrize(("kind", "target"), [(LostPower, "n1"), (LostPowerOfAll, WHOLE_GROUP)])
def test_a_loss_of_power_is_one_where_something_was_not_synced(kind: Any, target: str) -> None:
    assert "n1 has what 3 syncs made durable: 1 files held something else" in str(
        begun(kind(Pids()), target).evidence()
    )
    assert begun(kind(Pids(changed=0)), target).evidence() is None
    group = Pids("n1")
    nemesis = kind(group)
    with pytest.raises(NemesisError, match="without power to lose: n1"):
        nemesis.begin(target)
    assert nemesis.evidence() is None
    nemesis.end()
    assert group.pids == {"n0": 1, "n1": None, "n2": 3}
