"""A fault run of brokers with a known bug: the report has to tell what they lost, with its cause."""

import os
import threading
from pathlib import Path

import pytest
from fault_runs.fault_run import GROUPS, KINDS, FaultRun, Load, Result
from fault_runs.our_group import OurGroup
from local_cluster import ROOT, port_block, wait_for

from faults.nemesis import WHOLE_GROUP, Firing, NemesisSpec, TargetKind
from faults.schedule import Schedule

pytestmark = [pytest.mark.slow, pytest.mark.long]

# Preloaded by Python itself, in brokers: a leader counts what any one member holds, itself included, as committed.
ONE_COUNTS_AS_A_MAJORITY = """\
import dledger.core.quorum_ack_checker

dledger.core.quorum_ack_checker.quorum_index = max
"""

# What is rolled back is committed, recalls are not met, timers leave early beside others that are due, an expression
# selects what it does not match.
BUGS_OF_KINDS = """\
from store.filter.sql_filter import SqlFilter
from store.services import timer_message_service
from store.services.timer_message_service import TimerMessageService
from store.services.transaction_service import TransactionService

TransactionService.roll_back = TransactionService.commit

timer_message_service.recall_keys = lambda properties: (b"", b"")
take_due = TimerMessageService._take_due
TimerMessageService._take_due = lambda self, queue, batch, now_ms: take_due(self, queue, batch, now_ms + 500)

by_record = SqlFilter.by_record
SqlFilter.by_record = lambda self, record: not by_record(self, record)
"""


class LoneLeader:
    """The followers are killed; the leader goes on alone for as long as it may, and is killed as well."""

    spec = NemesisSpec(
        name="lone_leader",
        targets=(TargetKind.GROUP,),
        duration_ms=(3_000, 3_000),
        spares_majority=False,
        outage_ms=None,
    )

    def __init__(self, group: OurGroup) -> None:
        self._group = group
        self._followers: list[str] = []
        self._leader: str | None = None

    def begin(self, target: str) -> None:
        self._leader = wait_for(self._group.leader, 60, "a leader")
        self._followers = [member for member in self._group.members if member != self._leader]
        for follower in self._followers:
            self._group.kill(follower)
        threading.Event().wait(0.5)  # of sends that nobody but the leader gets
        self._group.kill(self._leader)

    def evidence(self) -> str | None:
        pids = [self._group.pid(member) for member in self._group.members]
        return None if any(pids) else f"no process is left, the last was that of {self._leader}"

    def end(self) -> None:
        for follower in self._followers:
            self._group.start(follower)
        if self._leader is not None:
            # It comes back once the others have elected: by then what it alone has is not the group's.
            wait_for(self._group.leader, 60, "a leader of the two")
            self._group.start(self._leader)
            self._leader = None


def judged_run(tmp_path: Path, bug: str, *firings: Firing) -> Result:
    """Of brokers with a bug, for 6 s; the report is report.html."""
    (tmp_path / "sitecustomize.py").write_text(bug)
    with port_block() as base_port:
        group = OurGroup(tmp_path / "cluster", base_port)
        group.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
        schedule = Schedule(0, 6_000, group.members, ((0, 5_000),), firings)
        run = FaultRun(group, [LoneLeader(group)], schedule, tmp_path, Load(), print)
        run.run()
    return run.judge(tmp_path / "report.html")


@pytest.mark.parametrize("bug", [ONE_COUNTS_AS_A_MAJORITY, ""], ids=["one counts as a majority", "none"])
def test_the_report_tells_what_brokers_with_a_bug_have_lost_and_under_which_fault(
    tmp_path: Path, bug: str
) -> None:
    firing = Firing(LoneLeader.spec, TargetKind.GROUP, WHOLE_GROUP, 1_000, 4_000)
    result = judged_run(tmp_path, bug, firing)
    judgement, page = result.judgement, (tmp_path / "report.html").read_text()
    if not bug:
        assert result.verdict[0] == "good", (
            result.verdict,
            result.trouble,
            judgement.shortfalls(),
            judgement.violations[:3],
        )
        # It is good of what each of its groups was given as well.
        assert judgement.coverage.run is not None
        assert judgement.coverage.run.groups == GROUPS
        assert all(judgement.coverage.delivered[group] for group in GROUPS)
        return
    assert result.verdict[0] == "bad"
    lost = [
        violation
        for violation in judgement.violations
        if violation.checker == "lost_write" and " was acknowledged at " in violation.sentence
    ]
    assert lost, judgement.totals
    (fault,) = judgement.coverage.faults.values()
    assert fault.evidence is not None
    assert fault.ended_ns is not None
    # They were acknowledged while the leader was alone, which is where the timeline shows them.
    assert all(fault.begun.at_ns <= (violation.at_ns or 0) <= fault.ended_ns for violation in lost)
    assert "lost write" in page
    assert "lone_leader" in page


def test_the_report_tells_what_is_wrong_with_each_kind_of_message(tmp_path: Path) -> None:
    result = judged_run(tmp_path, BUGS_OF_KINDS)
    assert set(result.judgement.totals) == {"transaction", "timer", "filtered"}
    told = [violation.sentence for violation in result.judgement.violations]
    for part in (
        "and its producer had said rollback",
        "was recalled before its time, which was acknowledged, and was read at",
        "ms before its time by the",
        "which its expression does not match",
    ):
        assert any(part in sentence for sentence in told), (part, told[:3])
    page = (tmp_path / "report.html").read_text()
    assert all(f"<b>{kind}</b>" in page for kind in KINDS)
