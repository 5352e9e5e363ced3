"""What goes wrong with a fault spoils the run, unless it merely found nothing to act on; on a group of no processes."""

import math
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fault_runs import fault_firing
from fault_runs.fault_firing import MAKE_UP_TRIES, Firings
from fault_runs.leader_watch import LeaderWatch
from local_cluster import wait_for
from nemeses.nemesis import NemesisError
from proxies.impaired_proxies import Impairment
from workload.noting import Notes

from faults.history import (
    FaultBegun,
    FaultEnded,
    FaultVerified,
    HistoryWriter,
    LeaderSeen,
    Record,
    read_history,
)
from faults.nemesis import LEADER, Firing, NemesisSpec, TargetKind
from faults.schedule import Schedule

SPEC = NemesisSpec(
    name="made_up", targets=(TargetKind.MEMBER, TargetKind.LEADER), duration_ms=(50, 50), recovery_ms=0
)


@pytest.fixture(autouse=True)
def on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_firing, "EVIDENCE_WITHIN_S", 0.0)
    monkeypatch.setattr(
        fault_firing, "MAKE_UP_SHARE_MAX", math.inf
    )  # of 60 ms nothing is left on a busy machine


class NoGroup:
    members = ("n0", "n1", "n2")
    namesrv = ""

    def __init__(self) -> None:
        self.leader_error: Exception | None = None
        self.has_seen = threading.Event()

    def leader(self) -> str | None:
        if self.leader_error is not None:
            raise self.leader_error
        return "n0"

    def led_by(self, member: str) -> tuple[str, int, str] | None:
        if member == "n1":
            raise ValueError("no figure")
        self.has_seen.set()
        return "RaftNode00", 1, "n0"

    def pid(self, member: str) -> int | None:
        return 1

    def kill(self, member: str) -> None: ...

    def start(self, member: str) -> None: ...

    def store_dir(self, member: str) -> Path:
        return Path(member)


class MadeUp:
    """Fails at its begin with `begin_error`, and at the first `failing_ends` ends."""

    def __init__(
        self, begin_error: Exception | None = None, failing_ends: int = 0, spec: NemesisSpec = SPEC
    ) -> None:
        self.spec = spec
        self._begin_error = begin_error
        self._failing_ends = failing_ends

    def begin(self, target: str) -> None:
        if self._begin_error is not None:
            raise self._begin_error

    def evidence(self) -> str | None:
        return None if self._begin_error is not None else "seen"

    def end(self) -> None:
        if self._failing_ends:
            self._failing_ends -= 1
            raise NemesisError("no room")


def fired(path: Path, nemesis: MadeUp, group: NoGroup, target: str = "n0") -> tuple[list[str], list[Record]]:
    """Trouble, and what was noted."""
    kind = TargetKind.LEADER if target == LEADER else TargetKind.MEMBER
    schedule = Schedule(0, 60, group.members, ((0, 60),), (Firing(nemesis.spec, kind, target, 0, 50),))
    trouble: list[str] = []
    with HistoryWriter(path) as writer:
        notes = Notes(writer)
        Firings(schedule, {nemesis.spec.name: nemesis}, group, notes, lambda _: None, trouble.append).run()
    return trouble, list(read_history([path]))


def test_a_fault_that_nothing_shows_is_made_up_for_and_not_for_ever(tmp_path: Path) -> None:
    class ShowsLate(MadeUp):
        def __init__(self, unseen: int) -> None:
            super().__init__()
            self.begun = 0
            self._unseen = unseen

        def begin(self, target: str) -> None:
            self.begun += 1
            if self.begun <= self._unseen:
                raise NemesisError(f"{target} does not run")

        def evidence(self) -> str | None:
            return None if self.begun <= self._unseen else "seen"

    for unseen, begun in ((0, 1), (2, 3), (99, 1 + MAKE_UP_TRIES)):
        nemesis = ShowsLate(unseen)
        trouble, records = fired(tmp_path / f"h{unseen}", nemesis, NoGroup())
        assert not trouble
        assert nemesis.begun == begun
        assert sum(isinstance(record, FaultVerified) for record in records) == (unseen < begun)
        assert [record.fault for record in records if isinstance(record, FaultEnded)] == list(range(begun))


def test_what_is_made_up_begins_when_the_group_has_got_over_the_fault_before(tmp_path: Path) -> None:
    nemesis = MadeUp(NemesisError("n0 does not run"), spec=replace(SPEC, recovery_ms=40))
    _, records = fired(tmp_path / "h", nemesis, NoGroup())
    begun = [record.at_ns for record in records if isinstance(record, FaultBegun)]
    ended = [record.at_ns for record in records if isinstance(record, FaultEnded)]
    assert len(begun) == 1 + MAKE_UP_TRIES
    assert all(begin - end >= 39_000_000 for end, begin in zip(ended, begun[1:], strict=False))


def test_the_schedule_goes_on_when_the_group_has_got_over_a_fault_that_ended_late(tmp_path: Path) -> None:
    class EndsLate(MadeUp):
        """As one whose process takes long to come up."""

        def end(self) -> None:
            wait_for(lambda: time.monotonic() >= until_s, 60, "the time of its end is over")

    slow, quick = replace(SPEC, name="slow", recovery_ms=400), replace(SPEC, name="quick")
    firings = (
        Firing(slow, TargetKind.MEMBER, "n0", 0, 50),
        Firing(quick, TargetKind.MEMBER, "n1", 450, 500),
    )
    schedule = Schedule(0, 600, NoGroup.members, ((0, 600),), firings)
    nemeses = {"slow": EndsLate(spec=slow), "quick": MadeUp(spec=quick)}
    until_s = time.monotonic() + 0.6
    with HistoryWriter(tmp_path / "h") as writer:
        Firings(schedule, nemeses, NoGroup(), Notes(writer), lambda _: None, pytest.fail).run()
    records = list(read_history([tmp_path / "h"]))
    (ended, _) = (record.at_ns for record in records if isinstance(record, FaultEnded))
    (_, begun) = (record.at_ns for record in records if isinstance(record, FaultBegun))
    assert begun - ended >= 390_000_000


def test_what_is_made_up_takes_a_share_of_the_schedule_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault_firing, "MAKE_UP_SHARE_MAX", 0)
    _, records = fired(tmp_path / "h", MadeUp(NemesisError("n0 does not run")), NoGroup())
    assert [record.fault for record in records if isinstance(record, FaultBegun)] == [0]


def test_an_end_that_fails_is_tried_again(tmp_path: Path) -> None:
    trouble, records = fired(tmp_path / "h", MadeUp(failing_ends=1), NoGroup())
    assert not trouble
    assert [type(record) for record in records[1:]] == [FaultVerified, FaultEnded]


@pytest.mark.parametrize(
    ("error", "is_trouble"), [(NemesisError("n0 does not run"), False), (OSError("no file"), True)]
)
def test_a_begin_that_fails_is_trouble_unless_there_was_nothing_to_act_on(
    tmp_path: Path, error: Exception, is_trouble: bool
) -> None:
    trouble, records = fired(tmp_path / "h", MadeUp(begin_error=error), NoGroup())
    assert [str(error) in told for told in trouble] == [True] * (1 + MAKE_UP_TRIES if is_trouble else 0)
    assert {type(record) for record in records} == {FaultBegun, FaultEnded}


def test_a_thread_that_dies_is_trouble(tmp_path: Path) -> None:
    group = NoGroup()
    group.leader_error = ValueError("no figure")
    trouble, _ = fired(tmp_path / "h", MadeUp(), group, LEADER)
    assert all("ValueError: no figure" in told for told in trouble)
    assert len(trouble) == 1 + MAKE_UP_TRIES


def test_a_member_that_cannot_be_watched_is_trouble_and_the_others_are_watched(tmp_path: Path) -> None:
    group, trouble = NoGroup(), list[str]()
    with HistoryWriter(tmp_path / "h") as writer, LeaderWatch(group, Notes(writer), trouble.append):
        wait_for(lambda: trouble and group.has_seen.is_set(), 60, "one that is watched and one that is not")
    assert ["n1" in told and "no figure" in told for told in trouble] == [True]
    assert {r.seen_by for r in read_history([tmp_path / "h"]) if isinstance(r, LeaderSeen)} <= {"n0", "n2"}


def test_a_lift_that_fails_can_be_tried_again() -> None:
    undone: list[str] = []
    failures = [OSError("refused")]

    def fails_once() -> None:
        if failures:
            raise failures.pop()
        undone.append("first")

    impairment = Impairment(fails_once, lambda: undone.append("second"))
    with pytest.raises(OSError, match="refused"):
        impairment.lift()
    assert undone == ["second"]
    impairment.lift()
    assert "first" in undone
